//! Shards: files that hold many chunks, and an index that says where each of them is.
//!
//! The index is read once and kept with the open file, so that every chunk costs one read.

use std::{borrow::Cow, fs::File, io, os::unix::fs::FileExt, path::Path};

use super::{
    codec::{CHECKSUM, append_checksum, strip_checksum},
    metadata::Sharding,
};
use crate::{
    VolumeError,
    format::{DAMAGED, TRUNCATED},
};

/// The bytes of an entry: where a chunk starts, and its length.
const ENTRY: usize = 16;
/// Both numbers of a chunk that was never written.
const MISSING: u64 = u64::MAX;

/// An open shard.
#[derive(Debug)]
pub(crate) struct Shard {
    file: File,
    /// Where each chunk starts and ends.
    chunks: Vec<(u64, u64)>,
    length: u64,
}

impl Shard {
    /// Opens a shard with so many chunks; nothing if the file is not there.
    pub(crate) fn open(path: &Path, sharding: &Sharding, count: usize) -> Result<Option<Self>, VolumeError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(VolumeError::Io { path: path.to_owned(), error }),
        };
        let length = file.metadata().map_err(VolumeError::io(path))?.len();
        let size = count * ENTRY + if sharding.index_checksum { CHECKSUM } else { 0 };
        let Some(end) = length.checked_sub(size as u64) else {
            let problem = format!("this shard has {length} bytes, and its index alone needs {size}");
            return Err(VolumeError::format(path, problem, TRUNCATED));
        };
        let mut index = vec![0; size];
        file.read_exact_at(&mut index, if sharding.index_first { 0 } else { end }).map_err(VolumeError::io(path))?;
        let mut index = Cow::Owned(index);
        if sharding.index_checksum {
            let refuse =
                |problem: String| VolumeError::format(path, format!("the index of this shard: {problem}"), DAMAGED);
            index = strip_checksum(index).map_err(refuse)?;
        }
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let chunks = index.as_chunks::<8>().0.as_chunks::<2>().0;
        let chunks = chunks.iter().map(|[start, length]| (number(start), number(length))).collect();
        Ok(Some(Self { file, chunks, length }))
    }

    /// The bytes of a chunk; nothing if it was never written.
    pub(crate) fn read(&self, number: usize) -> Result<Option<Vec<u8>>, String> {
        let Some(&(start, length)) = self.chunks.get(number) else { return Ok(None) };
        if start == MISSING && length == MISSING {
            return Ok(None);
        }
        if start.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(format!("it would have {length} bytes at {start} in a file of {}", self.length));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, start).map_err(|error| error.to_string())?;
        Ok(Some(bytes))
    }
}

/// The bytes of a shard with these chunks; nothing if there are none.
pub(crate) fn assemble(chunks: Vec<Option<Vec<u8>>>, sharding: &Sharding) -> Option<Vec<u8>> {
    if chunks.iter().all(Option::is_none) {
        return None;
    }
    let size = chunks.len() * ENTRY + if sharding.index_checksum { CHECKSUM } else { 0 };
    let before = if sharding.index_first { size as u64 } else { 0 };
    let (mut index, mut bytes) = (Vec::with_capacity(size), Vec::new());
    for chunk in chunks {
        let entry = match &chunk {
            Some(chunk) => [before + bytes.len() as u64, chunk.len() as u64],
            None => [MISSING, MISSING],
        };
        index.extend(entry.into_iter().flat_map(u64::to_le_bytes));
        bytes.extend(chunk.unwrap_or_default());
    }
    if sharding.index_checksum {
        append_checksum(&mut index);
    }
    Some(if sharding.index_first { [index, bytes].concat() } else { [bytes, index].concat() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Extent;

    #[test]
    fn chunks_return_from_shards_of_every_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard");
        let chunks = vec![Some(vec![1, 2, 3]), None, Some(vec![4])];
        for (index_first, index_checksum) in [(false, true), (true, true), (false, false), (true, false)] {
            let sharding = Sharding { chunk: Extent::new([1]).unwrap(), index_first, index_checksum };
            let bytes = assemble(chunks.clone(), &sharding).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            let shard = Shard::open(&path, &sharding, 3).unwrap().unwrap();
            let read: Vec<_> = (0..3).map(|number| shard.read(number).unwrap()).collect();
            assert_eq!(read, chunks);
            std::fs::write(&path, &bytes[..20]).unwrap();
            let error = Shard::open(&path, &sharding, 3).unwrap_err();
            assert!(error.to_string().contains("its index alone needs"), "{error}");
        }
        assert_eq!(
            assemble(
                vec![None, None],
                &Sharding { chunk: Extent::new([1]).unwrap(), index_first: false, index_checksum: true }
            ),
            None
        );
    }
}
