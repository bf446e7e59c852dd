//! Frames of Blosc 1, as zarr has them: a header, where each block starts, and blocks that are reordered and compressed
//! each on its own.
//!
//! Written here rather than bound: the C library brings a thread pool and five compressors in three languages, of which
//! two have crates that are here anyway.

use super::shuffle;
use crate::format::{
    layout::{Blosc, BloscInner, Shuffle},
    zlib::{deflate, inflate},
};

const HEADER: usize = 16;
/// Small enough for a processor's cache; a multiple of eight elements of any type.
const BLOCK: usize = 1 << 18;
const SHUFFLED: u8 = 1;
const COPIED: u8 = 2;
const BIT_SHUFFLED: u8 = 4;
const NOT_SPLIT: u8 = 16;
/// Blosc splits a block by the bytes of its elements if they have at most so many bytes,
const MOST_SPLITS: usize = 16;
/// and if the block has at least so many elements.
const FEWEST_ELEMENTS: usize = 128;

/// What a header says.
struct Frame<'a> {
    bytes: &'a [u8],
    flags: u8,
    width: usize,
    length: usize,
    block: usize,
}

/// Decompresses a frame that must hold `expected` bytes.
pub(crate) fn decode(bytes: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    let frame = Frame::parse(bytes, expected)?;
    let mut out = vec![0; expected];
    if frame.flags & COPIED != 0 {
        out.copy_from_slice(bytes.get(HEADER..HEADER + expected).ok_or("its Blosc frame is cut short")?);
        return Ok(out);
    }
    let mut scratch = vec![0; frame.block.min(expected)];
    for (number, block) in out.chunks_mut(frame.block).enumerate() {
        frame.decode_block(number, block, &mut scratch)?;
    }
    Ok(out)
}

impl<'a> Frame<'a> {
    fn parse(bytes: &'a [u8], expected: usize) -> Result<Self, String> {
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or("it is too short for a Blosc frame")?;
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let (version, flags, width) = (header[0], header[2], usize::from(header[3]).max(1));
        let (length, block, compressed) = (number(4), number(8), number(12));
        if !(1..=2).contains(&version) {
            return Err(format!("version {version} of Blosc's frames is not known"));
        }
        if length != expected {
            return Err(format!("its Blosc frame holds {length} bytes instead of {expected}"));
        }
        if compressed > bytes.len() {
            return Err(format!("its Blosc frame has {} bytes of {compressed}", bytes.len()));
        }
        if block == 0 && length > 0 {
            return Err("its Blosc frame has blocks without bytes".to_owned());
        }
        Ok(Self { bytes: &bytes[..compressed.max(HEADER)], flags, width, length, block: block.max(1) })
    }

    fn number(&self, at: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }

    /// Decompresses one block; the scratch memory is at least as long.
    fn decode_block(&self, number: usize, out: &mut [u8], scratch: &mut [u8]) -> Result<(), String> {
        let damaged = || format!("block {number} of its Blosc frame is damaged");
        let shuffled = self.flags & SHUFFLED != 0 && self.width > 1;
        let bit_shuffled = self.flags & BIT_SHUFFLED != 0 && self.block >= self.width;
        let target = &mut scratch[..out.len()];
        let left_over = out.len() < self.block;
        let splits = self.flags & NOT_SPLIT == 0
            && !left_over
            && self.width <= MOST_SPLITS
            && self.block / self.width >= FEWEST_ELEMENTS;
        let splits = if splits { self.width } else { 1 };
        if self.length == 0 || !target.len().is_multiple_of(splits) {
            return Err(damaged());
        }
        let mut at = self.number(HEADER + 4 * number).ok_or_else(damaged)?;
        for part in target.chunks_exact_mut(out.len() / splits) {
            let length = self.number(at).ok_or_else(damaged)?;
            at += 4;
            let bytes = at.checked_add(length).and_then(|end| self.bytes.get(at..end)).ok_or_else(damaged)?;
            at += length;
            match bytes.len() == part.len() {
                true => part.copy_from_slice(bytes),
                false => self.decompress(bytes, part).map_err(|problem| format!("{}: {problem}", damaged()))?,
            }
        }
        match (bit_shuffled, shuffled) {
            (true, _) => shuffle::bit_unshuffle(target, self.width, out),
            (false, true) => shuffle::unshuffle(target, self.width, out),
            (false, false) => out.copy_from_slice(target),
        }
        Ok(())
    }

    fn decompress(&self, bytes: &[u8], out: &mut [u8]) -> Result<(), String> {
        let read = match self.flags >> 5 {
            1 => lz4_flex::block::decompress_into(bytes, out).map_err(|error| error.to_string())?,
            3 => {
                let inflated = inflate(bytes, out.len())?;
                out[..inflated.len()].copy_from_slice(&inflated);
                inflated.len()
            }
            4 => zstd::bulk::decompress_to_buffer(bytes, out).map_err(|error| error.to_string())?,
            other => {
                let name = ["blosclz", "", "snappy"].get(usize::from(other)).copied().unwrap_or("an unknown one");
                return Err(format!("its compressor, {name}, is not one of lz4, zlib and zstd"));
            }
        };
        match read == out.len() {
            true => Ok(()),
            false => Err(format!("{read} bytes instead of {}", out.len())),
        }
    }
}

/// Compresses into a frame.
pub(crate) fn encode(bytes: &[u8], settings: Blosc, width: usize) -> Result<Vec<u8>, String> {
    let too_long = || "it is too large for Blosc, which ends at 2 GiB".to_owned();
    let length = i32::try_from(bytes.len() + HEADER).map(|_| bytes.len() as u32).map_err(|_| too_long())?;
    let block = BLOCK.min(bytes.len().next_multiple_of(width)).max(1);
    let compressor = match settings.inner {
        BloscInner::Lz4 => 1,
        BloscInner::Zlib => 3,
        BloscInner::Zstd => 4,
    };
    let flags = NOT_SPLIT
        | (compressor << 5)
        | match settings.shuffle {
            Shuffle::None => 0,
            Shuffle::Bytes => SHUFFLED,
            Shuffle::Bits => BIT_SHUFFLED,
        };
    let blocks = bytes.len().div_ceil(block);
    let mut out = vec![0; HEADER + 4 * blocks];
    for (number, part) in bytes.chunks(block).enumerate() {
        let reordered = match settings.shuffle {
            Shuffle::Bytes if width > 1 => shuffle::shuffle(part, width),
            Shuffle::Bits if block >= width => shuffle::bit_shuffle(part, width),
            _ => part.to_vec(),
        };
        let compressed = compress(&reordered, settings)?;
        let smaller = if compressed.len() < part.len() { &compressed } else { &reordered };
        let start = u32::try_from(out.len()).map_err(|_| too_long())?;
        out[HEADER + 4 * number..][..4].copy_from_slice(&start.to_le_bytes());
        out.extend_from_slice(&(smaller.len() as u32).to_le_bytes());
        out.extend_from_slice(smaller);
    }
    let copied = out.len() >= bytes.len() + HEADER;
    if copied {
        out.truncate(HEADER);
        out.resize(HEADER, 0);
        out.extend_from_slice(bytes);
    }
    let flags = if copied { flags | COPIED } else { flags };
    out[..4].copy_from_slice(&[2, 1, flags, width as u8]);
    out[4..8].copy_from_slice(&length.to_le_bytes());
    out[8..12].copy_from_slice(&(block as u32).to_le_bytes());
    let compressed = u32::try_from(out.len()).map_err(|_| too_long())?;
    out[12..16].copy_from_slice(&compressed.to_le_bytes());
    Ok(out)
}

fn compress(bytes: &[u8], settings: Blosc) -> Result<Vec<u8>, String> {
    match settings.inner {
        BloscInner::Lz4 => Ok(lz4_flex::block::compress(bytes)),
        BloscInner::Zlib => deflate(bytes, settings.level),
        BloscInner::Zstd => {
            // Blosc counts to 9, Zstandard to 22, and Blosc's own rule brings them together.
            let level = if settings.level < 9 { (settings.level * 2).max(2) as i32 - 1 } else { 22 };
            zstd::bulk::compress(bytes, level).map_err(|error| error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings() -> impl Strategy<Value = Blosc> {
        let inner = prop_oneof![Just(BloscInner::Lz4), Just(BloscInner::Zstd), Just(BloscInner::Zlib)];
        let shuffle = prop_oneof![Just(Shuffle::None), Just(Shuffle::Bytes), Just(Shuffle::Bits)];
        (inner, shuffle, 0_u32..10).prop_map(|(inner, shuffle, level)| Blosc { inner, level, shuffle })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frames_return(seed in any::<u8>(), length in 0_usize..2000, width in 1_usize..9, settings in settings()) {
            let bytes: Vec<u8> = (0..length * width).map(|at| (at / 7) as u8 ^ seed).collect();
            let frame = encode(&bytes, settings, width).unwrap();
            prop_assert_eq!(decode(&frame, bytes.len()).unwrap(), bytes);
        }

        #[test]
        fn damage_is_an_error(settings in settings(), at in 0_usize..400, value in any::<u8>(), cut in 0_usize..400) {
            let bytes: Vec<u8> = (0..4000).map(|at| (at / 9) as u8).collect();
            let mut frame = encode(&bytes, settings, 4).unwrap();
            let at = at % frame.len();
            frame[at] = value;
            let _ = decode(&frame, bytes.len());
            frame.truncate(cut % frame.len());
            prop_assert!(decode(&frame, bytes.len()).is_err());
        }
    }

    #[test]
    fn many_blocks_return() {
        let bytes: Vec<u8> = (0..3 * BLOCK + 100).map(|at| (at * at / 999) as u8).collect();
        for shuffle in [Shuffle::None, Shuffle::Bytes, Shuffle::Bits] {
            let frame = encode(&bytes, Blosc { inner: BloscInner::Lz4, level: 5, shuffle }, 2).unwrap();
            assert_eq!(decode(&frame, bytes.len()).unwrap(), bytes);
        }
    }
}
