//! A stack of pages that is read piece by piece.

use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{
    describe::{self, Described},
    ifd::{PageKind, TiffCompression, TiffPage, TiffPages},
    piece,
};
use crate::{
    Extent, Region, VolumeError,
    format::{
        DAMAGED, TRUNCATED, Volume, check_region,
        flat::Arrangement,
        layout::{Axis, Compression, VolumeLayout},
        read_only,
        window::{copy_shared, try_each_cell},
    },
};

/// A stack whose voxels do not simply lie in their order.
#[derive(Debug)]
pub(crate) struct TiffStack {
    path: PathBuf,
    pages: TiffPages,
    kind: PageKind,
    layout: VolumeLayout,
    /// How many axes are those of a page: two, or three with channels side by side.
    own: usize,
}

/// A file that was looked at: in order, or to be read piece by piece.
pub(crate) enum Examined {
    Flat(VolumeLayout, Arrangement),
    Stack(TiffStack),
}

/// Finds out what a file holds.
pub(crate) fn examine(path: &Path) -> Result<Examined, VolumeError> {
    let mut pages = TiffPages::open(path)?;
    let Some(first) = pages.pages.first().cloned() else {
        return Err(VolumeError::format(path, "it has no pages", DAMAGED));
    };
    let kind = first.kind.clone();
    if let Some(other) = pages.pages.iter().position(|page| page.kind != kind) {
        let problem = format!("page {other} differs from page 0 in its size, type or compression");
        return Err(VolumeError::format(path, problem, "save the pages of the volume as a file of their own"));
    }
    let description = describe::parse(&first.description, kind.samples, first.resolution);
    // ImageJ leaves out all pages but the first in files of more than 4 GiB.
    let shortened = pages.pages.len() == 1 && first.description.starts_with("ImageJ=");
    let count = match &description {
        Some(described) if shortened => described.pages(),
        _ => pages.pages.len() as u64,
    };
    let described = match description {
        Some(described) if described.pages() == count => described,
        Some(described) if first.description.contains("Pixels") => {
            let problem = format!("its OME-XML describes {} pages, and it has {count}", described.pages());
            let hint = "save the image again as one file with all its pages";
            return Err(VolumeError::format(path, problem, hint));
        }
        _ => Described::plain(count),
    };
    let layout = layout(&described, &kind).map_err(|error| VolumeError::format(path, error.to_string(), DAMAGED))?;
    if let Some(offset) = in_order(&pages.pages) {
        let arrangement = Arrangement { offset, big_endian: pages.big_endian, first_fastest: false };
        return Ok(Examined::Flat(VolumeLayout { chunk: None, ..layout }, arrangement));
    }
    if shortened && count > 1 {
        return Err(VolumeError::format(path, format!("it has one page of {count}"), TRUNCATED));
    }
    // The descriptions of pages are all that takes space without being needed.
    pages.pages.iter_mut().for_each(|page| page.description.clear());
    let own = if kind.samples > 1 { 3 } else { 2 };
    Ok(Examined::Stack(TiffStack { path: path.to_owned(), pages, kind, layout, own }))
}

fn layout(described: &Described, kind: &PageKind) -> Result<VolumeLayout, VolumeError> {
    let mut shape: Vec<u64> = described.leading.iter().map(|(_, size)| *size).collect();
    let mut chunk = vec![1; shape.len()];
    let mut axes: Vec<Axis> = described.leading.iter().map(|(axis, _)| axis.clone()).collect();
    shape.extend([kind.height, kind.width]);
    chunk.extend([kind.piece.0, kind.piece.1]);
    axes.extend([described.y.clone(), described.x.clone()]);
    if kind.samples > 1 {
        shape.push(kind.samples);
        chunk.push(kind.samples);
        axes.push(Axis::named("c"));
    }
    let compression = match kind.compression {
        TiffCompression::None => Compression::None,
        _ => Compression::Zlib(6),
    };
    let layout = VolumeLayout::new(Extent::new(shape)?, kind.dtype);
    Ok(VolumeLayout { chunk: Some(Extent::new(chunk)?), axes, compression, ..layout })
}

/// Where the voxels start, if all of them lie in one row.
fn in_order(pages: &[TiffPage]) -> Option<u64> {
    let kind = &pages.first()?.kind;
    if kind.compression != TiffCompression::None || kind.tiled && kind.piece.1 != kind.width {
        return None;
    }
    if kind.tiled && kind.height % kind.piece.0 != 0 {
        return None;
    }
    let row = kind.width * kind.samples * kind.dtype.size() as u64;
    let start = pages.first()?.pieces.first()?.0;
    let mut next = start;
    for page in pages {
        for (number, (offset, count)) in page.pieces.iter().enumerate() {
            let rows = kind.piece.0.min(kind.height - number as u64 * kind.piece.0);
            if *offset != next || *count < row.checked_mul(rows)? {
                return None;
            }
            next = offset.checked_add(row.checked_mul(rows)?)?;
        }
    }
    Some(start)
}

impl TiffStack {
    /// The voxels of a piece, which is always as wide as others and may have fewer rows.
    fn read_piece(&self, at: &[u64], cell: &Region) -> Result<Vec<u8>, VolumeError> {
        let leading = self.layout.shape.axes() - self.own;
        let sizes = &self.layout.shape.sizes()[..leading];
        let page = at[..leading].iter().zip(sizes).fold(0, |page, (at, size)| page * size + at) as usize;
        let across = self.kind.width.div_ceil(self.kind.piece.1);
        let number = (at[leading] * across + at[leading + 1]) as usize;
        let damaged = |problem: String, hint: &str| {
            let problem = format!("page {page}, piece {number}, voxels {cell}: {problem}");
            VolumeError::format(&self.path, problem, hint)
        };
        let found = self.pages.pages.get(page).and_then(|page| page.pieces.get(number));
        let &(offset, count) = found.ok_or_else(|| damaged("it is not there".to_owned(), DAMAGED))?;
        if offset.checked_add(count).is_none_or(|end| end > self.pages.length) {
            let problem = format!("{count} bytes at {offset} in a file of {}", self.pages.length);
            return Err(damaged(problem, TRUNCATED));
        }
        let mut bytes = vec![0; count as usize];
        self.pages.file.read_exact_at(&mut bytes, offset).map_err(VolumeError::io(&self.path))?;
        let rows = cell.size()[leading];
        piece::decode(bytes, rows, &self.kind, self.pages.big_endian).map_err(|problem| damaged(problem, DAMAGED))
    }
}

impl Volume for TiffStack {
    fn layout(&self) -> &VolumeLayout {
        &self.layout
    }

    fn read(&self, region: &Region, out: &mut [u8]) -> Result<(), VolumeError> {
        check_region(&self.layout, region, out.len())?;
        let chunk = self.layout.unit();
        let leading = self.layout.shape.axes() - self.own;
        try_each_cell(region, &chunk, |at, shared| {
            let start: Vec<u64> = at.iter().zip(&chunk).map(|(at, chunk)| at * chunk).collect();
            let mut size = chunk.clone();
            if !self.kind.tiled {
                size[leading] = size[leading].min(self.kind.height - start[leading]);
            }
            let cell = Region::new(start, size)?;
            let voxels = self.read_piece(at, &cell)?;
            copy_shared(shared, self.layout.dtype.size(), (&voxels, &cell), (out, region));
            Ok(())
        })
    }

    fn write(&self, _: &Region, _: &[u8]) -> Result<(), VolumeError> {
        Err(read_only(&self.path))
    }

    fn finish(&self) -> Result<(), VolumeError> {
        Err(read_only(&self.path))
    }
}
