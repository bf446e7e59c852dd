//! The logarithm of the expected improvement, exact however small the improvement is.
//!
//! The expected improvement itself underflows far from the optimum, where its surface becomes flat and an optimizer
//! blind; its logarithm does not (Ament and others, 2023). With z = (best − mean) / deviation it is
//! ln h(z) + ln deviation, where h(z) = φ(z) + z Φ(z). For negative z both terms of h cancel; the continued fraction
//! of Mills' ratio, 1 / f with f = t + 1 / g and g = t + 2 / (t + 3 / (t + …)), t = −z, gives h = φ / (f g) and Φ / h = g
//! without any difference.

use std::f64::consts::PI;

/// Where the series for Φ hands over to the continued fraction.
const TAIL: f64 = -2.0;

/// ln h(z) and its derivative Φ(z) / h(z).
pub(crate) fn log_h(z: f64) -> (f64, f64) {
    if z > TAIL {
        let (density, below) = (density(z), cumulative(z));
        let h = density + z * below;
        (h.ln(), below / h)
    } else {
        let t = -z;
        let g = tail_fraction(t);
        let f = t + 1.0 / g;
        (-0.5 * z * z - 0.5 * (2.0 * PI).ln() - (f * g).ln(), g)
    }
}

/// The logarithm of the expected improvement below `best`, and its derivatives by mean and deviation.
pub(crate) fn log_expected_improvement(mean: f64, deviation: f64, best: f64) -> (f64, f64, f64) {
    let z = (best - mean) / deviation;
    let (value, slope) = log_h(z);
    (value + deviation.ln(), -slope / deviation, (1.0 - slope * z) / deviation)
}

/// ln Φ(z) and its derivative φ(z) / Φ(z).
pub(crate) fn log_cumulative(z: f64) -> (f64, f64) {
    if z > TAIL {
        let below = cumulative(z);
        (below.ln(), density(z) / below)
    } else {
        let t = -z;
        let f = t + 1.0 / tail_fraction(t);
        (-0.5 * z * z - 0.5 * (2.0 * PI).ln() - f.ln(), f)
    }
}

/// g(t) = t + 2 / (t + 3 / (t + …)) for t ≥ 2; the number of terms is what 2 needs for full precision.
fn tail_fraction(t: f64) -> f64 {
    let terms = if t > 6.0 { 24 } else { 120 };
    let mut fraction = t;
    for k in (2..terms).rev() {
        fraction = t + f64::from(k) / fraction;
    }
    fraction
}

/// φ, the density of the normal distribution.
fn density(z: f64) -> f64 {
    (-0.5 * z * z).exp() / (2.0 * PI).sqrt()
}

/// Φ for z above [`TAIL`]: by its series around 0, and by the continued fraction far above it.
fn cumulative(z: f64) -> f64 {
    if z > 3.0 {
        let f = z + 1.0 / tail_fraction(z);
        return 1.0 - density(z) / f;
    }
    let (mut term, mut sum) = (z, z);
    let mut k = 3.0;
    while term.abs() > 1e-17 * sum.abs() {
        term *= z * z / k;
        sum += term;
        k += 2.0;
    }
    0.5 + density(z) * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// z and ln h(z), computed with 80 digits.
    const LOG_H: [(f64, f64); 15] = [
        (-1e6, -500_000_000_028.55),
        (-1e3, -500_014.734_452_091_16),
        (-40.0, -808.298_568_356_62),
        (-10.0, -55.553_122_036_122_35),
        (-6.0, -22.578_879_392_169_796),
        (-4.0, -11.849_061_577_550_662),
        (-2.0, -4.768_783_523_917_114),
        (-1.9, -4.504_931_161_621_667),
        (-1.0, -2.485_121_025_712_641_3),
        (-0.1, -1.047_153_314_072_846),
        (0.0, -0.918_938_533_204_672_8),
        (0.5, -0.359_827_683_745_063_8),
        (2.0, 0.697_383_545_788_228_4),
        (3.5, 1.252_779_677_189_611_6),
        (10.0, std::f64::consts::LN_10),
    ];
    /// z and ln Φ(z), computed with 80 digits.
    const LOG_CUMULATIVE: [(f64, f64); 13] = [
        (-1e3, -500_007.826_694_812_16),
        (-40.0, -804.608_442_013_753_8),
        (-10.0, -53.231_285_150_512_47),
        (-6.0, -20.736_768_949_974_707),
        (-4.0, -10.360_101_486_527_292),
        (-2.0, -3.783_184_333_682_032),
        (-1.9, -3.550_281_325_542_134_6),
        (-1.0, -1.841_021_645_009_263_6),
        (-0.1, -0.776_154_592_730_273_3),
        (0.0, -std::f64::consts::LN_2),
        (0.5, -0.368_946_415_288_656_4),
        (2.0, -0.023_012_909_328_963_49),
        (3.5, -0.000_232_656_141_376_804_55),
    ];

    #[test]
    fn values_are_exact_over_the_whole_range() {
        for (z, expected) in LOG_H {
            let (value, _) = log_h(z);
            assert!((value - expected).abs() <= 4e-14 * expected.abs().max(1.0), "{z}: {value} instead of {expected}");
        }
        for (z, expected) in LOG_CUMULATIVE {
            let (value, _) = log_cumulative(z);
            assert!((value - expected).abs() <= 1e-13 * expected.abs(), "{z}: {value} instead of {expected}");
        }
    }

    #[test]
    fn derivatives_are_those_of_the_values() {
        for z in [-300.0, -20.0, -5.0, -2.1, -1.9, -0.5, 0.0, 0.7, 2.5, 4.0] {
            let step = 1e-6 * f64::max(1.0, f64::abs(z));
            let slope = |f: fn(f64) -> (f64, f64)| (f(z + step).0 - f(z - step).0) / (2.0 * step);
            for f in [log_h, log_cumulative] {
                assert!((slope(f) - f(z).1).abs() < 1e-6 * f64::max(1.0, f(z).1), "{z}: {} {}", slope(f), f(z).1);
            }
        }
        let (mean, deviation, best, step) = (1.5, 0.2, 0.3, 1e-6);
        let value = |mean: f64, deviation: f64| log_expected_improvement(mean, deviation, best).0;
        let (_, by_mean, by_deviation) = log_expected_improvement(mean, deviation, best);
        let by_mean_too = (value(mean + step, deviation) - value(mean - step, deviation)) / (2.0 * step);
        let by_deviation_too = (value(mean, deviation + step) - value(mean, deviation - step)) / (2.0 * step);
        assert!((by_mean - by_mean_too).abs() < 1e-4 && (by_deviation - by_deviation_too).abs() < 1e-3);
    }
}
