//! A new file with compressed pieces, whose lengths are not known before they are written.
//!
//! Until it is complete it is a folder with a file for every piece, so that several processes can write it and another
//! one can continue it; in the end the pieces are put together.

use std::{
    fs::{self, File},
    io::{self, Seek, Write},
    path::Path,
};

use super::pages::PagePlan;
use crate::{
    Extent, Region, VolumeError,
    format::{
        DAMAGED, Volume, check_region, check_units,
        layout::{Compression, VolumeLayout},
        place::OutputPlace,
        window::{copy_shared, fill_box, try_each_cell},
        zlib::{deflate, inflate},
    },
};

const LAYOUT: &str = "layout.json";
/// Tiles where nothing else is known.
const EDGE: u64 = 256;
/// TIFF asks for tiles of multiples of this.
const STEP: u64 = 16;

/// A file that is being made.
#[derive(Debug)]
pub(crate) struct StagedTiff {
    place: OutputPlace,
    plan: PagePlan,
    layout: VolumeLayout,
    level: u32,
}

impl StagedTiff {
    /// Begins a new file.
    pub(crate) fn create(place: OutputPlace, layout: VolumeLayout) -> Result<Self, VolumeError> {
        let staged = Self::new(place, layout)?;
        let text = serde_json::to_string(&staged.layout).map_err(|error| VolumeError::Invalid(error.to_string()))?;
        staged.place.write_file(&staged.place.unfinished().join(LAYOUT), text.as_bytes())?;
        Ok(staged)
    }

    /// Continues a file.
    pub(crate) fn resume(place: OutputPlace) -> Result<Self, VolumeError> {
        let file = place.unfinished().join(LAYOUT);
        let text = fs::read_to_string(&file).map_err(VolumeError::io(&file))?;
        let layout =
            serde_json::from_str(&text).map_err(|error| VolumeError::format(&file, error.to_string(), DAMAGED))?;
        Self::new(place, layout)
    }

    /// A file that is not there yet.
    pub(super) fn new(place: OutputPlace, layout: VolumeLayout) -> Result<Self, VolumeError> {
        let mut plan = PagePlan::new(&layout).ok_or_else(|| super::too_few_axes(place.path()))?;
        let leading = layout.shape.axes() - plan.own;
        let wanted = layout.chunk.as_ref().map(|chunk| (chunk.sizes()[leading], chunk.sizes()[leading + 1]));
        let (rows, columns) = wanted.unwrap_or((EDGE, EDGE));
        plan.tiled = columns.next_multiple_of(STEP) < plan.width;
        plan.piece = match plan.tiled {
            true => (rows.next_multiple_of(STEP), columns.next_multiple_of(STEP)),
            false => (rows.min(plan.height), plan.width),
        };
        plan.deflate = true;
        let mut chunk = vec![1; leading];
        chunk.extend([plan.piece.0, plan.piece.1]);
        chunk.extend((plan.samples > 1).then_some(plan.samples));
        let level = match layout.compression {
            Compression::Zlib(level) | Compression::Gzip(level) => level,
            _ => 6,
        };
        let layout = VolumeLayout {
            chunk: Some(Extent::new(chunk)?),
            shard: None,
            compression: Compression::Zlib(level),
            ..layout
        };
        Ok(Self { place, plan, layout, level })
    }

    /// Where a piece lies in the volume, with what a tile has beyond the end, and the number of its file.
    fn cell(&self, at: &[u64]) -> Result<(Region, String), VolumeError> {
        let unit = self.layout.unit();
        let leading = unit.len() - self.plan.own;
        let start: Vec<u64> = at.iter().zip(&unit).map(|(at, unit)| at * unit).collect();
        let mut size = unit;
        if !self.plan.tiled {
            size[leading] = size[leading].min(self.plan.height - start[leading]);
        }
        let sizes = &self.layout.shape.sizes()[..leading];
        let page = at[..leading].iter().zip(sizes).fold(0, |page, (at, size)| page * size + at);
        let across = self.plan.width.div_ceil(self.plan.piece.1);
        let piece = at[leading] * across + at[leading + 1];
        Ok((Region::new(start, size)?, name(page, piece)))
    }

    /// Puts all pieces together.
    fn assemble(&self, path: &Path) -> io::Result<()> {
        let folder = self.place.unfinished();
        let empty = |rows: u64| {
            let row = self.plan.piece.1 * self.plan.samples * self.plan.dtype.size() as u64;
            deflate(&vec![0; (rows * row) as usize], self.level).map_err(io::Error::other)
        };
        let across = self.plan.width.div_ceil(self.plan.piece.1);
        let mut places = Vec::new();
        let big = self.plan.is_big(self.layout.bytes());
        let head = self.plan.header(big, 0).len() as u64;
        let mut out = io::BufWriter::new(File::create(path)?);
        out.write_all(&vec![0; head as usize])?;
        let mut at = head;
        for page in 0..self.plan.pages {
            for piece in 0..self.plan.pieces() {
                let bytes = match fs::read(folder.join(name(page, piece))) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let rows = match self.plan.tiled {
                            true => self.plan.piece.0,
                            false => self.plan.piece.0.min(self.plan.height - piece / across * self.plan.piece.0),
                        };
                        empty(rows)?
                    }
                    other => other?,
                };
                out.write_all(&bytes)?;
                places.push((at, bytes.len() as u64));
                at += bytes.len() as u64;
            }
        }
        let directories = at.next_multiple_of(8);
        out.write_all(&vec![0; (directories - at) as usize])?;
        let place = |page: u64, piece: u64| places[(page * self.plan.pieces() + piece) as usize];
        out.write_all(&self.plan.directories(big, directories, place))?;
        out.rewind()?;
        out.write_all(&self.plan.header(big, directories))?;
        out.flush()
    }
}

/// The name of the file of a piece.
fn name(page: u64, piece: u64) -> String {
    format!("{page}-{piece}")
}

impl Volume for StagedTiff {
    fn layout(&self) -> &VolumeLayout {
        &self.layout
    }

    fn read(&self, region: &Region, out: &mut [u8]) -> Result<(), VolumeError> {
        check_region(&self.layout, region, out.len())?;
        let width = self.layout.dtype.size();
        try_each_cell(region, &self.layout.unit(), |at, shared| {
            let (cell, name) = self.cell(at)?;
            let file = self.place.unfinished().join(name);
            match fs::read(&file) {
                Ok(bytes) => {
                    let voxels = inflate(&bytes, cell.voxels() as usize * width);
                    let voxels = voxels.map_err(|problem| VolumeError::format(&file, problem, DAMAGED))?;
                    copy_shared(shared, width, (&voxels, &cell), (out, region));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fill_box(out, region.size(), &shared.relative_to(region), &vec![0; width]);
                }
                Err(error) => return Err(VolumeError::Io { path: file, error }),
            }
            Ok(())
        })
    }

    fn write(&self, region: &Region, bytes: &[u8]) -> Result<(), VolumeError> {
        check_region(&self.layout, region, bytes.len())?;
        check_units(&self.layout, region)?;
        let width = self.layout.dtype.size();
        try_each_cell(region, &self.layout.unit(), |at, shared| {
            let (cell, name) = self.cell(at)?;
            let mut voxels = vec![0; cell.voxels() as usize * width];
            copy_shared(shared, width, (bytes, region), (&mut voxels, &cell));
            let compressed = deflate(&voxels, self.level).map_err(VolumeError::Invalid)?;
            self.place.write_file(&self.place.unfinished().join(name), &compressed)
        })
    }

    fn finish(&self) -> Result<(), VolumeError> {
        let whole = self.place.unfinished().join("whole");
        self.assemble(&whole).map_err(VolumeError::io(self.place.path()))?;
        self.place.finish_with(&whole)
    }
}
