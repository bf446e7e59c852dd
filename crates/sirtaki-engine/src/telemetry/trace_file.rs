//! A file of events that is valid JSON at every moment, whatever is killed and when.
//!
//! The kernel looks for a fatal signal between the pages of a write but not inside one. So the end of the file stays
//! where it is, behind a gap of spaces, and events are written into the gap with one call per page, none across a page
//! boundary. When the gap is used up, a larger file is made next to this one and takes its name; the size doubles, so
//! all copying together costs no more than twice the file. The first page is rewritten whenever its contents change.
//!
//! Rejected: overwriting the closing bracket with more events and a new bracket. A write of several pages can be cut off
//! between two of them.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek, Write},
    os::unix::fs::FileExt,
    path::Path,
};

use rustix::fs::MemfdFlags;

use super::text::Texts;
use crate::files::{Draft, Target, check, open_stream};

/// A write inside one of these is not interrupted.
const PAGE: u64 = 4096;
/// Bytes of a new file.
const FIRST: u64 = 64 << 10;
/// What a gap is made of.
static SPACES: [u8; 64 << 10] = [b' '; 64 << 10];

/// The file.
#[derive(Debug)]
pub(crate) struct JsonFile {
    target: Target,
    file: File,
    /// Where the next event goes.
    at: u64,
    /// What goes there but is not written yet; all of it in one page.
    pending: Vec<u8>,
    size: u64,
    /// Most bytes of the file.
    limit: u64,
    /// How it ends.
    tail: &'static [u8],
}

impl JsonFile {
    /// A new file of at most `limit` bytes, which replaces any existing one. Its first page is `head`, which has to
    /// open an array, perhaps inside an object, and put an element into it.
    pub(crate) fn create(path: &Path, limit: u64, head: &str) -> io::Result<Self> {
        let limit = (limit / PAGE * PAGE).max(2 * PAGE);
        let size = FIRST.min(limit);
        let tail: &[u8] = if head.starts_with('[') { b"\n]\n" } else { b"\n]}\n" };
        let mut contents = io::Cursor::new(page(head)?);
        check(path)?;
        let target = Target::find(path)?;
        let file = replace(&target, &mut contents, PAGE, size, tail)?;
        Ok(Self { target, file, at: PAGE, pending: Vec::new(), size, limit, tail })
    }

    /// Rewrites the first page.
    pub(crate) fn set_head(&mut self, head: &str) -> io::Result<()> {
        self.file.write_all_at(&page(head)?, 0)
    }

    /// Adds all of these elements; false if there is no room for them.
    pub(crate) fn append(&mut self, events: &Texts) -> io::Result<bool> {
        let (longest, bytes) = events.lengths();
        let (longest, bytes) = (longest as u64 + 2, (bytes + 2 * events.len()) as u64);
        // Every page may end with a gap into which the next element did not fit.
        let most = bytes + (bytes / (PAGE - longest.min(PAGE - 1)) + 1) * longest;
        if longest > PAGE || !self.make_room(most)? {
            return Ok(false);
        }
        for event in events.iter() {
            let used = (self.at + self.pending.len() as u64) % PAGE;
            if (used == 0 && !self.pending.is_empty()) || used + event.len() as u64 + 2 > PAGE {
                self.flush()?;
                self.at = self.at.next_multiple_of(PAGE);
            }
            self.pending.extend_from_slice(b",\n");
            self.pending.extend_from_slice(event.as_bytes());
        }
        Ok(true)
    }

    /// Makes everything that was added visible.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.pending, self.at)?;
        self.at += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Whether there is room for this much before the last page, which holds the end.
    fn make_room(&mut self, bytes: u64) -> io::Result<bool> {
        let needed = self.at + self.pending.len() as u64 + bytes + PAGE;
        if needed <= self.size {
            return Ok(true);
        }
        if needed > self.limit {
            return Ok(false);
        }
        self.flush()?;
        let size = (2 * self.size).max(needed.next_multiple_of(PAGE)).min(self.limit);
        self.file.rewind()?;
        self.file = replace(&self.target, &mut self.file, self.at, size, self.tail)?;
        self.size = size;
        Ok(true)
    }

    /// Closes it, without a gap.
    pub(crate) fn close(mut self) -> io::Result<()> {
        self.flush()?;
        self.file.rewind()?;
        let mut closed = replace(&self.target, &mut self.file, self.at, self.at + self.tail.len() as u64, self.tail)?;
        if let Target::Stream(path) = &self.target {
            closed.rewind()?;
            io::copy(&mut closed, &mut open_stream(path)?)?;
        }
        Ok(())
    }
}

/// A text and spaces, together one page.
fn page(text: &str) -> io::Result<Vec<u8>> {
    let mut page = text.as_bytes().to_vec();
    if page.len() as u64 > PAGE {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the first page is too long"));
    }
    page.resize(PAGE as usize, b' ');
    Ok(page)
}

/// Puts a file of this size in place: the first `used` bytes of `from`, spaces and `tail`. For a stream, the file stays
/// in memory until it is closed.
fn replace(target: &Target, from: &mut impl Read, used: u64, size: u64, tail: &[u8]) -> io::Result<File> {
    let draft = match target {
        Target::File(place) => Some(Draft::new(place)?),
        Target::Stream(_) => None,
    };
    let mut file = match &draft {
        Some(draft) => draft.file.try_clone()?,
        None => File::from(rustix::fs::memfd_create("timeline", MemfdFlags::CLOEXEC)?),
    };
    io::copy(&mut (&mut *from).take(used), &mut file)?;
    let mut gap = size - used - tail.len() as u64;
    while gap > 0 {
        let count = gap.min(SPACES.len() as u64);
        file.write_all(&SPACES[..count as usize])?;
        gap -= count;
    }
    file.write_all(tail)?;
    draft.map_or(Ok(file), Draft::publish)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::*;

    const HEAD: &str = "{\"head\":1,\"all\":[0";

    fn together(all: &[String]) -> Texts {
        let mut texts = Texts::default();
        all.iter().for_each(|text| texts.push(text));
        texts
    }

    fn read(path: &Path) -> Vec<Value> {
        let value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        value["all"].as_array().unwrap().clone()
    }

    #[test]
    fn it_is_valid_after_every_write_and_keeps_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let limit = 300 << 10;
        let mut file = JsonFile::create(&path, limit, HEAD).unwrap();
        assert_eq!(read(&path), [0]);
        let mut expected = vec![Value::from(0)];
        let mut full = 0;
        for number in 0..3000_usize {
            let texts: Vec<String> = (0..number % 4).map(|at| "x".repeat((number * 7 + at * 31) % 500)).collect();
            let events: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
            match file.append(&together(&events)).unwrap() {
                true => expected.extend(texts.into_iter().map(Value::from)),
                false => full += 1,
            }
            if number % 7 == 0 {
                file.flush().unwrap();
            }
            if number % 50 == 0 {
                file.flush().unwrap();
                assert_eq!(read(&path), expected, "after {number}");
                assert!(fs::metadata(&path).unwrap().len() <= limit);
            }
        }
        assert!(full > 0, "the limit was never reached");
        file.set_head("{\"head\":22,\"all\":[0").unwrap();
        file.close().unwrap();
        assert_eq!(read(&path), expected);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("{\"head\":22,") && !text.contains(&" ".repeat(4096)), "a gap is left");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    }

    /// Every write stays inside a page: what is on disk after any number of writes is valid.
    #[test]
    fn no_write_crosses_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = JsonFile::create(&folder.path().join("t.json"), 1 << 20, HEAD).unwrap();
        for number in 0..5000_usize {
            assert!(
                file.append(&together(&[format!("\"{}\"", "y".repeat(number * 13 % 1000))])).unwrap() || number > 1000
            );
            let pending = file.pending.len() as u64;
            assert!(pending == 0 || file.at / PAGE == (file.at + pending - 1) / PAGE, "number {number}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        assert!(JsonFile::create(&folder.path().join("none").join("t"), 1 << 20, HEAD).is_err());
        assert!(JsonFile::create(&path, 1 << 20, &" ".repeat(5000)).is_err());
        let mut file = JsonFile::create(&path, 1 << 20, HEAD).unwrap();
        assert!(
            !file.append(&together(&[format!("\"{}\"", "z".repeat(4095))])).unwrap(),
            "no element is longer than a page"
        );
        assert_eq!(read(&path), [0]);
    }

    #[test]
    fn a_pipe_gets_all_of_it_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let mut file = JsonFile::create(&path, 1 << 20, HEAD).unwrap();
        let events: Vec<String> = (1..20_000).map(|number| number.to_string()).collect();
        assert!(file.append(&together(&events)).unwrap());
        let reader = std::thread::spawn(move || read(&path));
        file.close().unwrap();
        assert_eq!(reader.join().unwrap().len(), 20_000);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the pipe is still one");
    }
}
