//! Voxels that lie in one file in their order, behind a header: what npy, raw, MRC and NIfTI files, and TIFF files
//! without compression, have in common.
//!
//! Read and written at positions, without a mapping into memory: a file that is cut short by somebody else is then an
//! error and not a signal, and memory is used for nothing but the regions asked for.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{
    Volume, check_region,
    layout::VolumeLayout,
    place::OutputPlace,
    window::{swap_bytes, transpose, try_each_position},
};
use crate::{Region, VolumeError};

/// How voxels lie in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Arrangement {
    /// Where the first voxel is.
    pub(crate) offset: u64,
    /// Whether the bytes of a voxel are big endian.
    pub(crate) big_endian: bool,
    /// Whether the first axis is the fastest one, as in Fortran.
    pub(crate) first_fastest: bool,
}

/// A file with nothing but a header and voxels in their order.
#[derive(Debug)]
pub(crate) struct Flat {
    path: PathBuf,
    file: File,
    layout: VolumeLayout,
    arrangement: Arrangement,
    place: Option<OutputPlace>,
}

impl Flat {
    /// A file that is there. It must be long enough for what its header says.
    pub(crate) fn open(path: &Path, layout: VolumeLayout, arrangement: Arrangement) -> Result<Self, VolumeError> {
        let file = File::open(path).map_err(VolumeError::io(path))?;
        Self::over(path, file, layout, arrangement, None)
    }

    /// An unfinished output that is there.
    pub(crate) fn resume(
        place: OutputPlace,
        layout: VolumeLayout,
        arrangement: Arrangement,
    ) -> Result<Self, VolumeError> {
        let path = place.unfinished().to_owned();
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(VolumeError::io(&path))?;
        Self::over(&path, file, layout, arrangement, Some(place))
    }

    /// A new output: a header, voxels that are zero, and what comes behind them.
    pub(crate) fn create(
        place: OutputPlace,
        layout: VolumeLayout,
        header: &[u8],
        behind: &[u8],
    ) -> Result<Self, VolumeError> {
        let path = place.unfinished().to_owned();
        let arrangement = Arrangement { offset: header.len() as u64, ..Arrangement::default() };
        let length = arrangement.offset.saturating_add(layout.bytes()).saturating_add(behind.len() as u64);
        let write = || {
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
            file.set_len(length)?;
            file.write_all_at(behind, length - behind.len() as u64)?;
            file.write_all_at(header, 0)?;
            Ok(file)
        };
        let file = write().map_err(VolumeError::io(&path))?;
        Ok(Self { path, file, layout, arrangement, place: Some(place) })
    }

    /// A file that is open.
    pub(crate) fn over(
        path: &Path,
        file: File,
        layout: VolumeLayout,
        arrangement: Arrangement,
        place: Option<OutputPlace>,
    ) -> Result<Self, VolumeError> {
        let length = file.metadata().map_err(VolumeError::io(path))?.len();
        let needed = arrangement.offset.saturating_add(layout.bytes());
        if length < needed {
            let VolumeLayout { shape, dtype, .. } = &layout;
            let problem = format!("{length} bytes, but {shape} voxels of {dtype} end at byte {needed}");
            return Err(VolumeError::format(path, problem, super::TRUNCATED));
        }
        Ok(Self { path: path.to_owned(), file, layout, arrangement, place })
    }

    /// Calls `action` with the place in the file and in memory of every run of a region.
    fn each_run(
        &self,
        region: &Region,
        mut action: impl FnMut(u64, std::ops::Range<usize>) -> io::Result<()>,
    ) -> Result<(), VolumeError> {
        let (width, shape) = (self.layout.dtype.size() as u64, self.shape_in_file());
        let (start, size) = (region.start(), region.size());
        // Axes that are whole are one run with the axis before them.
        let mut inner = size.len() - 1;
        while inner > 0 && size[inner] == shape[inner] {
            inner -= 1;
        }
        let below = |axis: usize| shape[axis + 1..].iter().product::<u64>() * width;
        let steps: Vec<u64> = (0..size.len()).map(below).collect();
        let base: u64 = start.iter().zip(&steps).map(|(start, step)| start * step).sum();
        let run = (size[inner] * steps[inner]) as usize;
        let mut done = 0;
        let ended = try_each_position(&size[..inner], |position| {
            let at = base + position.iter().zip(&steps).map(|(at, step)| at * step).sum::<u64>();
            action(self.arrangement.offset + at, done..done + run)?;
            done += run;
            Ok(())
        });
        ended.map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let problem = format!("it ends before the voxels of {region} do");
                VolumeError::format(&self.path, problem, super::TRUNCATED)
            }
            _ => VolumeError::Io { path: self.path.clone(), error },
        })
    }

    fn shape_in_file(&self) -> Vec<u64> {
        let sizes = self.layout.shape.sizes().iter().copied();
        if self.arrangement.first_fastest { sizes.rev().collect() } else { sizes.collect() }
    }

    /// Reads in the order of the file.
    fn read_runs(&self, region: &Region, out: &mut [u8]) -> Result<(), VolumeError> {
        self.each_run(region, |at, part| self.file.read_exact_at(&mut out[part], at))?;
        if self.arrangement.big_endian {
            swap_bytes(out, self.layout.dtype.size());
        }
        Ok(())
    }
}

impl Volume for Flat {
    fn layout(&self) -> &VolumeLayout {
        &self.layout
    }

    fn read(&self, region: &Region, out: &mut [u8]) -> Result<(), VolumeError> {
        check_region(&self.layout, region, out.len())?;
        if region.is_empty() {
            return Ok(());
        }
        if !self.arrangement.first_fastest {
            return self.read_runs(region, out);
        }
        let turn = |sizes: &[u64]| sizes.iter().rev().copied().collect::<Vec<_>>();
        let turned = Region::new(turn(region.start()), turn(region.size()))?;
        let mut bytes = vec![0; out.len()];
        self.read_runs(&turned, &mut bytes)?;
        let order: Vec<usize> = (0..region.axes()).rev().collect();
        out.copy_from_slice(&transpose(&bytes, turned.size(), &order, self.layout.dtype.size()));
        Ok(())
    }

    fn write(&self, region: &Region, bytes: &[u8]) -> Result<(), VolumeError> {
        check_region(&self.layout, region, bytes.len())?;
        if self.place.is_none() {
            return Err(super::read_only(&self.path));
        }
        if region.is_empty() {
            return Ok(());
        }
        self.each_run(region, |at, part| self.file.write_all_at(&bytes[part], at))
    }

    fn finish(&self) -> Result<(), VolumeError> {
        match &self.place {
            Some(place) => place.finish(),
            None => Err(super::read_only(&self.path)),
        }
    }
}
