//! The tensors of a checkpoint in the safetensors format.
//!
//! The crate of that name checks and describes; the bytes are written and read here one tensor after the other, so that
//! no process needs all of them in memory. The crate's own writer needs a second copy of all of them or creates a file
//! that only its owner can read.

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

pub use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};

use super::DAMAGED;
use crate::{Error, Result};

/// The longest header that the format allows.
const HEADER_LIMIT: u64 = 100_000_000;

/// What a tensor of a checkpoint is, without its elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its name, which no other tensor of the checkpoint has.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions.
    pub shape: Vec<usize>,
}

impl Description {
    /// The order of tensors in the file: large elements first, as the format requires, so that all of them are aligned.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        other.dtype.cmp(&self.dtype).then_with(|| self.name.cmp(&other.name))
    }

    /// How many bytes its elements take, unless that is more than can be.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let bits = self.shape.iter().try_fold(self.dtype.bitsize(), |bits, &extent| bits.checked_mul(extent))?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

/// A tensor to be saved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tensor<'a> {
    /// Its name, which no other tensor of the checkpoint has.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its dimensions.
    pub shape: &'a [usize],
    /// Its elements, little endian, in row-major order.
    pub bytes: &'a [u8],
}

/// Where the elements of a tensor come from while it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    /// They are here.
    Here(&'a [u8]),
    /// They are made when it is their turn.
    #[cfg_attr(not(feature = "burn"), allow(dead_code, reason = "only optimizers' states are made late"))]
    Later,
}

/// Makes the elements of a tensor, which are dropped when they are written.
pub(crate) type Make<'a> = &'a mut dyn FnMut(&Description) -> Result<Vec<u8>>;

/// Tensors in the order and with the header of the file.
pub(super) struct Arranged<'a> {
    header: Vec<u8>,
    tensors: Vec<(Description, Content<'a>)>,
}

impl<'a> Arranged<'a> {
    pub(super) fn new(folder: &Path, mut tensors: Vec<(Description, Content<'a>)>) -> Result<Self> {
        let refuse = |name: &str, problem: String| {
            Error::file(folder, format!("tensor `{name}`: {problem}"), "nothing was written; give other tensors")
        };
        tensors.sort_by(|(one, _), (other, _)| one.order(other));
        let (mut names, mut infos, mut end) = (BTreeSet::new(), Vec::new(), 0);
        for (tensor, content) in &tensors {
            let Description { name, dtype, shape } = tensor;
            if !names.insert(name) || name == "__metadata__" {
                return Err(refuse(name, "this name is taken".into()));
            }
            let length = match content {
                Content::Here(bytes) => bytes.len(),
                Content::Later => tensor.bytes().unwrap_or(0),
            };
            if tensor.bytes() != Some(length) {
                return Err(refuse(name, format!("{length} bytes are not {shape:?} of {dtype:?}")));
            }
            let info = TensorInfo { dtype: *dtype, shape: shape.clone(), data_offsets: (end, end + length) };
            end += length;
            infos.push((name.clone(), info));
        }
        let metadata = Metadata::new(None, infos).map_err(|error| refuse("*", error.to_string()))?;
        let mut header = serde_json::to_vec(&metadata).map_err(|error| refuse("*", error.to_string()))?;
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok(Self { header, tensors })
    }

    /// Writes the file; what cannot be made goes to `failed`.
    pub(super) fn write(&self, file: &mut dyn Write, make: Make<'_>, failed: &mut Option<Error>) -> io::Result<()> {
        file.write_all(&(self.header.len() as u64).to_le_bytes())?;
        file.write_all(&self.header)?;
        for (tensor, content) in &self.tensors {
            match content {
                Content::Here(bytes) => file.write_all(bytes)?,
                Content::Later => {
                    let bytes = make(tensor).map_err(|error| {
                        let message = io::Error::other(error.to_string());
                        *failed = Some(error);
                        message
                    })?;
                    if tensor.bytes() != Some(bytes.len()) {
                        return Err(io::Error::other(format!("tensor `{}` has another size", tensor.name)));
                    }
                    file.write_all(&bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// A file of tensors, of which only the header is in memory.
#[derive(Debug)]
pub(super) struct TensorFile {
    path: PathBuf,
    file: File,
    /// Where the elements begin.
    start: u64,
    metadata: Metadata,
}

impl TensorFile {
    pub(super) fn new(path: &Path, file: File) -> Result<Self> {
        let length = file.metadata().map_err(Error::io("read", path))?.len();
        let damaged = |problem: String| Error::file(path, format!("header: {problem}"), DAMAGED);
        let mut size = [0; 8];
        let read = |bytes: &mut [u8], at: u64| file.read_exact_at(bytes, at).map_err(Error::io("read", path));
        read(&mut size, 0)?;
        let size = u64::from_le_bytes(size);
        let start = size.checked_add(8).filter(|&start| start <= length && size <= HEADER_LIMIT);
        let start = start.ok_or_else(|| damaged(format!("it would have {size} bytes")))?;
        let mut header = vec![0; size as usize];
        read(&mut header, 8)?;
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| damaged(error.to_string()))?;
        let elements = metadata.data_len() as u64;
        if start.checked_add(elements) != Some(length) {
            return Err(damaged(format!("{elements} bytes of elements in a file of {length} bytes")));
        }
        Ok(Self { path: path.to_owned(), file, start, metadata })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    pub(super) fn describe(&self, name: &str) -> Option<Description> {
        let TensorInfo { dtype, shape, .. } = self.metadata.info(name)?;
        Some(Description { name: name.to_owned(), dtype: *dtype, shape: shape.clone() })
    }

    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>> {
        let info = self.metadata.info(name);
        let info = info.ok_or_else(|| Error::file(&self.path, format!("tensor `{name}`: it is missing"), DAMAGED))?;
        let (start, end) = info.data_offsets;
        let mut bytes = vec![0; end - start];
        let read = self.file.read_exact_at(&mut bytes, self.start + start as u64);
        read.map_err(Error::io("read", &self.path))?;
        Ok(bytes)
    }
}
