//! Compression by deflate, with limits on what comes out.

use std::io::{Read, Write};

use flate2::{
    Compression as Level,
    read::{MultiGzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};

/// Compresses with zlib.
pub(super) fn deflate(bytes: &[u8], level: u32) -> Result<Vec<u8>, String> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Level::new(level.min(9)));
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|error| error.to_string())
}

/// Decompresses with zlib; more than expected is an error.
pub(super) fn inflate(bytes: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    read_all(ZlibDecoder::new(bytes), expected)
}

fn read_all(decoder: impl Read, expected: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    decoder.take(expected as u64 + 1).read_to_end(&mut out).map_err(|error| error.to_string())?;
    match out.len() > expected {
        true => Err(format!("it holds more than {expected} bytes")),
        false => Ok(out),
    }
}

/// Compresses with gzip.
pub(super) fn gzip(bytes: &[u8], level: u32) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Level::new(level.min(9)));
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|error| error.to_string())
}

/// Decompresses with gzip, as [`inflate`] does.
pub(super) fn gunzip(bytes: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    read_all(MultiGzDecoder::new(bytes), expected)
}
