//! What an operator does along one axis: which of its input it needs for a stretch of its output, and how sizes change.
//!
//! Positions are whole numbers of the tensor's own voxels and may be negative, which is padding.

use serde::{Deserialize, Serialize};

/// A positive fraction in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ratio {
    over: u64,
    under: u64,
}

/// Sizes, steps and distances of one operator are no larger than this; scales of whole networks neither.
pub const MOST: u64 = 1 << 20;

impl Ratio {
    /// One.
    pub const ONE: Self = Self { over: 1, under: 1 };

    /// `over / under`, if both are between 1 and [`MOST`] in lowest terms.
    pub fn new(over: u64, under: u64) -> Option<Self> {
        let divisor = gcd(over, under);
        let (over, under) = (over.checked_div(divisor)?, under.checked_div(divisor)?);
        ((1..=MOST).contains(&over) && (1..=MOST).contains(&under)).then_some(Self { over, under })
    }

    /// The number above the line.
    pub fn over(self) -> u64 {
        self.over
    }

    /// The number below the line.
    pub fn under(self) -> u64 {
        self.under
    }

    /// The product of both, if it is not too large.
    pub fn times(self, other: Self) -> Option<Self> {
        Self::new(self.over * other.over, self.under * other.under)
    }

    /// One over it.
    pub fn inverse(self) -> Self {
        Self { over: self.under, under: self.over }
    }
}

/// The greatest common divisor; 0 for two zeros.
pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The least common multiple of two positive numbers, if it is no more than [`MOST`].
pub(crate) fn lcm(a: u64, b: u64) -> Option<u64> {
    (a / gcd(a, b)).checked_mul(b).filter(|multiple| *multiple <= MOST)
}

/// A window that moves over the input: a convolution, or pooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Voxels that it looks at.
    pub kernel: u64,
    /// Distance between those.
    pub dilation: u64,
    /// How far it moves from one voxel of the output to the next.
    pub stride: u64,
    /// Padding before the first voxel; negative where voxels are left out.
    pub before: i64,
    /// Padding after the last voxel.
    pub after: i64,
}

/// Where a resampled voxel is in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Centres {
    /// Voxels have an extent, and the outer faces of both grids agree: PyTorch's `align_corners=False`.
    HalfPixel,
    /// The first voxels of both grids agree.
    Asymmetric,
}

/// Which voxels a resampled one is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sampling {
    /// The one at or before its position.
    Floor,
    /// The one at or after its position.
    Ceil,
    /// The nearest, of two the first.
    RoundDown,
    /// The nearest, of two the second.
    RoundUp,
    /// The two around it.
    Linear,
    /// The four around it.
    Cubic,
}

/// What is put around a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fill {
    /// One value everywhere.
    Constant,
    /// The outermost voxels again.
    Edge,
    /// The voxels inside, mirrored.
    Mirror,
}

/// What an operator does along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Along {
    /// Each voxel is made of the one at its place.
    Same,
    /// A window moves over the input; with `ceil`, the last one may reach behind the end.
    Window {
        /// The window.
        window: Window,
        /// Whether the size is rounded up.
        ceil: bool,
    },
    /// A transposed convolution: each voxel of the input adds to a window of the output.
    Transposed {
        /// The window, with padding that is cut off from the output.
        window: Window,
        /// Voxels added at the end.
        extra: u64,
    },
    /// The tensor is enlarged by a factor, or reduced.
    Resample {
        /// The factor.
        by: Ratio,
        /// Where voxels are.
        centres: Centres,
        /// What they are made of.
        sampling: Sampling,
    },
    /// Something is put around the tensor, or cut off from it where the numbers are negative.
    Margin {
        /// Voxels before the first.
        before: i64,
        /// Voxels after the last.
        after: i64,
        /// What they are.
        fill: Fill,
    },
}

impl Along {
    /// The first and the last voxel of the input that an interval of the output needs.
    pub fn needs(&self, first: i128, last: i128) -> (i128, i128) {
        match *self {
            Along::Same => (first, last),
            Along::Window { window: Window { kernel, dilation, stride, before, .. }, .. } => {
                let (stride, before) = (i128::from(stride), i128::from(before));
                (first * stride - before, last * stride - before + i128::from(dilation) * i128::from(kernel - 1))
            }
            Along::Transposed { window: Window { kernel, dilation, stride, before, .. }, .. } => {
                let (stride, before) = (i128::from(stride), i128::from(before));
                let last = (last + before).div_euclid(stride);
                let first = first + before - i128::from(dilation) * i128::from(kernel - 1);
                // Between windows that do not touch there may be nothing; the voxel before the gap stands for it.
                (ceil(first, stride).min(last), last)
            }
            Along::Resample { by, centres, sampling } => {
                (sampling.span(centres, by, first).0, sampling.span(centres, by, last).1)
            }
            Along::Margin { before, .. } => (first - i128::from(before), last - i128::from(before)),
        }
    }

    /// The size of the output for this size of the input; none where the input is too small.
    pub fn size(&self, input: u64) -> Option<u64> {
        let all = i128::from(input);
        let size = match *self {
            Along::Same => all,
            Along::Window { window, ceil: round_up } => {
                let (stride, free) = (i128::from(window.stride), all + window.padding() - window.extent());
                if free < 0 {
                    return None;
                }
                let whole = if round_up { ceil(free, stride) } else { free / stride } + 1;
                // No window lies entirely behind the end.
                let outside = round_up && (whole - 1) * stride >= all + i128::from(window.before);
                whole - i128::from(outside)
            }
            Along::Transposed { window, extra } => {
                (all - 1) * i128::from(window.stride) + window.extent() + i128::from(extra) - window.padding()
            }
            Along::Resample { by, .. } => all * i128::from(by.over) / i128::from(by.under),
            Along::Margin { before, after, .. } => all + i128::from(before) + i128::from(after),
        };
        u64::try_from(size).ok().filter(|size| *size > 0)
    }

    /// How many voxels of the input one step of the output is.
    pub fn scale(&self) -> Option<Ratio> {
        match self {
            Along::Same | Along::Margin { .. } => Some(Ratio::ONE),
            Along::Window { window, .. } => Ratio::new(window.stride, 1),
            Along::Transposed { window, .. } => Ratio::new(1, window.stride),
            Along::Resample { by, .. } => Some(by.inverse()),
        }
    }

    /// Whether all its numbers are such that no arithmetic with them overflows.
    pub(crate) fn is_reasonable(&self) -> bool {
        let small = |value: u64| (1..=MOST).contains(&value);
        let near = |value: i64| value.unsigned_abs() <= i64::MAX.unsigned_abs() >> 1;
        let fits = |window: &Window| {
            small(window.kernel)
                && small(window.dilation)
                && small(window.stride)
                && near(window.before)
                && near(window.after)
        };
        match self {
            Along::Same | Along::Resample { .. } => true,
            Along::Window { window, .. } => fits(window),
            Along::Transposed { window, extra } => fits(window) && *extra <= MOST,
            Along::Margin { before, after, .. } => near(*before) && near(*after),
        }
    }
}

impl Window {
    fn extent(&self) -> i128 {
        i128::from(self.dilation) * i128::from(self.kernel - 1) + 1
    }

    fn padding(&self) -> i128 {
        i128::from(self.before) + i128::from(self.after)
    }
}

impl Sampling {
    /// The first and the last voxel that the one at `at` is made of.
    fn span(self, centres: Centres, by: Ratio, at: i128) -> (i128, i128) {
        let (over, under) = (i128::from(by.over), i128::from(by.under));
        // The position in the input is `above / below`.
        let below = 2 * over;
        let above = match centres {
            Centres::HalfPixel => (2 * at + 1) * under - over,
            Centres::Asymmetric => 2 * at * under,
        };
        let (floor, above_next) = (above.div_euclid(below), ceil(above, below));
        match self {
            Sampling::Floor => (floor, floor),
            Sampling::Ceil => (above_next, above_next),
            Sampling::RoundDown => (ceil(2 * above - below, 2 * below), ceil(2 * above - below, 2 * below)),
            Sampling::RoundUp => ((2 * above + below).div_euclid(2 * below), (2 * above + below).div_euclid(2 * below)),
            Sampling::Linear => (floor, above_next),
            Sampling::Cubic => (floor - 1, floor + 2),
        }
    }
}

/// Division by a positive number, rounded up.
fn ceil(value: i128, by: i128) -> i128 {
    -(-value).div_euclid(by)
}
