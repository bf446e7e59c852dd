//! Memory that is kept between calls, so that the hot path does not allocate.

use bytemuck::{Pod, Zeroable};

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes at a multiple of 64, fit for any element type.
#[derive(Debug, Default)]
pub struct Scratch {
    lines: Vec<Line>,
}

impl Scratch {
    /// Memory beyond this is given back to the system after use.
    const KEPT: usize = 16 << 20;

    /// The first `length` bytes; what is in them is unspecified.
    pub fn bytes(&mut self, length: usize) -> &mut [u8] {
        let lines = length.div_ceil(size_of::<Line>());
        if self.lines.len() < lines {
            self.lines = vec![Line::zeroed(); lines];
        }
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..length]
    }

    /// Frees memory that is too large to keep.
    pub(super) fn trim(&mut self) {
        if self.lines.len() * size_of::<Line>() > Self::KEPT {
            self.lines = Vec::new();
        }
    }
}
