//! What is kept between the stages of numbering: a file for each tile, and one with the names of all objects.
//!
//! A tile's file has the number of its objects, the labels and classes of the layers at its faces, so that joining reads
//! nothing else, and all labels, compressed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use sirtaki_volume::{VolumeError, checksum, grid::plan::Tile, stitch};

use super::numbers;
use crate::sink::to_bytes;

/// Bytes of a label, and of a class.
const WIDTH: u64 = 4;
/// Bytes before the first layer.
const HEAD: u64 = 8;
/// The fastest compression: labels are nearly all alike.
const LEVEL: i32 = 1;
/// What to do about a file that is not what was written.
const DAMAGED: &str = "delete the folder of the job to begin again";

/// The two ends of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
}

/// The files of a job.
pub(super) struct Kept {
    pub(super) folder: PathBuf,
}

impl Kept {
    fn tile(&self, number: u64) -> PathBuf {
        self.folder.join(format!("labels-{number}"))
    }

    pub(super) fn names(&self) -> PathBuf {
        self.folder.join("names")
    }

    /// Keeps the objects of a tile; returns the checksum of their labels.
    pub(super) fn write(&self, tile: &Tile, objects: u64, labels: &[u32], classes: &[u32]) -> Result<u64, VolumeError> {
        let mut bytes = objects.to_ne_bytes().to_vec();
        for axis in 0..tile.core.axes() {
            for end in [End::First, End::Last] {
                for values in [labels, classes] {
                    layer(values, tile.core.size(), axis, end).for_each(|value| bytes.extend(value.to_ne_bytes()));
                }
            }
        }
        let path = self.tile(tile.number);
        let all = to_bytes(labels, |label| label.to_ne_bytes());
        bytes.extend(zstd::bulk::compress(&all, LEVEL).map_err(VolumeError::io(&path))?);
        write_whole(&path, &bytes)?;
        Ok(checksum::of(&all))
    }

    /// How many objects a tile has.
    pub(super) fn objects(&self, tile: u64) -> Result<u64, VolumeError> {
        let path = self.tile(tile);
        let mut count = [0; HEAD as usize];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut count, 0));
        read.map_err(VolumeError::io(&path))?;
        Ok(u64::from_ne_bytes(count))
    }

    /// Labels and classes of the layer at one end of a tile.
    pub(super) fn face(&self, tile: &Tile, axis: usize, end: End) -> Result<(Vec<u64>, Vec<u32>), VolumeError> {
        let path = self.tile(tile.number);
        let before: u64 = (0..axis).map(|axis| 2 * face(tile, axis)).sum();
        let at = HEAD + 2 * WIDTH * (before + if end == End::Last { face(tile, axis) } else { 0 });
        let mut bytes = vec![0; (2 * WIDTH * face(tile, axis)) as usize];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut bytes, at));
        read.map_err(VolumeError::io(&path))?;
        let (labels, classes) = bytes.split_at(bytes.len() / 2);
        Ok((numbers(labels).map(u64::from).collect(), numbers(classes).collect()))
    }

    /// All labels of a tile, which must have this checksum.
    pub(super) fn labels(&self, tile: &Tile, sum: Option<u64>) -> Result<Vec<u32>, VolumeError> {
        let path = self.tile(tile.number);
        let bytes = fs::read(&path).map_err(VolumeError::io(&path))?;
        let faces: u64 = (0..tile.core.axes()).map(|axis| 2 * face(tile, axis)).sum();
        let damaged = || VolumeError::format(&path, "the labels of a tile are damaged", DAMAGED);
        let packed = bytes.get((HEAD + 2 * WIDTH * faces) as usize..).ok_or_else(damaged)?;
        let size = (tile.core.voxels() * WIDTH) as usize;
        let labels = zstd::bulk::decompress(packed, size).map_err(|_| damaged())?;
        match labels.len() == size && sum == Some(checksum::of(&labels)) {
            true => Ok(numbers(&labels).collect()),
            false => Err(damaged()),
        }
    }

    /// Writes the names of all objects, and where those of each tile begin; returns their checksum.
    pub(super) fn write_names(&self, offsets: &[(u64, u64)], names: &stitch::Names) -> Result<u64, VolumeError> {
        let head = [names.objects(), offsets.len() as u64].into_iter();
        let head = head.chain(offsets.iter().flat_map(|(tile, offset)| [*tile, *offset]));
        let mut bytes: Vec<u8> = head.flat_map(u64::to_ne_bytes).collect();
        bytes.extend(to_bytes(names.list(), |name| name.to_ne_bytes()));
        write_whole(&self.names(), &bytes)?;
        Ok(checksum::of(&bytes))
    }
}

/// The names of all objects, in a file of which a tile needs a part.
pub(super) struct Names {
    file: File,
    path: PathBuf,
    pub(super) objects: u64,
    offsets: BTreeMap<u64, u64>,
    begin: u64,
}

impl Names {
    pub(super) fn open(path: &Path) -> Result<Self, VolumeError> {
        let open = || {
            let file = File::open(path)?;
            let mut head = [0; 16];
            file.read_exact_at(&mut head, 0)?;
            let words = |bytes: &[u8]| -> Vec<u64> {
                bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
            };
            let (objects, tiles) = (words(&head)[0], words(&head)[1]);
            if tiles > file.metadata()?.len() / 16 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut bytes = vec![0; tiles as usize * 16];
            file.read_exact_at(&mut bytes, 16)?;
            let offsets = words(&bytes).as_chunks::<2>().0.iter().map(|[tile, offset]| (*tile, *offset)).collect();
            Ok(Self { file, path: path.to_owned(), objects, offsets, begin: 16 + tiles * 16 })
        };
        open().map_err(VolumeError::io(path))
    }

    /// The names of a tile's objects, which are so many.
    pub(super) fn of(&self, tile: u64, objects: u64) -> Result<Vec<u32>, VolumeError> {
        let offset = self.offsets.get(&tile).copied().unwrap_or(0);
        let mut bytes = vec![0; (objects * WIDTH) as usize];
        let read = self.file.read_exact_at(&mut bytes, self.begin + offset * WIDTH);
        read.map_err(VolumeError::io(&self.path))?;
        Ok(numbers(&bytes).collect())
    }
}

/// Voxels of a layer across an axis.
fn face(tile: &Tile, axis: usize) -> u64 {
    tile.core.voxels() / tile.core.size()[axis]
}

/// The first or the last layer of an array across an axis.
fn layer<'a>(values: &'a [u32], sizes: &[u64], axis: usize, end: End) -> impl Iterator<Item = &'a u32> {
    let inner = sizes[axis + 1..].iter().product::<u64>() as usize;
    let (block, last) = (inner * sizes[axis] as usize, inner * (sizes[axis] as usize - 1));
    let from = if end == End::Last { last } else { 0 };
    values.chunks(block).flat_map(move |block| &block[from..from + inner])
}

/// Writes a whole file that survives a power cut, or none.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), VolumeError> {
    let new = path.with_extension(std::process::id().to_string());
    let write = || {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&new, path)
    };
    write().map_err(VolumeError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_the_ends_of_an_axis() {
        let values: Vec<u32> = (0..24).collect();
        let take = |axis, end| layer(&values, &[2, 3, 4], axis, end).copied().collect::<Vec<_>>();
        assert_eq!(take(0, End::Last), (12..24).collect::<Vec<_>>());
        assert_eq!(take(1, End::First), [0, 1, 2, 3, 12, 13, 14, 15]);
        assert_eq!(take(2, End::Last), [3, 7, 11, 15, 19, 23]);
    }
}
