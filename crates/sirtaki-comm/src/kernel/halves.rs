//! Halves to `f32` and back, a row at a time.
//!
//! Rounding is to nearest, ties to even, in every version, so ranks on different processors agree.

use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::versions::versioned;

/// A 16-bit floating-point type.
pub(super) trait Half: Copy {
    fn lengthen(from: &[Self], to: &mut [f32]);
    fn shorten(from: &[f32], to: &mut [Self]);
}

impl Half for f16 {
    fn lengthen(from: &[f16], to: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if f16c::present() {
            // SAFETY: this processor has f16c.
            return unsafe { f16c::lengthen(from, to) };
        }
        from.convert_to_f32_slice(to);
    }

    fn shorten(from: &[f32], to: &mut [f16]) {
        #[cfg(target_arch = "x86_64")]
        if f16c::present() {
            // SAFETY: this processor has f16c.
            return unsafe { f16c::shorten(from, to) };
        }
        to.convert_from_f32_slice(from);
    }
}

/// The conversion instructions of x86. The `half` crate has them too, but behind a call for every eight elements.
#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::*;

    use half::{f16, slice::HalfFloatSliceExt};

    pub(super) fn present() -> bool {
        std::arch::is_x86_feature_detected!("f16c")
    }

    #[target_feature(enable = "f16c")]
    pub(super) fn lengthen(from: &[f16], to: &mut [f32]) {
        assert_eq!(from.len(), to.len());
        let (rows, rest) = from.as_chunks::<8>();
        let (to_rows, to_rest) = to.as_chunks_mut::<8>();
        for (row, to) in rows.iter().zip(to_rows) {
            // SAFETY: both are eight elements long, and these instructions need no alignment.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(row.as_ptr().cast()))) };
        }
        rest.convert_to_f32_slice(to_rest);
    }

    #[target_feature(enable = "f16c")]
    pub(super) fn shorten(from: &[f32], to: &mut [f16]) {
        assert_eq!(from.len(), to.len());
        let (rows, rest) = from.as_chunks::<8>();
        let (to_rows, to_rest) = to.as_chunks_mut::<8>();
        for (row, to) in rows.iter().zip(to_rows) {
            // SAFETY: both are eight elements long, and these instructions need no alignment.
            unsafe {
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(row.as_ptr()));
                _mm_storeu_si128(to.as_mut_ptr().cast(), halves);
            }
        }
        to_rest.convert_from_f32_slice(rest);
    }
}

#[inline(always)]
fn round(value: f32) -> bf16 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let quiet = bits | 0x0040_0000;
    bf16::from_bits(((if value.is_nan() { quiet } else { nearest }) >> 16) as u16)
}

/// A placeholder bound: [`versioned!`] functions have at least one type parameter.
trait Any {}
impl Any for () {}

versioned! {
    fn shorten<A: Any>(from: &[f32], to: &mut [bf16]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = round(from);
        }
    }
}

versioned! {
    fn lengthen<A: Any>(from: &[bf16], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = f32::from_bits(u32::from(from.to_bits()) << 16);
        }
    }
}

impl Half for bf16 {
    fn lengthen(from: &[bf16], to: &mut [f32]) {
        lengthen::<()>(from, to);
    }

    fn shorten(from: &[f32], to: &mut [bf16]) {
        shorten::<()>(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interesting() -> Vec<f32> {
        let near = (0..=u16::MAX).flat_map(|high| {
            let base = u32::from(high) << 16;
            [0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff].map(|low| f32::from_bits(base | low))
        });
        near.collect()
    }

    #[test]
    fn rounding_agrees_with_the_half_crate() {
        let from = interesting();
        let mut short = vec![f16::ZERO; from.len()];
        f16::shorten(&from, &mut short);
        for (&from, short) in from.iter().zip(&short) {
            let expected = f16::from_f32(from);
            assert!(expected.to_bits() == short.to_bits() || from.is_nan() && short.is_nan(), "{from:e}");
        }
        let mut short = vec![bf16::ZERO; from.len()];
        bf16::shorten(&from, &mut short);
        for (&from, short) in from.iter().zip(&short) {
            assert_eq!(bf16::from_f32(from).to_bits(), short.to_bits(), "{from:e}");
        }
    }

    #[test]
    fn every_half_becomes_its_value() {
        let mut long = vec![0f32; 1 << 16];
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        f16::lengthen(&all, &mut long);
        assert!(all.iter().zip(&long).all(|(half, &long)| half.to_f32() == long || long.is_nan() && half.is_nan()));
        let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        bf16::lengthen(&all, &mut long);
        assert!(all.iter().zip(&long).all(|(half, &long)| half.to_f32() == long || long.is_nan() && half.is_nan()));
    }
}
