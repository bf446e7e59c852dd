//! NumPy's `.npy`: magic, version, a Python dictionary that describes the values, the values.
//!
//! Any byte order and both orders of axes are read. Files are written little endian with the last axis fastest, under
//! the header that NumPy itself would write.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use super::{
    Choices, DAMAGED, Opened,
    dtype::Dtype,
    flat::{Arrangement, Flat},
    layout::{Compression, VolumeLayout},
    place::OutputPlace,
};
use crate::{Extent, VolumeError};

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest description; NumPy itself writes about a hundred bytes.
const LONGEST: usize = 1 << 16;
/// Data start at a multiple of this.
const ALIGNMENT: usize = 64;

pub(super) fn open(path: &Path, _choices: &Choices) -> Opened {
    let (layout, arrangement) = examine(path)?;
    Ok(Box::new(Flat::open(path, layout, arrangement)?))
}

pub(super) fn create(place: OutputPlace, layout: VolumeLayout) -> Opened {
    let mut header = describe(&layout);
    let length = (header.len() + 11).next_multiple_of(ALIGNMENT) - 10;
    header.extend(std::iter::repeat_n(' ', length - 1 - header.len()));
    header.push('\n');
    let mut bytes = [MAGIC, &[1, 0], &(length as u16).to_le_bytes()].concat();
    bytes.extend(header.into_bytes());
    let layout = VolumeLayout { chunk: None, shard: None, compression: Compression::None, checksum: false, ..layout };
    Ok(Box::new(Flat::create(place, layout, &bytes, &[])?))
}

pub(super) fn resume(place: OutputPlace, _choices: &Choices) -> Opened {
    let (layout, arrangement) = examine(place.unfinished())?;
    Ok(Box::new(Flat::resume(place, layout, arrangement)?))
}

fn describe(layout: &VolumeLayout) -> String {
    let sizes: Vec<String> = layout.shape.sizes().iter().map(u64::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let (descr, shape) = (layout.dtype.descr(), sizes.join(", "));
    format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}{comma}), }}")
}

fn examine(path: &Path) -> Result<(VolumeLayout, Arrangement), VolumeError> {
    let refuse = |problem: &str| VolumeError::format(path, problem, DAMAGED);
    let file = File::open(path).map_err(VolumeError::io(path))?;
    let mut start = [0; 12];
    let read = super::read_up_to(&file, &mut start, 0).map_err(VolumeError::io(path))?;
    if read < start.len() || !start.starts_with(MAGIC) {
        return Err(refuse("this is not a .npy file"));
    }
    let (length, before) = match start[6] {
        1 => (usize::from(u16::from_le_bytes([start[8], start[9]])), 10),
        2 | 3 => (u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize, 12),
        version => return Err(refuse(&format!("version {version} of .npy is not known"))),
    };
    if length > LONGEST {
        return Err(refuse(&format!("its header has {length} bytes; at most {LONGEST} are allowed")));
    }
    let mut header = vec![0; length];
    file.read_exact_at(&mut header, before).map_err(|_| refuse("it ends within its header"))?;
    let header = std::str::from_utf8(&header).map_err(|_| refuse("its header is not text"))?;
    let described = parse(header).ok_or_else(|| refuse("its header does not describe an array"))?;
    let Some((dtype, big_endian)) = Dtype::from_descr(described.descr) else {
        return Err(super::unknown_dtype(path, described.descr));
    };
    let shape = Extent::new(described.shape).map_err(|error| refuse(&error.to_string()))?;
    let offset = before + length as u64;
    let arrangement = Arrangement { offset, big_endian, first_fastest: described.first_fastest };
    Ok((VolumeLayout::new(shape, dtype), arrangement))
}

/// What a header says.
struct Header<'a> {
    descr: &'a str,
    first_fastest: bool,
    shape: Vec<u64>,
}

/// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, with its keys in any order.
fn parse(text: &str) -> Option<Header<'_>> {
    let after = |key: &str| {
        let quoted = [format!("'{key}'"), format!("\"{key}\"")];
        let at = quoted.iter().find_map(|key| text.find(key.as_str()).map(|at| at + key.len()))?;
        text[at..].trim_start().strip_prefix(':').map(str::trim_start)
    };
    let descr = after("descr")?;
    let quote = descr.chars().next().filter(|quote| matches!(quote, '\'' | '"'));
    // Records are lists; they are shown as they are.
    let descr = match quote {
        Some(quote) => descr[1..].split(quote).next()?,
        None => descr.split_inclusive(']').next()?,
    };
    let order = after("fortran_order")?;
    let first_fastest = order.starts_with("True");
    if !first_fastest && !order.starts_with("False") {
        return None;
    }
    let sizes = after("shape")?.strip_prefix('(')?.split_once(')')?.0;
    let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape = sizes.map(|size| size.trim_end_matches('L').parse().ok()).collect::<Option<_>>()?;
    Some(Header { descr, first_fastest, shape })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_whatever_their_order() {
        let header = parse("{'shape': (3, 40L), 'fortran_order': True, \"descr\": \">i2\"}").unwrap();
        assert_eq!((header.descr, header.first_fastest, header.shape), (">i2", true, vec![3, 40]));
        let record = parse("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (), }").unwrap();
        assert_eq!((record.descr, record.shape.len()), ("[('a', '<f4')]", 0));
        for text in ["", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 1, 'shape': (3)}"] {
            assert!(parse(text).is_none(), "{text}");
        }
    }
}
