//! Planes through a volume as pictures in a page.
//!
//! Pictures are uncompressed bitmaps inside the page, which every browser shows and which need no library.

use anyhow::Result;
use sirtaki_infer::source::Source;
use sirtaki_volume::Region;

/// The most voxels along an edge of a picture; of larger planes, the middle is shown.
const MOST: u64 = 768;
/// The share of values at each end that are shown black or white.
const ENDS: f64 = 0.01;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A plane of a volume, across one of its axes.
pub(super) struct Slice {
    rows: usize,
    columns: usize,
    values: Vec<f32>,
}

impl Slice {
    /// The plane at this part of an axis of space, of one channel. A volume with two axes is one plane.
    pub(super) fn read(source: &Source, channel: u64, axis: usize, part: f64) -> Result<Self> {
        let sizes = source.extent().map_err(sirtaki_infer::InferError::from)?.sizes().to_vec();
        let across = sizes.len() > 2;
        let middle = |size: u64| ((size - size.min(MOST)) / 2, size.min(MOST));
        let (mut start, mut size): (Vec<u64>, Vec<u64>) = sizes.iter().map(|size| middle(*size)).unzip();
        if across {
            start[axis] = ((sizes[axis] as f64 * part) as u64).min(sizes[axis] - 1);
            size[axis] = 1;
        }
        let edges: Vec<usize> =
            (0..size.len()).filter(|other| !across || *other != axis).map(|other| size[other] as usize).collect();
        let region = Region::new(start, size).map_err(sirtaki_infer::InferError::from)?;
        let values = source.read(&region, &[channel]).map_err(sirtaki_infer::InferError::from)?;
        let columns = edges.last().copied().unwrap_or(1);
        Ok(Self { rows: values.len() / columns, columns, values })
    }

    /// Numbers of objects as greys by which neighbours can be told apart, whatever their numbers.
    pub(super) fn of_objects(mut self) -> Self {
        for value in self.values.iter_mut().filter(|value| **value != 0.0) {
            let scattered = (*value as u32).wrapping_mul(0x9e37_79b1) >> 24;
            *value = 64.0 + (scattered % 192) as f32;
        }
        self
    }

    /// As a picture for a page; `title` is for those who cannot see it.
    pub(super) fn svg(&self, title: &str) -> String {
        let (low, high) = self.ends();
        let Self { rows, columns, .. } = self;
        format!(
            "<svg viewBox=\"0 0 {columns} {rows}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\"><title>{title}</title>\
             <desc>{rows} by {columns} voxels, values from {low:.3} (black) to {high:.3} (white)</desc>\
             <image width=\"{columns}\" height=\"{rows}\" style=\"image-rendering:pixelated\" \
             href=\"data:image/bmp;base64,{}\"/></svg>",
            base64(&self.bitmap(low, high))
        )
    }

    /// The values that are shown black and white.
    fn ends(&self) -> (f32, f32) {
        let mut sorted: Vec<f32> = self.values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f32::total_cmp);
        let at = |part: f64| sorted.get(((sorted.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0.0);
        match (at(ENDS), at(1.0 - ENDS)) {
            // Few voxels of a class would not be seen.
            (low, high) if low == high => (at(0.0), at(1.0)),
            ends => ends,
        }
    }

    /// A file of 8 bits per voxel with a palette of greys, rows from the bottom up.
    fn bitmap(&self, low: f32, high: f32) -> Vec<u8> {
        let (row, head) = (self.columns.next_multiple_of(4), 14 + 40 + 4 * 256);
        let number = |value: usize| (value as u32).to_le_bytes();
        let mut bytes = b"BM".to_vec();
        bytes.extend([number(head + row * self.rows), number(0), number(head)].concat());
        bytes.extend([number(40), number(self.columns), number(self.rows)].concat());
        bytes.extend([1, 0, 8, 0]);
        bytes.extend([number(0), number(row * self.rows), number(2835), number(2835), number(256), number(0)].concat());
        bytes.extend((0..=255_u8).flat_map(|grey| [grey, grey, grey, 0]));
        let grey = |value: &f32| ((value - low) / (high - low).max(f32::MIN_POSITIVE) * 255.0).clamp(0.0, 255.0) as u8;
        for line in self.values.chunks_exact(self.columns).rev() {
            bytes.extend(line.iter().map(grey).chain(std::iter::repeat_n(0, row - self.columns)));
        }
        bytes
    }
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_letters() {
        assert_eq!([&b""[..], b"f", b"fo", b"foo", b"foob"].map(base64), ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
    }

    #[test]
    fn a_plane_is_a_bitmap() {
        let slice = Slice { rows: 2, columns: 3, values: vec![0.0, 1.0, 2.0, 3.0, 4.0, f32::NAN] };
        let bytes = slice.bitmap(0.0, 4.0);
        assert_eq!(bytes.len(), 14 + 40 + 1024 + 2 * 4);
        assert_eq!(bytes[bytes.len() - 8..], [191, 255, 0, 0, 0, 63, 127, 0]);
        assert_eq!(slice.ends(), (0.0, 3.0));
    }
}
