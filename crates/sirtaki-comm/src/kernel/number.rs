//! How two numbers become one, for every type that sums are kept in.

use bytemuck::{Pod, Zeroable};

/// Arithmetic of one type with itself.
pub(super) trait Number: Copy + Default {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
}

/// An operation as a type, so that loops are compiled once per operation.
pub(super) trait Op {
    fn apply<N: Number>(a: N, b: N) -> N;
}

macro_rules! ops {
    ($($op:ident: $method:ident),*) => {$(
        pub(super) struct $op;

        impl Op for $op {
            #[inline(always)]
            fn apply<N: Number>(a: N, b: N) -> N {
                N::$method(a, b)
            }
        }
    )*};
}
ops!(Sum: sum, Product: product, Min: min, Max: max);

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Number for $int {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
        }
    )*};
}
integers!(i8, u8, i32, i64);

// Minimum and maximum have the same bits in either order: -0 is below +0, and a NaN becomes the standard one.
macro_rules! floats {
    ($($float:ty),*) => {$(
        impl Number for $float {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                let equal = Self::from_bits(self.to_bits() | other.to_bits());
                let ordered = if self < other { self } else { other };
                let number = if self == other { equal } else { ordered };
                if self.is_nan() | other.is_nan() { Self::NAN } else { number }
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let equal = Self::from_bits(self.to_bits() & other.to_bits());
                let ordered = if self > other { self } else { other };
                let number = if self == other { equal } else { ordered };
                if self.is_nan() | other.is_nan() { Self::NAN } else { number }
            }
        }
    )*};
}
floats!(f32, f64);

/// A boolean as it travels: any byte but zero is true, results are zero or one.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(transparent)]
pub(super) struct Truth(u8);

impl Truth {
    #[inline(always)]
    pub(super) fn normal(self) -> Self {
        Truth(u8::from(self.0 != 0))
    }
}

impl Number for Truth {
    #[inline(always)]
    fn sum(self, other: Self) -> Self {
        Truth(self.0 | other.0).normal()
    }

    #[inline(always)]
    fn product(self, other: Self) -> Self {
        Truth(self.normal().0 & other.normal().0)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.product(other)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.sum(other)
    }
}

/// An integer wide enough for scaled sums of a narrower one; it saturates.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Wide<I>(pub(super) I);

macro_rules! wide {
    ($($int:ty),*) => {$(
        impl Number for Wide<$int> {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                Wide(self.0.saturating_add(other.0))
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                Wide(self.0.saturating_mul(other.0))
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Wide(Ord::min(self.0, other.0))
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Wide(Ord::max(self.0, other.0))
            }
        }
    )*};
}
wide!(i64, i128);
