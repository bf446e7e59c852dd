//! NumPy's `.npz`: a zip file with one `.npy` for each array.
//!
//! Of zip only what `np.savez` and `np.savez_compressed` write is read, from the directory at the end of the file:
//! entries as they are or deflated, sizes below 4 GiB. Sizes and sums in front of the entries are not looked at, so
//! both ways to write them are understood.

use std::{
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use flate2::{CrcReader, read::DeflateDecoder};

use super::{
    Array, Source, npy,
    source::{DAMAGED, DEFLATE_RATIO},
};
use crate::{Error, Result};

const END: u64 = 22;
const COMMENT_LIMIT: u64 = 65_535;
const CENTRAL: usize = 46;
const LOCAL: u64 = 30;

/// A `.npz` file, whose arrays are read one by one.
#[derive(Debug)]
pub struct Npz<R = BufReader<File>> {
    path: PathBuf,
    bytes: R,
    length: u64,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    packed: bool,
    crc: u32,
    packed_size: u64,
    size: u64,
    start: u64,
}

impl Npz {
    /// Opens a file and reads its directory.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        Self::new(path, BufReader::new(file))
    }
}

impl<R: Read + Seek> Npz<R> {
    /// Reads the directory of such a file; `path` is for messages.
    pub fn new(path: &Path, mut bytes: R) -> Result<Self> {
        let length = bytes.seek(SeekFrom::End(0)).map_err(Error::io("read", path))?;
        let mut npz = Self { path: path.to_owned(), bytes, length, entries: Vec::new() };
        let tail = npz.range(length.saturating_sub(END + COMMENT_LIMIT), length.min(END + COMMENT_LIMIT), "end")?;
        let end = (0..=tail.len().saturating_sub(END as usize)).rev().find(|&at| tail[at..].starts_with(b"PK\x05\x06"));
        let Some(end) = end.map(|at| &tail[at..]).filter(|end| end.len() >= END as usize) else {
            return Err(npz.refuse("end of directory", "there is none, so this is not a .npz file", DAMAGED));
        };
        let (count, size, start) = (short(end, 10), long(end, 12), long(end, 16));
        if count == u16::MAX || size == u32::MAX || start == u32::MAX {
            let hint = "save large arrays as .npy files";
            return Err(npz.refuse("directory", "files of 4 GiB and more are not supported", hint));
        }
        let directory = npz.range(start.into(), size.into(), "directory")?;
        let mut left = directory.as_slice();
        for number in 0..count {
            let (entry, rest) = npz.entry(left, number)?;
            npz.entries.push(entry);
            left = rest;
        }
        Ok(npz)
    }

    /// The names of the arrays, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Reads an array.
    pub fn read(&mut self, name: &str) -> Result<Array> {
        let Some(entry) = self.entries.iter().find(|entry| entry.name == name) else {
            let names: Vec<&str> = self.names().collect();
            return Err(self.refuse(name, "there is no such array", &format!("there are: {}", names.join(", "))));
        };
        let (packed, crc, size, packed_size, header) =
            (entry.packed, entry.crc, entry.size, entry.packed_size, entry.start);
        let field = format!("entry `{name}`");
        let local = self.range(header, LOCAL, &field)?;
        let start = header + LOCAL + u64::from(short(&local, 26)) + u64::from(short(&local, 28));
        if !local.starts_with(b"PK\x03\x04") || start.saturating_add(packed_size) > self.length {
            return Err(self.refuse(&field, "it is not where the directory says", DAMAGED));
        }
        let path = self.path.join(name);
        self.bytes.seek(SeekFrom::Start(start)).map_err(Error::io("read", &path))?;
        let bytes = (&mut self.bytes).take(packed_size);
        let unpacked: Box<dyn Read + '_> = if packed { Box::new(DeflateDecoder::new(bytes)) } else { Box::new(bytes) };
        let mut sum = CrcReader::new(unpacked);
        let array = npy::parse(Source::new(&path, &mut sum, size))?;
        if sum.crc().sum() == crc {
            return Ok(array);
        }
        drop(sum);
        Err(self.refuse(&field, "its sum is wrong", DAMAGED))
    }

    /// One entry of the directory, and what comes after it.
    fn entry<'a>(&self, bytes: &'a [u8], number: u16) -> Result<(Entry, &'a [u8])> {
        let field = format!("entry {number}");
        let Some((header, rest)) = bytes.split_at_checked(CENTRAL).filter(|(head, _)| head.starts_with(b"PK\x01\x02"))
        else {
            return Err(self.refuse(&field, "the directory ends too early", DAMAGED));
        };
        let name = usize::from(short(header, 28));
        let others = usize::from(short(header, 30)) + usize::from(short(header, 32));
        let (Some(text), Some(rest)) = (rest.get(..name), rest.get(name + others..)) else {
            return Err(self.refuse(&field, "the directory ends too early", DAMAGED));
        };
        let text = String::from_utf8_lossy(text).into_owned();
        let (flags, method, crc) = (short(header, 8), short(header, 10), long(header, 16));
        let [packed_size, size, start] = [20, 24, 42].map(|at| u64::from(long(header, at)));
        let possible = match method {
            0 => packed_size == size,
            8 => size <= packed_size.saturating_mul(DEFLATE_RATIO),
            _ => false,
        };
        if flags & 1 != 0 || !matches!(method, 0 | 8) {
            let hint = "save it again with np.savez or np.savez_compressed";
            return Err(self.refuse(&text, "it is encrypted or packed in an unknown way", hint));
        }
        if !possible {
            return Err(self.refuse(&text, &format!("{size} bytes cannot come out of {packed_size}"), DAMAGED));
        }
        let name = text.strip_suffix(".npy").unwrap_or(&text).to_owned();
        Ok((Entry { name, packed: method == 8, crc, packed_size, size, start }, rest))
    }

    /// A piece of the file. Nothing is allocated if it cannot be there.
    fn range(&mut self, start: u64, size: u64, field: &str) -> Result<Vec<u8>> {
        if start.checked_add(size).is_none_or(|end| end > self.length) {
            return Err(self.refuse(field, "it lies beyond the end of the file", DAMAGED));
        }
        self.bytes.seek(SeekFrom::Start(start)).map_err(Error::io("read", &self.path))?;
        let mut piece = vec![0; size as usize];
        self.bytes.read_exact(&mut piece).map_err(Error::io("read", &self.path))?;
        Ok(piece)
    }

    fn refuse(&self, field: &str, problem: &str, hint: &str) -> Error {
        Error::file(&self.path, format!("{field}: {problem}"), hint)
    }
}

/// The number at a place; the callers know that it is there.
fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
#[path = "npz_tests.rs"]
mod tests;
