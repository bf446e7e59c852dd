//! Multiplying by a factor, for every type that sums are kept in.

use super::{
    number::{Number, Truth, Wide},
    versions::versioned,
};

/// Multiplying a row of numbers in place.
pub(super) trait Scale: Number {
    fn scale(data: &mut [Self], factor: f64);
}

/// A floating-point type that factors are applied in.
pub(super) trait Float: Scale {
    /// The factor in this type, if it can be represented exactly.
    fn exactly(factor: f64) -> Option<Self>;
    fn times(self, factor: Self) -> Self;
}

versioned! {
    fn multiply<F: Float>(data: &mut [F], factor: F) {
        for x in data {
            *x = x.times(factor);
        }
    }
}

versioned! {
    fn multiply_wider<F: Through>(data: &mut [F], factor: f64) {
        for x in data {
            *x = x.through(factor);
        }
    }
}

/// One multiplication in `f64`, whatever the type.
trait Through: Copy {
    fn through(self, factor: f64) -> Self;
}

impl Through for f32 {
    #[inline(always)]
    fn through(self, factor: f64) -> f32 {
        (f64::from(self) * factor) as f32
    }
}

impl Float for f32 {
    #[inline(always)]
    fn exactly(factor: f64) -> Option<f32> {
        (f64::from(factor as f32) == factor).then_some(factor as f32)
    }

    #[inline(always)]
    fn times(self, factor: f32) -> f32 {
        self * factor
    }
}

impl Scale for f32 {
    /// As if multiplied in `f64`. A product of two `f32` is exact there, so a factor that is one needs no conversion.
    fn scale(data: &mut [f32], factor: f64) {
        match f32::exactly(factor) {
            Some(1.0) => {}
            Some(short) => multiply(data, short),
            None => multiply_wider(data, factor),
        }
    }
}

impl Float for f64 {
    #[inline(always)]
    fn exactly(factor: f64) -> Option<f64> {
        Some(factor)
    }

    #[inline(always)]
    fn times(self, factor: f64) -> f64 {
        self * factor
    }
}

impl Scale for f64 {
    fn scale(data: &mut [f64], factor: f64) {
        if factor != 1.0 {
            multiply(data, factor);
        }
    }
}

/// A factor for integers. Whole factors and divisors are exact; in particular the average of equal numbers is that
/// number, which multiplying by a rounded `1/n` would miss by one for some `n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Factor {
    Times(i64),
    Over(i64),
    Real(f64),
}

impl Factor {
    pub(crate) fn new(factor: f64) -> Factor {
        const EXACT: f64 = (1u64 << 53) as f64;
        let divisor = factor.recip().round();
        if factor.abs() <= EXACT && factor.trunc() == factor {
            Factor::Times(factor as i64)
        } else if (1.0..=EXACT).contains(&divisor.abs()) && divisor.recip() == factor {
            Factor::Over(divisor as i64)
        } else {
            Factor::Real(factor)
        }
    }
}

macro_rules! integers {
    ($($wide:ty),*) => {$(
        impl Scale for Wide<$wide> {
            /// Rounds toward zero and saturates.
            fn scale(data: &mut [Self], factor: f64) {
                match Factor::new(factor) {
                    Factor::Times(1) => {}
                    Factor::Times(times) => data.iter_mut().for_each(|x| x.0 = x.0.saturating_mul(times.into())),
                    Factor::Over(over) => data.iter_mut().for_each(|x| x.0 = x.0.saturating_div(over.into())),
                    Factor::Real(real) => data.iter_mut().for_each(|x| x.0 = (x.0 as f64 * real) as $wide),
                }
            }
        }
    )*};
}
integers!(i64, i128);

// Integers are scaled in a wider type, booleans not at all; plans ensure it.
macro_rules! unscaled {
    ($($number:ty),*) => {$(
        impl Scale for $number {
            fn scale(_: &mut [Self], factor: f64) {
                debug_assert_eq!(factor, 1.0, "a factor in a type that has none");
            }
        }
    )*};
}
unscaled!(i8, u8, i32, i64, Truth);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_of_equal_integers_is_exact() {
        for n in 1..5000i64 {
            let mut sum = [Wide(n * 7), Wide(-n * 7), Wide(n * 7 + n - 1)];
            Wide::scale(&mut sum, 1.0 / n as f64);
            assert_eq!(sum, [Wide(7), Wide(-7), Wide(7)], "{n}");
        }
    }

    #[test]
    fn factors_find_their_kind() {
        assert_eq!(Factor::new(-3.0), Factor::Times(-3));
        assert_eq!(Factor::new(0.0), Factor::Times(0));
        assert_eq!(Factor::new(0.25), Factor::Over(4));
        assert_eq!(Factor::new(0.3), Factor::Real(0.3));
        assert!(matches!(Factor::new(f64::NAN), Factor::Real(_)));
        assert_eq!(Factor::new(f64::INFINITY), Factor::Real(f64::INFINITY));
    }

    #[test]
    fn single_precision_is_scaled_as_in_double() {
        let mut data: Vec<f32> = (1..200).map(|i| 1.0 / i as f32).collect();
        let expected: Vec<f32> = data.iter().map(|&x| (f64::from(x) * 0.375) as f32).collect();
        f32::scale(&mut data, 0.375);
        assert_eq!(data, expected);
        let expected: Vec<f32> = data.iter().map(|&x| (f64::from(x) * 0.1) as f32).collect();
        f32::scale(&mut data, 0.1);
        assert_eq!(data, expected);
    }
}
