//! What the two versions of zarr say about an array, in one form.
//!
//! Both are JSON. Whatever is not understood here is refused rather than skipped, because it would change voxels.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{codec::Chain, number, v2, v3};
use crate::{
    Extent, VolumeError,
    format::{
        DAMAGED,
        dtype::Dtype,
        layout::{Axis, VolumeLayout, ZarrStyle},
    },
};

/// The longest file of metadata that is read; attributes of images have some kilobytes.
const LONGEST: u64 = 1 << 26;
/// The most bytes of a chunk, which is in memory as a whole.
const LARGEST_CHUNK: u64 = 1 << 32;

/// How the chunks inside a shard are found and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sharding {
    /// The size of the chunks inside.
    pub(crate) chunk: Extent,
    /// Whether the index is before the chunks rather than behind them.
    pub(crate) index_first: bool,
    /// Whether the index has a checksum.
    pub(crate) index_checksum: bool,
}

/// How the names of chunks are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) separator: char,
    /// Whether names begin with a `c`, as in version 3.
    pub(crate) prefix: bool,
}

impl Keys {
    /// The file of a chunk or shard.
    pub(crate) fn file(self, folder: &Path, at: &[u64]) -> PathBuf {
        let numbers: Vec<String> =
            self.prefix.then(|| "c".to_owned()).into_iter().chain(at.iter().map(u64::to_string)).collect();
        folder.join(numbers.join(&self.separator.to_string()))
    }
}

/// What is known about an array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Metadata {
    pub(crate) version: u8,
    pub(crate) shape: Extent,
    pub(crate) dtype: Dtype,
    /// The size of what is in one file: a chunk, or a shard.
    pub(crate) grid: Extent,
    pub(crate) sharding: Option<Sharding>,
    /// The steps of the chunks, inside shards where there are any.
    pub(crate) chain: Chain,
    pub(crate) keys: Keys,
    /// The bytes of a voxel that was never written.
    pub(crate) fill: Vec<u8>,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) attributes: Map<String, Value>,
}

impl Metadata {
    /// Reads that of the array in a folder; nothing if it has no array.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, VolumeError> {
        let file = folder.join("zarr.json");
        if let Some(json) = read_json(&file)? {
            let array = json.get("node_type").and_then(Value::as_str) == Some("array");
            return array
                .then(|| v3::parse(&json))
                .transpose()
                .and_then(|found| found.map(Self::checked).transpose())
                .map_err(|refusal| refusal.at(&file));
        }
        let file = folder.join(".zarray");
        let Some(json) = read_json(&file)? else { return Ok(None) };
        let attributes = read_json(&folder.join(".zattrs"))?;
        v2::parse(&json, attributes).and_then(Self::checked).map(Some).map_err(|refusal| refusal.at(&file))
    }

    fn checked(self) -> Result<Self, Refusal> {
        let axes = self.shape.axes();
        let chunk = self.sharding.as_ref().map_or(&self.grid, |sharding| &sharding.chunk);
        if self.grid.axes() != axes || chunk.axes() != axes {
            return Err(Refusal::damaged(format!("its chunks have not {axes} axes as the array has")));
        }
        if self.grid.sizes().iter().zip(chunk.sizes()).any(|(shard, chunk)| shard % chunk != 0) {
            return Err(Refusal::damaged(format!("shards of {} do not consist of chunks of {chunk}", self.grid)));
        }
        let bytes = |extent: &Extent| extent.voxels().saturating_mul(self.dtype.size() as u64);
        // The index of a shard is in memory too, with 16 bytes for every chunk.
        let index = (self.grid.voxels() / chunk.voxels()).saturating_mul(16);
        if bytes(chunk).max(index) > LARGEST_CHUNK {
            let problem = format!("a chunk or index of {} bytes is too large", bytes(chunk).max(index));
            return Err(Refusal { problem, hint: "make the array with chunks of at most 4 GiB".to_owned() });
        }
        if self.chain.order.as_ref().is_some_and(|order| !is_order(order, axes)) {
            return Err(Refusal::damaged(format!("it transposes axes as {:?}", self.chain.order)));
        }
        Ok(self)
    }

    /// The metadata of a new array.
    pub(crate) fn new(layout: &VolumeLayout, style: ZarrStyle) -> Result<Self, VolumeError> {
        let whole = || layout.shape.clone();
        let chunk = layout.chunk.clone().unwrap_or_else(whole);
        let shard = layout.shard.clone().filter(|_| style.version == 3);
        let sharding =
            shard.as_ref().map(|_| Sharding { chunk: chunk.clone(), index_first: false, index_checksum: true });
        let made = Self {
            version: style.version,
            shape: whole(),
            dtype: layout.dtype,
            grid: shard.unwrap_or(chunk),
            sharding,
            chain: match style.version {
                2 => Chain::new(layout.compression, false),
                _ => Chain::new(v3::nearest(layout.compression), layout.checksum),
            },
            keys: Keys { separator: style.separator, prefix: style.version == 3 },
            fill: layout.fill.clone(),
            names: Some(layout.axes.iter().map(|axis| axis.name.clone()).collect()),
            attributes: layout.attributes.clone(),
        };
        made.checked().map_err(|refusal| VolumeError::Invalid(refusal.problem))
    }

    /// The same for whoever uses the volume.
    pub(crate) fn layout(&self) -> VolumeLayout {
        let chunk = self.sharding.as_ref().map_or(&self.grid, |sharding| &sharding.chunk).clone();
        let plain = VolumeLayout::new(self.shape.clone(), self.dtype);
        let named = |names: &Vec<String>| names.iter().map(|name| Axis::named(name)).collect();
        VolumeLayout {
            chunk: Some(chunk),
            shard: self.sharding.as_ref().map(|_| self.grid.clone()),
            compression: self.chain.compression(),
            checksum: self.chain.checksum(),
            fill: self.fill.clone(),
            axes: self.names.as_ref().map_or(plain.axes, named),
            attributes: self.attributes.clone(),
            zarr: Some(ZarrStyle { version: self.version, ome: false, levels: 1, separator: self.keys.separator }),
            ..plain
        }
    }

    /// The files that describe a new array, by their names.
    pub(crate) fn files(&self) -> Vec<(&'static str, Value)> {
        if self.version == 2 { v2::files(self) } else { v3::files(self) }
    }
}

/// What is wrong with metadata, and what to do about it, before it is known where.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) problem: String,
    pub(crate) hint: String,
}

impl Refusal {
    /// Metadata that make no sense.
    pub(crate) fn damaged(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), hint: DAMAGED.to_owned() }
    }

    /// Something that exists in zarr and not here.
    pub(crate) fn unknown(what: &str, name: &str, known: &str) -> Self {
        let hint = format!("write the array again with one of {known}");
        Self { problem: format!("its {what} `{name}` is not known here"), hint }
    }

    pub(crate) fn at(self, file: &Path) -> VolumeError {
        VolumeError::format(file, self.problem, self.hint)
    }
}

fn is_order(order: &[usize], axes: usize) -> bool {
    order.len() == axes && (0..axes).all(|axis| order.contains(&axis))
}

/// The sizes in a list of numbers.
pub(crate) fn extent(value: &Value, what: &str) -> Result<Extent, Refusal> {
    let sizes = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    let sizes = sizes.ok_or_else(|| Refusal::damaged(format!("its {what} is not a list of sizes")))?;
    Extent::new(sizes).map_err(|error| Refusal::damaged(format!("its {what}: {error}")))
}

/// The bytes of the fill value.
pub(crate) fn fill(value: &Value, dtype: Dtype) -> Result<Vec<u8>, Refusal> {
    number::to_bytes(value, dtype).ok_or_else(|| Refusal::damaged(format!("its fill value {value} is not a {dtype}")))
}

/// The type of voxels that cannot be used.
pub(crate) fn unknown_dtype(name: &Value) -> Refusal {
    let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
    Refusal::unknown("type of voxels", &name, &Dtype::ALL.map(Dtype::name).join(", "))
}

/// Reads a file of JSON; nothing if it is not there.
pub(crate) fn read_json(file: &Path) -> Result<Option<Value>, VolumeError> {
    let length = match file.metadata() {
        Ok(found) => found.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(VolumeError::Io { path: file.to_owned(), error }),
    };
    if length > LONGEST {
        return Err(VolumeError::format(file, format!("{length} bytes are too many for metadata"), DAMAGED));
    }
    let text = std::fs::read(file).map_err(VolumeError::io(file))?;
    let parsed =
        serde_json::from_slice(&text).map_err(|error| VolumeError::format(file, error.to_string(), DAMAGED))?;
    Ok(Some(parsed))
}
