//! Bytes of one file, with the checks that every reader needs.
//!
//! A source knows how many bytes can still come, so that an impossible length found in a file is refused before memory
//! is allocated for it. For a plain file that is the rest of it; for a gzip file it is what its last four bytes say, as
//! long as that is possible: deflate never makes more than 1032 bytes from one.

use std::{
    io::{BufRead, BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use flate2::bufread::GzDecoder;
use sirtaki_engine::files;

use crate::{Error, Result};

/// The most bytes that deflate makes from one.
pub(crate) const DEFLATE_RATIO: u64 = 1032;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What to do about a file that is truncated or altered.
pub(crate) const DAMAGED: &str = "the file is damaged or was copied only in part: get it again";

/// Bytes with a name and a limit.
pub struct Source<'a> {
    path: PathBuf,
    bytes: Box<dyn Read + 'a>,
    left: u64,
}

impl<'a> Source<'a> {
    /// Any bytes, of which at most `limit` will come; `path` is for messages.
    pub fn new(path: &Path, bytes: impl Read + 'a, limit: u64) -> Self {
        Self { path: path.to_owned(), bytes: Box::new(bytes), left: limit }
    }

    /// Bytes in memory, unpacked if they are a gzip file.
    pub fn of_bytes(path: &Path, bytes: &'a [u8]) -> Result<Self> {
        Self::unpack(path, Cursor::new(bytes), bytes.len() as u64)
    }

    /// A file, unpacked if it is a gzip file, whatever its name.
    pub fn open(path: &Path) -> Result<Source<'static>> {
        let file = files::open(path).map_err(Error::io("open", path))?;
        let length = file.metadata().map_err(Error::io("read", path))?.len();
        Source::unpack(path, BufReader::new(file), length)
    }

    fn unpack(path: &Path, mut bytes: impl BufRead + Seek + 'a, length: u64) -> Result<Self> {
        let fail = |error| Error::io("read", path)(error);
        let mut magic = [0; 2];
        if length < 18 || bytes.read_exact(&mut magic).is_err() || magic != GZIP_MAGIC {
            bytes.rewind().map_err(fail)?;
            return Ok(Self::new(path, bytes, length));
        }
        let mut size = [0; 4];
        bytes.seek(SeekFrom::End(-4)).map_err(fail)?;
        bytes.read_exact(&mut size).map_err(fail)?;
        bytes.rewind().map_err(fail)?;
        let limit = u64::from(u32::from_le_bytes(size)).min(length.saturating_mul(DEFLATE_RATIO));
        Ok(Self::new(path, GzDecoder::new(bytes), limit))
    }

    /// An error about this file.
    pub fn refuse(&self, field: &str, problem: &str, hint: &str) -> Error {
        Error::file(&self.path, format!("{field}: {problem}"), hint)
    }

    /// How many bytes can still come.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes, as many as the array has.
    pub fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, field)?;
        Ok(bytes)
    }

    /// The next `count` bytes. Nothing is allocated if they cannot be there.
    pub fn take(&mut self, count: u64, field: &str) -> Result<Vec<u8>> {
        self.expect(count, field)?;
        let mut bytes = vec![0; count as usize];
        self.fill(&mut bytes, field)?;
        Ok(bytes)
    }

    /// Fails if `count` more bytes cannot be there.
    pub fn expect(&self, count: u64, field: &str) -> Result<()> {
        if count <= self.left && usize::try_from(count).is_ok() {
            return Ok(());
        }
        let problem = format!("{count} bytes are needed where {} are left", self.left);
        Err(self.refuse(field, &problem, DAMAGED))
    }

    /// Fills `into` with the next bytes.
    pub fn fill(&mut self, into: &mut [u8], field: &str) -> Result<()> {
        self.expect(into.len() as u64, field)?;
        self.bytes.read_exact(into).map_err(|error| self.damaged(&error, field))?;
        self.left -= into.len() as u64;
        Ok(())
    }

    /// Fails if there is more, or if the checksum at the end of a packed file is wrong.
    pub fn end(mut self) -> Result<()> {
        match self.bytes.read(&mut [0]) {
            Ok(0) if self.left == 0 => Ok(()),
            Ok(_) => Err(self.refuse("length", "there is more in the file than its header says", DAMAGED)),
            Err(error) => Err(self.damaged(&error, "end")),
        }
    }

    fn damaged(&self, error: &std::io::Error, field: &str) -> Error {
        match error.kind() {
            ErrorKind::UnexpectedEof => self.refuse(field, "the file ends too early", DAMAGED),
            ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                self.refuse(field, &format!("cannot be unpacked ({error})"), DAMAGED)
            }
            _ => self.refuse(field, &format!("cannot be read ({error})"), "check the disk and the network behind it"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use super::*;

    pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8], count: u64) -> Result<Vec<u8>> {
        let mut source = Source::of_bytes(Path::new("a/file"), bytes)?;
        let taken = source.take(count, "body")?;
        source.end().map(|()| taken)
    }

    #[test]
    fn plain_and_packed_give_the_same() {
        let content: Vec<u8> = (0..100).collect();
        assert_eq!(read(&content, 100).unwrap(), content);
        assert_eq!(read(&gzip(&content), 100).unwrap(), content);
    }

    #[test]
    fn a_length_that_cannot_be_there_is_refused_before_allocation() {
        for bytes in [vec![7; 50], gzip(&[7; 50])] {
            let error = read(&bytes, u64::MAX / 2).unwrap_err();
            assert_eq!(error.to_string(), "`a/file`: body: 9223372036854775807 bytes are needed where 50 are left");
            assert!(error.hint().unwrap().contains("get it again"));
        }
    }

    #[test]
    fn no_cut_and_no_change_of_a_packed_file_gives_wrong_values() {
        let content: Vec<u8> = (0..200).map(|n| (n * 7 % 251) as u8).collect();
        let packed = gzip(&content);
        for cut in 0..packed.len() {
            assert!(read(&packed[..cut], 200).is_err(), "cut at {cut}");
        }
        for place in 10..packed.len() {
            let mut changed = packed.clone();
            changed[place] ^= 0x10;
            // Some bits between the blocks mean nothing.
            assert!(read(&changed, 200).map_or(true, |read| read == content), "changed at {place}");
        }
    }

    #[test]
    fn more_than_expected_is_refused() {
        assert!(read(&[1; 30], 29).unwrap_err().to_string().contains("more in the file"));
    }
}
