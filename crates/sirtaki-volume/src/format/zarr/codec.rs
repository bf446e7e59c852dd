//! From the voxels of a chunk to the bytes of a file and back: the order of axes and bytes, compression, checksum.

use std::borrow::Cow;

use super::blosc;
use crate::format::{
    dtype::Dtype,
    layout::Compression,
    window::{inverse, swap_bytes, transpose},
    zlib::{deflate, gunzip, gzip, inflate},
};

/// One step from bytes to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Compress(Compression),
    Crc32c,
}

/// All steps of a chunk, in the order of writing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Chain {
    /// Axis `n` in the file is axis `order[n]` of the volume.
    pub(crate) order: Option<Vec<usize>>,
    pub(crate) big_endian: bool,
    pub(crate) codecs: Vec<Codec>,
}

impl Chain {
    /// The steps for new chunks.
    pub(crate) fn new(compression: Compression, checksum: bool) -> Self {
        let compress = (compression != Compression::None).then_some(Codec::Compress(compression));
        let codecs = compress.into_iter().chain(checksum.then_some(Codec::Crc32c)).collect();
        Self { codecs, ..Self::default() }
    }

    /// How chunks are compressed; only one step may do so, because the size in between would not be known.
    pub(crate) fn compression(&self) -> Compression {
        let compress = |codec: &Codec| if let Codec::Compress(compression) = codec { Some(*compression) } else { None };
        self.codecs.iter().find_map(compress).unwrap_or(Compression::None)
    }

    /// Whether there is a checksum.
    pub(crate) fn checksum(&self) -> bool {
        self.codecs.contains(&Codec::Crc32c)
    }

    /// The voxels of a chunk of this shape.
    pub(crate) fn decode<'a>(
        &self,
        bytes: impl Into<Cow<'a, [u8]>>,
        shape: &[u64],
        dtype: Dtype,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = bytes.into();
        let width = dtype.size();
        let expected = shape.iter().product::<u64>() as usize * width;
        for (place, codec) in self.codecs.iter().enumerate().rev() {
            let checksums = self.codecs[..place].iter().filter(|codec| **codec == Codec::Crc32c).count();
            bytes = match codec {
                Codec::Crc32c => strip_checksum(bytes)?,
                Codec::Compress(compression) => {
                    decompress(*compression, &bytes, expected + checksums * CHECKSUM)?.into()
                }
            };
        }
        if bytes.len() != expected {
            return Err(format!("it holds {} bytes instead of {expected}", bytes.len()));
        }
        let mut bytes = bytes.into_owned();
        if self.big_endian {
            swap_bytes(&mut bytes, width);
        }
        Ok(match &self.order {
            Some(order) => {
                let in_file: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
                transpose(&bytes, &in_file, &inverse(order), width)
            }
            None => bytes,
        })
    }

    /// The bytes of a chunk of this shape.
    pub(crate) fn encode(&self, voxels: &[u8], shape: &[u64], dtype: Dtype) -> Result<Vec<u8>, String> {
        let width = dtype.size();
        let mut bytes = match &self.order {
            Some(order) => transpose(voxels, shape, order, width),
            None => voxels.to_vec(),
        };
        if self.big_endian {
            swap_bytes(&mut bytes, width);
        }
        for codec in &self.codecs {
            match codec {
                Codec::Compress(compression) => bytes = compress(*compression, &bytes, width)?,
                Codec::Crc32c => append_checksum(&mut bytes),
            }
        }
        Ok(bytes)
    }
}

/// The length of a checksum.
pub(crate) const CHECKSUM: usize = 4;

/// Appends the CRC-32C of bytes to them.
pub(crate) fn append_checksum(bytes: &mut Vec<u8>) {
    let checksum = crc32c::crc32c(bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
}

/// Compares a checksum and takes it away.
pub(crate) fn strip_checksum(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>, String> {
    let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or("it is too short for its checksum")?;
    if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
        return Err("its checksum is wrong".to_owned());
    }
    let length = content.len();
    Ok(match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..length]),
        Cow::Owned(mut bytes) => {
            bytes.truncate(length);
            Cow::Owned(bytes)
        }
    })
}

/// Decompresses to exactly `expected` bytes; no more memory than that is used for the result.
pub(crate) fn decompress(compression: Compression, bytes: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    let out = match compression {
        Compression::None => bytes.to_vec(),
        Compression::Gzip(_) => gunzip(bytes, expected)?,
        Compression::Zlib(_) => inflate(bytes, expected)?,
        Compression::Zstd(..) => zstd::bulk::decompress(bytes, expected).map_err(|error| error.to_string())?,
        Compression::Lz4 => {
            let (length, block) = bytes.split_first_chunk().ok_or("it is too short for LZ4")?;
            let length = u32::from_le_bytes(*length) as usize;
            if length != expected {
                return Err(format!("it holds {length} bytes instead of {expected}"));
            }
            let mut out = vec![0; expected];
            let read = lz4_flex::block::decompress_into(block, &mut out).map_err(|error| error.to_string())?;
            out.truncate(read);
            out
        }
        Compression::Blosc(_) => blosc::decode(bytes, expected)?,
    };
    match out.len() == expected {
        true => Ok(out),
        false => Err(format!("it holds {} bytes instead of {expected}", out.len())),
    }
}

fn compress(compression: Compression, bytes: &[u8], width: usize) -> Result<Vec<u8>, String> {
    match compression {
        Compression::None => Ok(bytes.to_vec()),
        Compression::Gzip(level) => gzip(bytes, level),
        Compression::Zlib(level) => deflate(bytes, level),
        Compression::Zstd(level, checksum) => {
            let compress = || {
                let mut compressor = zstd::bulk::Compressor::new(level)?;
                compressor.include_checksum(checksum)?;
                compressor.compress(bytes)
            };
            compress().map_err(|error: std::io::Error| error.to_string())
        }
        Compression::Lz4 => {
            let length = u32::try_from(bytes.len()).map_err(|_| "it is too large for LZ4, which ends at 4 GiB")?;
            Ok([&length.to_le_bytes(), lz4_flex::block::compress(bytes).as_slice()].concat())
        }
        Compression::Blosc(settings) => blosc::encode(bytes, settings, width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_return_and_notice_damage() {
        let voxels: Vec<u8> = (0..2 * 3 * 4 * 2).collect();
        let every = [
            Compression::None,
            Compression::Gzip(5),
            Compression::Zlib(1),
            Compression::Zstd(3, true),
            Compression::Lz4,
        ];
        for compression in every {
            let mut chain = Chain::new(compression, true);
            chain.order = Some(vec![2, 0, 1]);
            chain.big_endian = true;
            let mut bytes = chain.encode(&voxels, &[2, 3, 4], Dtype::UInt16).unwrap();
            assert_eq!(chain.decode(&bytes, &[2, 3, 4], Dtype::UInt16).unwrap(), voxels, "{compression:?}");
            assert!(chain.decode(&bytes, &[2, 3, 5], Dtype::UInt16).is_err(), "{compression:?}");
            bytes[3] ^= 1;
            let problem = chain.decode(&bytes, &[2, 3, 4], Dtype::UInt16).unwrap_err();
            assert!(problem.contains("checksum"), "{problem}");
        }
    }

    #[test]
    fn a_bomb_is_not_unpacked() {
        let bytes = deflate(&vec![0; 1 << 24], 9).unwrap();
        assert!(inflate(&bytes, 1000).unwrap_err().contains("more than 1000"));
        assert!(decompress(Compression::Zstd(1, false), &zstd::bulk::compress(&[0; 4096], 1).unwrap(), 100).is_err());
    }
}
