//! A kernel that moves over images: which pixel is under which part of it at which place.

use std::ops::Range;

/// A kernel and what it moves over, by height and width.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    image: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    places: [usize; 2],
}

impl Window {
    /// None if the kernel is larger than the image and its padding, or does not move.
    pub(super) fn new(
        image: [usize; 2],
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
    ) -> Option<Self> {
        let places = |axis: usize| {
            let reach = kernel[axis].checked_sub(1)? * dilation[axis] + 1;
            let way = (image[axis] + 2 * padding[axis]).checked_sub(reach)?;
            Some(way.checked_div(stride[axis])? + 1)
        };
        Some(Self { image, kernel, stride, padding, dilation, places: [places(0)?, places(1)?] })
    }

    /// Pixels of an image.
    pub(super) fn pixels(&self) -> usize {
        self.image[0] * self.image[1]
    }

    /// Parts of a kernel.
    pub(super) fn parts(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Number of places that the kernel takes, by height and width.
    pub(super) fn places(&self) -> [usize; 2] {
        self.places
    }

    /// Calls `visit` with every row of places under every part of the kernel: where the row begins in a matrix of parts
    /// by places, the columns of it that lie on the image, and the pixel of the first of them.
    fn rows(&self, mut visit: impl FnMut(usize, Range<usize>, usize)) {
        let [height, width] = self.places;
        for part in 0..self.parts() {
            let offset = [part / self.kernel[1] * self.dilation[0], part % self.kernel[1] * self.dilation[1]];
            let columns = self.inside(1, offset[1]);
            for row in 0..height {
                let start = (part * height + row) * width;
                let line = (row * self.stride[0] + offset[0]).wrapping_sub(self.padding[0]);
                let on_image = if line < self.image[0] { columns.clone() } else { 0..0 };
                let first = on_image.start * self.stride[1] + offset[1];
                visit(
                    start,
                    on_image,
                    line.wrapping_mul(self.image[1]).wrapping_add(first).wrapping_sub(self.padding[1]),
                );
            }
        }
    }

    /// The places along an axis where a part that is `offset` after the kernel's beginning lies on the image.
    fn inside(&self, axis: usize, offset: usize) -> Range<usize> {
        let (stride, padding) = (self.stride[axis], self.padding[axis]);
        let start = padding.saturating_sub(offset).div_ceil(stride);
        let end = (self.image[axis] + padding).saturating_sub(offset).div_ceil(stride);
        start.min(self.places[axis])..end.min(self.places[axis])
    }

    /// What lies under each part of the kernel at each place; zero outside the image.
    pub(super) fn unfold(&self, image: &[f32], matrix: &mut [f32]) {
        let (width, stride) = (self.places[1], self.stride[1]);
        self.rows(|start, inside, pixel| {
            let row = &mut matrix[start..start + width];
            row[..inside.start].fill(0.0);
            row[inside.end..].fill(0.0);
            let row = &mut row[inside];
            if stride == 1 && !row.is_empty() {
                row.copy_from_slice(&image[pixel..pixel + row.len()]);
            } else {
                row.iter_mut().enumerate().for_each(|(place, value)| *value = image[pixel + place * stride]);
            }
        });
    }

    /// Adds what was found at each place to the pixels that lie there.
    pub(super) fn fold(&self, matrix: &[f32], image: &mut [f32]) {
        let stride = self.stride[1];
        self.rows(|start, inside, pixel| {
            let row = &matrix[start..][inside];
            if stride == 1 && !row.is_empty() {
                image[pixel..pixel + row.len()].iter_mut().zip(row).for_each(|(pixel, value)| *pixel += value);
            } else {
                row.iter().enumerate().for_each(|(place, value)| image[pixel + place * stride] += value);
            }
        });
    }
}
