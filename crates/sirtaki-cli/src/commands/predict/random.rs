//! Numbers that look random and are always the same, and the largest of many normal ones without drawing them all. Pure.
//!
//! A synchronous step takes as long as that of the slowest worker. If the time of one varies normally, the slowest of n
//! has a distribution of its own, `Φ(x)^n`, whose quantiles follow from those of one. So a hundred thousand workers cost
//! as much to predict as two, and nothing depends on how many random numbers were drawn.

/// Numbers that look random and are always the same (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// From 0 to 1, never 0 itself.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed around 0 with a deviation of 1.
    pub(super) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// The value that the largest of `count` normal numbers does not exceed with this probability.
pub(super) fn largest_normal(count: usize, probability: f64) -> f64 {
    // One minus the count-th root of the probability, without losing the digits that matter if it is small.
    let beyond = -(probability.ln() / count.max(1) as f64).exp_m1();
    -normal_quantile(beyond)
}

/// Quantiles of the largest of `count` normal numbers, in the middle of `parts` equally probable parts: their mean is the
/// expected maximum.
pub(super) fn largest_normals(count: usize, parts: usize) -> impl ExactSizeIterator<Item = f64> {
    (0..parts).map(move |part| largest_normal(count, (part as f64 + 0.5) / parts as f64))
}

/// The value below which a normal number is with this probability: Acklam's approximation, to nine digits.
fn normal_quantile(probability: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416, 1.0];
    /// Where the tails begin.
    const TAIL: f64 = 0.02425;
    let polynomial = |terms: &[f64], at: f64| terms.iter().fold(0.0, |sum, term| sum * at + term);
    let tail = |share: f64| {
        let at = (-2.0 * share.max(f64::MIN_POSITIVE).ln()).sqrt();
        polynomial(&C, at) / polynomial(&D, at)
    };
    if probability < TAIL {
        tail(probability)
    } else if probability > 1.0 - TAIL {
        -tail(1.0 - probability)
    } else {
        let from_middle = probability - 0.5;
        let square = from_middle * from_middle;
        from_middle * polynomial(&A, square) / polynomial(&B, square)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(one: f64, other: f64, within: f64) {
        assert!((one - other).abs() < within, "{one} and {other}");
    }

    fn expected(count: usize) -> f64 {
        largest_normals(count, 200).sum::<f64>() / 200.0
    }

    #[test]
    fn normal_numbers_are_normal() {
        let mut random = Random(1);
        let numbers: Vec<f64> = (0..10_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e4;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 1e4;
        near(mean, 0.0, 0.05);
        near(variance, 1.0, 0.05);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (probability, quantile) in [
            (0.5, 0.0),
            (0.841_344_746_068_543, 1.0),
            (0.975, 1.959_963_984_540_054),
            (0.01, -2.326_347_874_040_841),
            (1e-9, -5.997_807_015_007_687),
        ] {
            near(normal_quantile(probability), quantile, 1e-7);
        }
    }

    #[test]
    fn the_expected_maximum_is_the_known_one() {
        // Exactly 1/√π for two and 3/(2√π) for three; the others from tables of order statistics.
        let root = std::f64::consts::PI.sqrt();
        let known = [(1, 0.0), (2, 1.0 / root), (3, 1.5 / root), (10, 1.538_753), (100, 2.507_59), (1000, 3.241_44)];
        for (count, value) in known {
            near(expected(count), value, 0.01);
        }
    }

    #[test]
    fn the_expected_maximum_is_that_of_drawn_numbers() {
        let mut random = Random(7);
        for count in [2, 16, 512] {
            let mut largest = || (0..count).map(|_| random.normal()).fold(f64::MIN, f64::max);
            let drawn = (0..4000).map(|_| largest()).sum::<f64>() / 4000.0;
            near(expected(count), drawn, 0.05);
        }
    }

    proptest! {
        #[test]
        fn more_workers_have_a_slower_slowest(count in 1_usize..100_000, more in 1_usize..100_000, part in 0.001..0.999) {
            prop_assert!(largest_normal(count + more, part) >= largest_normal(count, part));
            prop_assert!(largest_normal(count, part).is_finite());
        }
    }
}
