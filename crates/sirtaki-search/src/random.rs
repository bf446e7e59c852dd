//! Random numbers that are the same everywhere: xoshiro256++, seeded by SplitMix64 from a seed and any number of further
//! words, such as the number of a trial. A stream per trial instead of one for the study is what makes suggestions
//! independent of how often somebody asked before.

use std::f64::consts::TAU;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

/// One step of SplitMix64, which spreads the bits of its state over a word.
pub fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Random {
    /// The stream of `seed` and `words`.
    pub fn new(seed: u64, words: &[u64]) -> Self {
        let mut state = words.iter().fold(mix(seed), |state, word| mix(state ^ mix(*word)));
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(state)
        }))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of the standard normal distribution.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// A whole number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// An index chosen in proportion to `weights`, which are not negative and not all 0.
    pub fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.uniform() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return index;
            }
        }
        weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0)
    }

    /// Brings `items` into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let first = |seed, words: &[u64]| Random::new(seed, words).bits();
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(1, &[3, 2]));
        assert_ne!(first(1, &[2]), first(2, &[2]));
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut random = Random::new(5, &[]);
        let mean = |draw: &mut dyn FnMut() -> f64| (0..20_000).map(|_| draw()).sum::<f64>() / 20_000.0;
        assert!((mean(&mut || random.uniform()) - 0.5).abs() < 0.02);
        assert!(mean(&mut || random.normal()).abs() < 0.03);
        assert!((mean(&mut || random.normal().powi(2)) - 1.0).abs() < 0.05);
        assert!((mean(&mut || random.below(7) as f64) - 3.0).abs() < 0.1);
        assert!((mean(&mut || random.weighted(&[1.0, 0.0, 3.0]) as f64) - 1.5).abs() < 0.05);
    }
}
