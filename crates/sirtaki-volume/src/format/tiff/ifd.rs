//! The pages of a TIFF or BigTIFF file: directories of numbered fields, chained to each other.

use std::{collections::HashSet, fs::File, os::unix::fs::FileExt, path::Path};

use crate::{
    VolumeError,
    format::{DAMAGED, TRUNCATED, dtype::Dtype, read_up_to},
};

/// The longest description that is read.
const LONGEST_TEXT: u64 = 1 << 26;
/// The most entries of a directory.
const MOST_FIELDS: u64 = 1 << 12;

/// How pieces of a page are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TiffCompression {
    None,
    Lzw,
    Deflate,
    PackBits,
    Zstd,
}

/// What is done to rows before they are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Predictor {
    None,
    /// Differences between neighbours.
    Horizontal,
    /// The same with bytes of floating-point numbers, the highest ones first.
    Floats,
}

/// What all pages of a stack have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageKind {
    pub(crate) width: u64,
    pub(crate) height: u64,
    /// Values of one place side by side.
    pub(crate) samples: u64,
    pub(crate) dtype: Dtype,
    pub(crate) compression: TiffCompression,
    pub(crate) predictor: Predictor,
    /// Height and width of the pieces: tiles, or strips as wide as the page.
    pub(crate) piece: (u64, u64),
    pub(crate) tiled: bool,
}

/// One page.
#[derive(Debug, Clone)]
pub(crate) struct TiffPage {
    pub(crate) kind: PageKind,
    /// Where each piece is, and how many bytes it has.
    pub(crate) pieces: Vec<(u64, u64)>,
    pub(crate) description: String,
    /// Pixels per unit along x and y.
    pub(crate) resolution: (Option<f64>, Option<f64>),
}

/// An open file with its pages.
#[derive(Debug)]
pub(crate) struct TiffPages {
    pub(crate) file: File,
    pub(crate) length: u64,
    pub(crate) big_endian: bool,
    pub(crate) pages: Vec<TiffPage>,
}

/// A field of a directory: its type, and its value in bytes.
struct Field {
    tag: u16,
    kind: u16,
    bytes: Vec<u8>,
}

struct Reader<'a> {
    path: &'a Path,
    file: &'a File,
    length: u64,
    big_endian: bool,
    big: bool,
}

/// Whether a file starts like a TIFF or BigTIFF.
pub(crate) fn recognise(head: &[u8]) -> bool {
    [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|magic| head.starts_with(*magic))
}

impl TiffPages {
    /// Reads all directories of a file. Smaller copies of other pages are left out.
    pub(crate) fn open(path: &Path) -> Result<Self, VolumeError> {
        let file = File::open(path).map_err(VolumeError::io(path))?;
        let length = file.metadata().map_err(VolumeError::io(path))?.len();
        let mut head = [0; 16];
        let read = read_up_to(&file, &mut head, 0).map_err(VolumeError::io(path))?;
        if read < 8 || !recognise(&head) {
            return Err(VolumeError::format(path, "this is not a TIFF file", DAMAGED));
        }
        // What follows the first four bytes may be anything, such as voxels.
        let (big_endian, big) = (head[0] == b'M', head[..4].contains(&b'+'));
        let reader = Reader { path, file: &file, length, big_endian, big };
        let mut next = if big { reader.number(&head[8..16]) } else { reader.number(&head[4..8]) };
        let (mut pages, mut seen) = (Vec::new(), HashSet::new());
        while next != 0 {
            if !seen.insert(next) {
                return Err(VolumeError::format(path, "its chain of pages has no end", DAMAGED));
            }
            let (fields, following) = reader.directory(next)?;
            if reader.one(&fields, 254).unwrap_or(0) & 1 == 0 {
                pages.push(reader.page(&fields, pages.len())?);
            }
            next = following;
        }
        Ok(Self { length, big_endian, pages, file })
    }
}

impl Reader<'_> {
    fn number(&self, bytes: &[u8]) -> u64 {
        let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self.big_endian {
            true => bytes.iter().fold(0, add),
            false => bytes.iter().rev().fold(0, add),
        }
    }

    fn read(&self, at: u64, length: u64) -> Result<Vec<u8>, VolumeError> {
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            let problem = format!("{length} bytes at {at} are needed, and the file has {}", self.length);
            return Err(VolumeError::format(self.path, problem, TRUNCATED));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at).map_err(VolumeError::io(self.path))?;
        Ok(bytes)
    }

    /// The fields of a directory, and where the next one is.
    fn directory(&self, at: u64) -> Result<(Vec<Field>, u64), VolumeError> {
        let (head, entry, inline) = if self.big { (8, 20, 8) } else { (2, 12, 4) };
        let count = self.number(&self.read(at, head)?);
        if count > MOST_FIELDS {
            return Err(VolumeError::format(self.path, format!("a directory with {count} fields"), DAMAGED));
        }
        let bytes = self.read(at + head, count * entry + inline)?;
        let (entries, next) = bytes.split_at((count * entry) as usize);
        let mut fields = Vec::new();
        for entry in entries.chunks_exact(entry as usize) {
            let (tag, kind) = (self.number(&entry[..2]) as u16, self.number(&entry[2..4]) as u16);
            let middle = entry.len() - inline as usize;
            let (count, value) = (self.number(&entry[4..middle]), &entry[middle..]);
            let Some(size) = size_of(kind) else { continue };
            let length = count.saturating_mul(size);
            let wanted = matches!(tag, 254..=284 | 296 | 317..=325 | 339);
            if !wanted || length > LONGEST_TEXT {
                continue;
            }
            let bytes = match length <= inline {
                true => value[..length as usize].to_vec(),
                false => self.read(self.number(value), length)?,
            };
            fields.push(Field { tag, kind, bytes });
        }
        Ok((fields, self.number(next)))
    }

    fn many(&self, fields: &[Field], tag: u16) -> Option<Vec<u64>> {
        let field = fields.iter().find(|field| field.tag == tag)?;
        Some(field.bytes.chunks_exact(size_of(field.kind)? as usize).map(|bytes| self.number(bytes)).collect())
    }

    fn one(&self, fields: &[Field], tag: u16) -> Option<u64> {
        self.many(fields, tag)?.first().copied()
    }

    fn fraction(&self, fields: &[Field], tag: u16) -> Option<f64> {
        let bytes = &fields.iter().find(|field| field.tag == tag && field.kind == 5)?.bytes;
        let (above, below) = (self.number(bytes.get(..4)?), self.number(bytes.get(4..8)?));
        (above > 0 && below > 0).then(|| above as f64 / below as f64)
    }

    fn page(&self, fields: &[Field], number: usize) -> Result<TiffPage, VolumeError> {
        let refuse =
            |problem: String, hint: &str| VolumeError::format(self.path, format!("page {number}: {problem}"), hint);
        let needed = |tag: u16, name: &str| {
            let value = self.one(fields, tag).filter(|value| *value > 0);
            value.ok_or_else(|| refuse(format!("it has no {name}"), DAMAGED))
        };
        let (width, height) = (needed(256, "width")?, needed(257, "height")?);
        let samples = self.one(fields, 277).unwrap_or(1);
        let dtype =
            self.dtype(fields).map_err(|problem| refuse(problem, "convert the file to 8, 16, 32 or 64 bits"))?;
        let compression = match self.one(fields, 259).unwrap_or(1) {
            1 => TiffCompression::None,
            5 => TiffCompression::Lzw,
            8 | 32946 => TiffCompression::Deflate,
            32773 => TiffCompression::PackBits,
            50000 => TiffCompression::Zstd,
            other => {
                let hint = "save the file again without compression, or with LZW, deflate, PackBits or Zstandard";
                return Err(refuse(format!("its compression has the number {other}, which is not known here"), hint));
            }
        };
        let predictor = match self.one(fields, 317).unwrap_or(1) {
            2 => Predictor::Horizontal,
            3 => Predictor::Floats,
            _ => Predictor::None,
        };
        if samples > 1 && self.one(fields, 284) == Some(2) {
            return Err(refuse("its channels are one after the other".to_owned(), "save it with one page per channel"));
        }
        let tiled = self.one(fields, 322).is_some();
        let piece = match tiled {
            true => (needed(323, "height of tiles")?, needed(322, "width of tiles")?),
            false => (self.one(fields, 278).unwrap_or(height).clamp(1, height), width),
        };
        let [offsets, counts] =
            if tiled { [324, 325] } else { [273, 279] }.map(|tag| self.many(fields, tag).unwrap_or_default());
        let expected = height.div_ceil(piece.0).saturating_mul(width.div_ceil(piece.1));
        if offsets.len() as u64 != expected || counts.len() as u64 != expected {
            let problem =
                format!("{expected} pieces are needed, and it has {} and {} of them", offsets.len(), counts.len());
            return Err(refuse(problem, DAMAGED));
        }
        let bytes = piece.0.saturating_mul(piece.1).saturating_mul(samples).saturating_mul(dtype.size() as u64);
        if bytes > u64::from(u32::MAX) && compression != TiffCompression::None {
            return Err(refuse(format!("a piece of {bytes} bytes is too large"), DAMAGED));
        }
        let description = fields.iter().find(|field| field.tag == 270);
        let description =
            description.map(|field| String::from_utf8_lossy(&field.bytes).trim_end_matches('\0').to_owned());
        Ok(TiffPage {
            kind: PageKind { width, height, samples, dtype, compression, predictor, piece, tiled },
            pieces: offsets.into_iter().zip(counts).collect(),
            description: description.unwrap_or_default(),
            resolution: (self.fraction(fields, 282), self.fraction(fields, 283)),
        })
    }

    fn dtype(&self, fields: &[Field]) -> Result<Dtype, String> {
        let bits = self.many(fields, 258).unwrap_or_else(|| vec![1]);
        let formats = self.many(fields, 339).unwrap_or_else(|| vec![1]);
        let same = |list: &[u64]| list.iter().all(|value| *value == list[0]);
        let (Some(&width), Some(&format), true) = (bits.first(), formats.first(), same(&bits) && same(&formats)) else {
            return Err("its channels have different types".to_owned());
        };
        let name = match format {
            1 | 4 => "uint",
            2 => "int",
            3 => "float",
            _ => "complex",
        };
        let name = format!("{name}{width}");
        Dtype::from_name(&name).ok_or_else(|| format!("voxels of type {name} cannot be used"))
    }
}

/// The bytes of a value of each type.
fn size_of(kind: u16) -> Option<u64> {
    match kind {
        1 | 2 | 6 | 7 => Some(1),
        3 | 8 => Some(2),
        4 | 9 | 11 | 13 => Some(4),
        5 | 10 | 12 | 16..=18 => Some(8),
        _ => None,
    }
}
