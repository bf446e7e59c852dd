//! NIfTI-1 and NIfTI-2 with voxels in the same file, and gzip around them.
//!
//! The first axis of NIfTI is the fastest; here it is the last one, so that voxels need not be moved. Voxels that the
//! file wants scaled are read as `float32` with their values. A compressed file has no places to read at, so it is
//! unpacked once into a file without a name beside it; such files are not written.

mod header;

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use flate2::read::MultiGzDecoder;

use super::{
    Choices, Dtype, Opened, Volume,
    flat::{Arrangement, Flat},
    layout::{Compression, VolumeLayout},
    place::OutputPlace,
    read_only,
    value::{push_value, value},
};
use crate::{Region, VolumeError};

/// Whether a file starts like NIfTI, or is compressed and named so.
pub(super) fn recognise(path: &Path, head: &[u8]) -> bool {
    header::recognise(head) || head.starts_with(&[0x1F, 0x8B]) && path.to_string_lossy().ends_with(".nii.gz")
}

pub(super) fn open(path: &Path, _choices: &Choices) -> Opened {
    let file = File::open(path).map_err(VolumeError::io(path))?;
    let mut head = [0; 2];
    super::read_up_to(&file, &mut head, 0).map_err(VolumeError::io(path))?;
    let file = if head == [0x1F, 0x8B] { unpack(path, file)? } else { file };
    let read = examine(path, &file)?;
    let arrangement = Arrangement { offset: read.offset, big_endian: read.big_endian, first_fastest: false };
    let flat = Flat::over(path, file, read.layout, arrangement, None)?;
    Ok(match read.scaling {
        None => Box::new(flat),
        Some((slope, shift)) => {
            let layout = flat.layout().clone().with_dtype(Dtype::Float32);
            Box::new(Scaled { flat, layout, slope, shift, path: path.to_owned() })
        }
    })
}

pub(super) fn create(place: OutputPlace, layout: VolumeLayout) -> Opened {
    if place.path().extension().is_some_and(|extension| extension == "gz") {
        let problem = "a compressed NIfTI file cannot be written in pieces";
        return Err(VolumeError::format(
            place.path(),
            problem,
            "write `.nii`, and compress it with gzip when it is complete",
        ));
    }
    let header = header::write(&layout, place.path())?;
    let fill = vec![0; layout.dtype.size()];
    let layout =
        VolumeLayout { chunk: None, shard: None, compression: Compression::None, checksum: false, fill, ..layout };
    Ok(Box::new(Flat::create(place, layout, &header, &[])?))
}

pub(super) fn resume(place: OutputPlace, _choices: &Choices) -> Opened {
    let path = place.unfinished().to_owned();
    let file = File::open(&path).map_err(VolumeError::io(&path))?;
    let read = examine(&path, &file)?;
    let arrangement = Arrangement { offset: read.offset, big_endian: read.big_endian, first_fastest: false };
    Ok(Box::new(Flat::resume(place, read.layout, arrangement)?))
}

fn examine(path: &Path, file: &File) -> Result<header::Read, VolumeError> {
    let mut bytes = [0; header::LONGEST];
    super::read_up_to(file, &mut bytes, 0).map_err(VolumeError::io(path))?;
    header::parse(&bytes, path)
}

/// Unpacks a file into one without a name.
fn unpack(path: &Path, packed: File) -> Result<File, VolumeError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unpacked = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let run = || {
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&unpacked)?;
        std::fs::remove_file(&unpacked)?;
        io::copy(&mut MultiGzDecoder::new(io::BufReader::new(packed)), &mut file)?;
        Ok(file)
    };
    run().map_err(|error: io::Error| {
        let problem = format!("it cannot be unpacked into the folder that it is in: {error}");
        VolumeError::format(path, problem, "unpack it with gunzip, and look whether it is whole")
    })
}

/// Voxels that stand for other values.
#[derive(Debug)]
struct Scaled {
    path: std::path::PathBuf,
    flat: Flat,
    layout: VolumeLayout,
    slope: f64,
    shift: f64,
}

impl Volume for Scaled {
    fn layout(&self) -> &VolumeLayout {
        &self.layout
    }

    fn read(&self, region: &Region, out: &mut [u8]) -> Result<(), VolumeError> {
        super::check_region(&self.layout, region, out.len())?;
        let dtype = self.flat.layout().dtype;
        let mut voxels = vec![0; region.voxels() as usize * dtype.size()];
        self.flat.read(region, &mut voxels)?;
        let mut scaled = Vec::with_capacity(out.len());
        for voxel in voxels.chunks_exact(dtype.size()) {
            push_value(value(voxel, dtype) * self.slope + self.shift, Dtype::Float32, &mut scaled);
        }
        out.copy_from_slice(&scaled);
        Ok(())
    }

    fn write(&self, _: &Region, _: &[u8]) -> Result<(), VolumeError> {
        Err(read_only(&self.path))
    }

    fn finish(&self) -> Result<(), VolumeError> {
        Err(read_only(&self.path))
    }
}
