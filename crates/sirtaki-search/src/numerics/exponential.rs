//! `exp` of many numbers that are not positive, several at a time.
//!
//! Most of the time of small Gaussian processes is exponentials. The library's function takes one number and may
//! differ between systems in the last bit; this one has no branches, so a loop over it becomes vector instructions, and
//! it uses only operations that every processor rounds in the same way.

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// ln 2 in two parts, of which multiples up to 2¹⁰ of the first are exact.
const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// Adding this rounds to a whole number, which then is in the lowest bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// `exp(x)` for `x` up to 0, within a few units of the last place; below -700 it is that of -700.
#[inline]
pub(crate) fn exp_negative(x: f64) -> f64 {
    let x = if x > -700.0 { x } else { -700.0 };
    let shifted = x * LOG2_E + ROUNDER;
    let whole = shifted - ROUNDER;
    let r = (x - whole * LN2_HIGH) - whole * LN2_LOW;
    // Taylor's series up to r¹², |r| ≤ 0.35, summed in two halves.
    let r2 = r * r;
    let even = 1.0
        + r2 * (1.0 / 2.0
            + r2 * (1.0 / 24.0
                + r2 * (1.0 / 720.0 + r2 * (1.0 / 40_320.0 + r2 * (1.0 / 3_628_800.0 + r2 / 479_001_600.0)))));
    let odd = 1.0
        + r2 * (1.0 / 6.0
            + r2 * (1.0 / 120.0 + r2 * (1.0 / 5_040.0 + r2 * (1.0 / 362_880.0 + r2 * (1.0 / 39_916_800.0)))));
    let scale = f64::from_bits((shifted.to_bits().wrapping_add(1023)) << 52);
    (even + r * odd) * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_that_of_the_library() {
        for step in 0..70_000 {
            let x = -0.01 * f64::from(step);
            let (ours, theirs) = (exp_negative(x), x.exp());
            assert!((ours - theirs).abs() <= 1e-15 * theirs, "{x}: {ours} instead of {theirs}");
        }
        assert_eq!(exp_negative(0.0), 1.0);
        assert!(exp_negative(-1e9) < 1e-300 && exp_negative(f64::NEG_INFINITY) > 0.0);
    }
}
