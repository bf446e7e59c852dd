//! The tensors of a checkpoint in the safetensors format.
//!
//! The crate of that name checks and describes; the bytes are written here one tensor after the other, because the
//! crate's own writer either needs a second copy of all of them in memory or creates a file that only its owner can
//! read.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::Path,
};

pub use safetensors::Dtype;
use safetensors::{
    SafeTensors,
    tensor::{Metadata, TensorInfo},
};

use super::DAMAGED;
use crate::{Error, Result};

/// A tensor to be saved, or one of a checkpoint.
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

/// Tensors in the order and with the header of the file.
pub(super) struct Arranged<'a> {
    header: Vec<u8>,
    tensors: Vec<Tensor<'a>>,
}

impl<'a> Arranged<'a> {
    /// Large elements first, as the format requires, so that all of them are aligned.
    pub(super) fn new(folder: &Path, tensors: &[Tensor<'a>]) -> Result<Self> {
        let refuse = |name: &str, problem: String| {
            Error::file(folder, format!("tensor `{name}`: {problem}"), "nothing was written; give other tensors")
        };
        let mut tensors = tensors.to_vec();
        tensors.sort_by(|one, other| other.dtype.cmp(&one.dtype).then(one.name.cmp(other.name)));
        let (mut names, mut infos, mut end) = (BTreeSet::new(), Vec::new(), 0);
        for Tensor { name, dtype, shape, bytes } in &tensors {
            if !names.insert(*name) || *name == "__metadata__" {
                return Err(refuse(name, "this name is taken".into()));
            }
            let start = end;
            end += bytes.len();
            let info = TensorInfo { dtype: *dtype, shape: shape.to_vec(), data_offsets: (start, end) };
            let alone = TensorInfo { data_offsets: (0, bytes.len()), ..info.clone() };
            Metadata::new(None, vec![((*name).to_owned(), alone)])
                .map_err(|_| refuse(name, format!("{} bytes are not {shape:?} of {dtype:?}", bytes.len())))?;
            infos.push(((*name).to_owned(), info));
        }
        let metadata = Metadata::new(None, infos).map_err(|error| refuse("*", error.to_string()))?;
        let mut header = serde_json::to_vec(&metadata).map_err(|error| refuse("*", error.to_string()))?;
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok(Self { header, tensors })
    }

    pub(super) fn write(&self, file: &mut dyn Write) -> io::Result<()> {
        file.write_all(&(self.header.len() as u64).to_le_bytes())?;
        file.write_all(&self.header)?;
        self.tensors.iter().try_for_each(|tensor| file.write_all(tensor.bytes))
    }
}

/// The content of a file of tensors.
#[derive(Debug)]
pub(super) struct TensorFile {
    bytes: Vec<u8>,
    start: usize,
    metadata: Metadata,
}

impl TensorFile {
    pub(super) fn new(file: &Path, bytes: Vec<u8>) -> Result<Self> {
        let (header, metadata) = SafeTensors::read_metadata(&bytes)
            .map_err(|error| Error::file(file, format!("header: {error}"), DAMAGED))?;
        Ok(Self { start: 8 + header, bytes, metadata })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    pub(super) fn tensor<'a>(&'a self, name: &'a str) -> Option<Tensor<'a>> {
        let TensorInfo { dtype, shape, data_offsets: (start, end) } = self.metadata.info(name)?;
        let bytes = self.bytes.get(self.start + start..self.start + end)?;
        Some(Tensor { name, dtype: *dtype, shape, bytes })
    }
}
