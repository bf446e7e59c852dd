//! What is known about a volume besides its voxels, whatever the format.
//!
//! A format fills in what it knows and takes what it can keep, so that an output is made from the layout of its input:
//! the same chunks, compression, voxel size and axes, with another type or number of channels where the network has
//! those.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::dtype::Dtype;
use crate::{Extent, VolumeError};

/// The edge of chunks along the last three axes where nothing else is known.
const EDGE: u64 = 64;

/// What an axis is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AxisKind {
    /// A direction in space.
    Space,
    /// Values of one place side by side.
    Channel,
    /// Time.
    Time,
}

/// One axis of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// Its name, as in `z`.
    pub name: String,
    /// What it is for.
    pub kind: AxisKind,
    /// The unit of `scale` and `offset`, by its full name, as in `micrometer`.
    pub unit: Option<String>,
    /// From one voxel to the next.
    pub scale: f64,
    /// Where the centre of the first voxel is.
    pub offset: f64,
}

impl Axis {
    /// An axis of which the name is known and nothing else.
    pub fn named(name: &str) -> Self {
        let kind = match name.to_ascii_lowercase().as_str() {
            "c" | "channel" | "channels" | "s" => AxisKind::Channel,
            "t" | "time" => AxisKind::Time,
            _ => AxisKind::Space,
        };
        Self { name: name.to_owned(), kind, unit: None, scale: 1.0, offset: 0.0 }
    }

    /// The usual names of so many axes: `z, y, x` are last, and channels and time come before them.
    pub fn usual(count: usize) -> Vec<Self> {
        const USUAL: [&str; 5] = ["t", "c", "z", "y", "x"];
        let name = |axis: usize| match (axis + USUAL.len()).checked_sub(count) {
            Some(place) => USUAL[place].to_owned(),
            None => format!("dim_{axis}"),
        };
        (0..count).map(|axis| Self::named(&name(axis))).collect()
    }
}

/// How chunks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip.
    Gzip(u32),
    /// zlib, called deflate in TIFF.
    Zlib(u32),
    /// Zstandard, with or without a checksum of its own.
    Zstd(i32, bool),
    /// LZ4, as zarr v2 writes it.
    Lz4,
    /// Blosc, which reorders bytes or bits before it compresses.
    Blosc(Blosc),
}

/// The settings of Blosc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blosc {
    /// What compresses.
    pub inner: BloscInner,
    /// How hard it tries, from 0 to 9.
    pub level: u32,
    /// What is reordered before.
    pub shuffle: Shuffle,
}

/// The compressors inside Blosc that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BloscInner {
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
    /// zlib.
    Zlib,
}

/// What is reordered before compression, so that similar bytes are neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shuffle {
    /// Nothing.
    None,
    /// The first bytes of all voxels, then the second ones, and so on.
    Bytes,
    /// The same with bits.
    Bits,
}

/// What only zarr has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZarrStyle {
    /// 2 or 3.
    pub version: u8,
    /// Whether the array is a level of an OME-Zarr image.
    pub ome: bool,
    /// How many levels the image has, the array itself included.
    pub levels: usize,
    /// Between the numbers in the names of chunks.
    pub separator: char,
}

impl Default for ZarrStyle {
    fn default() -> Self {
        Self { version: 3, ome: false, levels: 1, separator: '/' }
    }
}

/// What is known about a volume besides its voxels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeLayout {
    /// The size along each axis, slowest first.
    pub shape: Extent,
    /// The type of the voxels.
    pub dtype: Dtype,
    /// The size of the pieces that are compressed each on its own; nothing where any region can be written.
    pub chunk: Option<Extent>,
    /// The size of the files that hold several chunks.
    pub shard: Option<Extent>,
    /// How chunks are compressed.
    pub compression: Compression,
    /// Whether every chunk is followed by a CRC-32C of its bytes.
    pub checksum: bool,
    /// The bytes of a voxel that was never written, in this machine's order.
    pub fill: Vec<u8>,
    /// Names, units, voxel size.
    pub axes: Vec<Axis>,
    /// Whatever else the file says, by the names that it uses.
    pub attributes: Map<String, Value>,
    /// What only zarr has.
    pub zarr: Option<ZarrStyle>,
}

impl VolumeLayout {
    /// A volume about which nothing but its shape and type is known.
    pub fn new(shape: Extent, dtype: Dtype) -> Self {
        let axes = Axis::usual(shape.axes());
        Self {
            shape,
            dtype,
            chunk: None,
            shard: None,
            compression: Compression::None,
            checksum: false,
            fill: vec![0; dtype.size()],
            axes,
            attributes: Map::new(),
            zarr: None,
        }
    }

    /// What one writer must write as a whole: a shard, a chunk, or a voxel.
    pub fn unit(&self) -> Vec<u64> {
        match self.shard.as_ref().or(self.chunk.as_ref()) {
            Some(unit) => unit.sizes().to_vec(),
            None => vec![1; self.shape.axes()],
        }
    }

    /// How many bytes all voxels take.
    pub fn bytes(&self) -> u64 {
        self.shape.voxels().saturating_mul(self.dtype.size() as u64)
    }

    /// The same with voxels of another type, which are zero until they are written.
    pub fn with_dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self.fill = vec![0; dtype.size()];
        self
    }

    /// The same with this many channels, in chunks of one, or without an axis for them. A new axis stands before those
    /// of space.
    pub fn with_channels(mut self, channels: Option<u64>) -> Result<Self, VolumeError> {
        let there = self.axes.iter().position(|axis| axis.kind == AxisKind::Channel);
        let change = |extent: &Extent, size: u64| {
            let mut sizes = extent.sizes().to_vec();
            match (there, channels) {
                (Some(axis), Some(_)) => sizes[axis] = size,
                (Some(axis), None) => drop(sizes.remove(axis)),
                (None, Some(_)) => sizes.insert(self.first_of_space(), size),
                (None, None) => {}
            }
            Extent::new(sizes)
        };
        let shape = change(&self.shape, channels.unwrap_or(1))?;
        let chunk = self.chunk.as_ref().map(|chunk| change(chunk, 1)).transpose()?;
        let shard = self.shard.as_ref().map(|shard| change(shard, 1)).transpose()?;
        match (there, channels) {
            (Some(axis), None) => drop(self.axes.remove(axis)),
            (None, Some(_)) => self.axes.insert(self.first_of_space(), Axis::named("c")),
            _ => {}
        }
        Ok(Self { shape, chunk, shard, ..self })
    }

    /// The same with chunks, where there are none yet: cubes that take about a megabyte.
    pub fn with_some_chunks(mut self) -> Self {
        if self.chunk.is_none() {
            let axes = self.shape.axes();
            let size = |axis: usize, size: u64| if axis + 3 >= axes { size.min(EDGE) } else { 1 };
            let sizes: Vec<u64> = self.shape.sizes().iter().enumerate().map(|(axis, &s)| size(axis, s)).collect();
            self.chunk = Extent::new(sizes).ok();
            self.compression = Compression::Zstd(1, false);
        }
        self
    }

    fn first_of_space(&self) -> usize {
        self.axes.iter().position(|axis| axis.kind == AxisKind::Space).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[u64]) -> VolumeLayout {
        VolumeLayout::new(Extent::new(shape).unwrap(), Dtype::UInt16)
    }

    fn names(layout: &VolumeLayout) -> Vec<&str> {
        layout.axes.iter().map(|axis| axis.name.as_str()).collect()
    }

    #[test]
    fn channels_come_and_go() {
        let plain = layout(&[100, 70, 80]).with_some_chunks();
        let with = plain.clone().with_channels(Some(4)).unwrap();
        assert_eq!(with.shape.sizes(), [4, 100, 70, 80]);
        assert_eq!(with.unit(), [1, 64, 64, 64]);
        assert_eq!(names(&with), ["c", "z", "y", "x"]);
        assert_eq!(with.clone().with_channels(Some(2)).unwrap().shape.sizes(), [2, 100, 70, 80]);
        assert_eq!(with.with_channels(None).unwrap(), plain);
    }

    #[test]
    fn a_new_axis_stands_behind_time() {
        let mut timed = layout(&[3, 10, 10, 10]);
        timed.axes[0] = Axis::named("t");
        let with = timed.with_channels(Some(2)).unwrap();
        assert_eq!(names(&with), ["t", "c", "z", "y", "x"]);
    }

    #[test]
    fn names_fit_any_number_of_axes() {
        assert_eq!(names(&layout(&[1, 2])), ["y", "x"]);
        assert_eq!(names(&layout(&[1; 6])), ["dim_0", "t", "c", "z", "y", "x"]);
    }

    #[test]
    fn without_chunks_every_voxel_is_a_unit() {
        assert_eq!(layout(&[5, 6]).unit(), [1, 1]);
        assert_eq!(layout(&[5, 600]).with_some_chunks().unit(), [5, 64]);
    }
}
