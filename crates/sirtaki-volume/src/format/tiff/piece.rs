//! From the bytes of a strip or tile to its voxels.

use super::ifd::{PageKind, Predictor, TiffCompression};
use crate::format::{window::swap_bytes, zlib::inflate};

/// The voxels of a piece with so many rows, as wide as the pieces of its page.
pub(crate) fn decode(bytes: Vec<u8>, rows: u64, kind: &PageKind, big_endian: bool) -> Result<Vec<u8>, String> {
    let size = kind.dtype.size();
    let row = (kind.piece.1 * kind.samples) as usize * size;
    let expected = row * rows as usize;
    let mut voxels = match kind.compression {
        TiffCompression::None => bytes,
        TiffCompression::Deflate => inflate(&bytes, expected)?,
        TiffCompression::Lzw => unpack_lzw(&bytes, expected)?,
        TiffCompression::PackBits => unpack_bits(&bytes, expected),
        TiffCompression::Zstd => zstd::bulk::decompress(&bytes, expected).map_err(|error| error.to_string())?,
    };
    // Some writers fill up the last strip of a page, or end a piece with a byte that nobody needs.
    voxels.truncate(expected);
    if voxels.len() != expected {
        return Err(format!("it holds {} bytes instead of {expected}", voxels.len()));
    }
    if big_endian && kind.predictor != Predictor::Floats {
        swap_bytes(&mut voxels, size);
    }
    match kind.predictor {
        Predictor::None => {}
        Predictor::Horizontal => voxels.chunks_exact_mut(row).for_each(|row| sum_up(row, size, kind.samples as usize)),
        Predictor::Floats => voxels.chunks_exact_mut(row).for_each(|row| join_floats(row, size, kind.samples as usize)),
    }
    Ok(voxels)
}

fn unpack_lzw(bytes: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    let mut decoder = weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
    let mut out = vec![0; expected];
    let (mut read, mut written) = (0, 0);
    while written < expected {
        let step = decoder.decode_bytes(&bytes[read..], &mut out[written..]);
        read += step.consumed_in;
        written += step.consumed_out;
        match step.status {
            Ok(weezl::LzwStatus::Ok) if step.consumed_in + step.consumed_out > 0 => {}
            Ok(_) => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    out.truncate(written);
    Ok(out)
}

/// Runs of equal bytes, and bytes as they are.
fn unpack_bits(bytes: &[u8], expected: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some((&head, behind)) = rest.split_first()
        && out.len() < expected
    {
        let head = head as i8;
        rest = match (head, behind.split_first()) {
            (0.., _) => {
                let (run, behind) = behind.split_at((head as usize + 1).min(behind.len()));
                out.extend_from_slice(run);
                behind
            }
            (-127..0, Some((&value, behind))) => {
                out.extend(std::iter::repeat_n(value, 1 + usize::from(head.unsigned_abs())));
                behind
            }
            _ => behind,
        };
    }
    out
}

/// Makes values from differences between neighbours.
fn sum_up(row: &mut [u8], size: usize, samples: usize) {
    for at in (samples * size..row.len()).step_by(size) {
        let mut carry = 0;
        for byte in 0..size {
            let sum = u16::from(row[at + byte]) + u16::from(row[at + byte - samples * size]) + carry;
            row[at + byte] = sum as u8;
            carry = sum >> 8;
        }
    }
}

/// Makes floating-point numbers from differences between their bytes, of which all highest ones come first.
fn join_floats(row: &mut [u8], size: usize, samples: usize) {
    for at in samples..row.len() {
        row[at] = row[at].wrapping_add(row[at - samples]);
    }
    let count = row.len() / size;
    let planes = row.to_vec();
    for (element, voxel) in row.chunks_exact_mut(size).enumerate() {
        for (byte, value) in voxel.iter_mut().rev().enumerate() {
            *value = planes[byte * count + element];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_unpacked() {
        let packed = [0xFE, 0xAA, 0x02, 0x80, 0x00, 0x2A, 0xFD, 0xAA, 0x03, 0x80, 0x00, 0x2A, 0x22, 0xF7, 0xAA];
        let unpacked = unpack_bits(&packed, 24);
        assert_eq!(unpacked.len(), 24);
        assert_eq!(unpacked[..7], [0xAA, 0xAA, 0xAA, 0x80, 0x00, 0x2A, 0xAA]);
        for length in 0..packed.len() {
            unpack_bits(&packed[..length], 24);
        }
    }

    #[test]
    fn differences_carry_over_bytes() {
        let mut row = [0xFF, 0x00, 0x01, 0x00, 0xFF, 0xFF];
        sum_up(&mut row, 2, 1);
        assert_eq!(row, [0xFF, 0x00, 0x00, 0x01, 0xFF, 0x00]);
    }
}
