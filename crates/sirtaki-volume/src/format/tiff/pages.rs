//! The directories of a new file.

use super::describe;
use crate::format::{
    dtype::Dtype,
    layout::{AxisKind, VolumeLayout},
};

/// Files that could grow beyond 4 GiB are BigTIFF.
const CLASSIC: u64 = (1 << 32) - (1 << 16);

/// What is written as pages: the last two axes of a volume, or three where the last one is channels.
#[derive(Debug, Clone)]
pub(crate) struct PagePlan {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) samples: u64,
    pub(crate) pages: u64,
    /// How many axes are those of a page.
    pub(crate) own: usize,
    pub(crate) dtype: Dtype,
    /// Height and width of the pieces.
    pub(crate) piece: (u64, u64),
    pub(crate) tiled: bool,
    pub(crate) deflate: bool,
    description: String,
}

impl PagePlan {
    /// The pages of a volume, in strips of whole pages unless told otherwise.
    pub(crate) fn new(layout: &VolumeLayout) -> Option<Self> {
        let sizes = layout.shape.sizes();
        let channels = layout.axes.last().is_some_and(|axis| axis.kind == AxisKind::Channel) && sizes.len() > 2;
        let own = if channels { 3 } else { 2 };
        let leading = sizes.len().checked_sub(own)?;
        let (height, width) = (sizes[leading], sizes[leading + 1]);
        Some(Self {
            width,
            height,
            samples: if channels { sizes[leading + 2] } else { 1 },
            pages: sizes[..leading].iter().product(),
            own,
            dtype: layout.dtype,
            piece: (height, width),
            tiled: false,
            deflate: false,
            description: describe::write(layout, channels),
        })
    }

    /// How many pieces a page has.
    pub(crate) fn pieces(&self) -> u64 {
        self.height.div_ceil(self.piece.0) * self.width.div_ceil(self.piece.1)
    }

    /// Whether a file with so many bytes of voxels is BigTIFF.
    pub(crate) fn is_big(&self, voxels: u64) -> bool {
        let directories = self.pages.saturating_mul(256 + 16 * self.pieces()) + self.description.len() as u64;
        voxels.saturating_add(directories) > CLASSIC
    }

    /// The first bytes of a file whose directories start at a place.
    pub(crate) fn header(&self, big: bool, directories: u64) -> Vec<u8> {
        match big {
            true => [b"II+\0\x08\0\0\0".as_slice(), &directories.to_le_bytes()].concat(),
            false => [b"II*\0".as_slice(), &(directories as u32).to_le_bytes()].concat(),
        }
    }

    /// All directories, to be put at a place, where `piece` says where each piece of each page is and its length.
    pub(crate) fn directories(&self, big: bool, at: u64, mut piece: impl FnMut(u64, u64) -> (u64, u64)) -> Vec<u8> {
        let mut out = Vec::new();
        for page in 0..self.pages {
            let pieces: Vec<(u64, u64)> = (0..self.pieces()).map(|number| piece(page, number)).collect();
            let mut directory = Directory { big, fields: Vec::new() };
            self.describe(page, &pieces, &mut directory);
            directory.write(at, page + 1 == self.pages, &mut out);
        }
        out
    }

    fn describe(&self, page: u64, pieces: &[(u64, u64)], to: &mut Directory) {
        let samples = self.samples as usize;
        let format = match self.dtype.name() {
            name if name.starts_with("int") => 2,
            name if name.starts_with("float") => 3,
            _ => 1,
        };
        to.number(256, self.width);
        to.number(257, self.height);
        to.shorts(258, &vec![self.dtype.size() as u16 * 8; samples]);
        to.shorts(259, &[if self.deflate { 8 } else { 1 }]);
        to.shorts(262, &[if (3..=4).contains(&samples) { 2 } else { 1 }]);
        if page == 0 {
            to.text(270, &self.description);
        }
        let (offsets, counts): (Vec<u64>, Vec<u64>) = pieces.iter().copied().unzip();
        if !self.tiled {
            to.numbers(273, &offsets);
        }
        to.shorts(277, &[self.samples as u16]);
        if !self.tiled {
            to.number(278, self.piece.0);
            to.numbers(279, &counts);
        }
        to.shorts(284, &[1]);
        if self.tiled {
            to.number(322, self.piece.1);
            to.number(323, self.piece.0);
            to.numbers(324, &offsets);
            to.numbers(325, &counts);
        }
        // Whatever is beyond the colours is nothing that a viewer knows.
        let colours = if (3..=4).contains(&samples) { 3 } else { 1 };
        if samples > colours {
            to.shorts(338, &vec![0; samples - colours]);
        }
        to.shorts(339, &vec![format; samples]);
    }
}

/// A directory that is being made; its fields come in the order of their numbers.
struct Directory {
    big: bool,
    /// Number, type, count and bytes.
    fields: Vec<(u16, u16, u64, Vec<u8>)>,
}

impl Directory {
    fn shorts(&mut self, tag: u16, values: &[u16]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.fields.push((tag, 3, values.len() as u64, bytes));
    }

    fn number(&mut self, tag: u16, value: u64) {
        self.fields.push((tag, 4, 1, (value as u32).to_le_bytes().to_vec()));
    }

    fn numbers(&mut self, tag: u16, values: &[u64]) {
        let bytes = match self.big {
            true => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            false => values.iter().flat_map(|value| (*value as u32).to_le_bytes()).collect(),
        };
        self.fields.push((tag, if self.big { 16 } else { 4 }, values.len() as u64, bytes));
    }

    fn text(&mut self, tag: u16, text: &str) {
        let bytes = [text.as_bytes(), &[0]].concat();
        self.fields.push((tag, 2, bytes.len() as u64, bytes));
    }

    /// Appends the directory to others that start at `base`, with the values that do not fit into it behind it.
    fn write(self, base: u64, last: bool, out: &mut Vec<u8>) {
        let (head, entry, inline) = if self.big { (8, 20, 8) } else { (2, 12, 4) };
        let word = |value: u64, out: &mut Vec<u8>| match inline {
            8 => out.extend(value.to_le_bytes()),
            _ => out.extend((value as u32).to_le_bytes()),
        };
        let end = base + (out.len() + head + self.fields.len() * entry + inline) as u64;
        let mut behind = Vec::new();
        match self.big {
            true => out.extend((self.fields.len() as u64).to_le_bytes()),
            false => out.extend((self.fields.len() as u16).to_le_bytes()),
        }
        for (tag, kind, count, mut bytes) in self.fields {
            out.extend(tag.to_le_bytes());
            out.extend(kind.to_le_bytes());
            word(count, out);
            if bytes.len() <= inline {
                bytes.resize(inline, 0);
                out.extend(bytes);
            } else {
                word(end + behind.len() as u64, out);
                bytes.resize(bytes.len().next_multiple_of(8), 0);
                behind.extend(bytes);
            }
        }
        word(if last { 0 } else { end + behind.len() as u64 }, out);
        out.extend(behind);
    }
}
