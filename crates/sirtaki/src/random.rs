//! Random numbers that are the same on every machine and in every version.
//!
//! The order of samples is part of what a checkpoint continues, so it must never change because a dependency has
//! changed. The generator is therefore written here, in terms of its published definition: xoshiro256++ (Blackman and
//! Vigna), its state filled by SplitMix64 (Steele, Lea and Flood). Streams are derived from numbers such as (seed,
//! step, shard), not from one another, so a process can use any of them without generating those before it. Not for
//! secrets.

use serde::{Deserialize, Serialize};

/// One stream of random numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    state: [u64; 4],
}

/// Adds what SplitMix64 adds per step and mixes the bits: each bit of the input changes half of those of the output.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream that belongs to these numbers, in this order; `purpose` distinguishes uses of the same numbers.
    pub fn new(purpose: &str, key: &[u64]) -> Self {
        let mut hash = mix(purpose.len() as u64);
        for byte in purpose.bytes() {
            hash = mix(hash ^ u64::from(byte));
        }
        hash = mix(hash ^ key.len() as u64);
        for &number in key {
            hash = mix(hash.rotate_left(17) ^ mix(number));
        }
        let mut state = [0; 4];
        for word in &mut state {
            *word = mix(hash);
            hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        Self { state }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number from 0 to `limit - 1`, all equally likely; 0 for a limit of 0.
    ///
    /// The upper half of a product (Lemire); the few values that would make some results likelier are thrown away.
    pub fn below(&mut self, limit: u64) -> u64 {
        loop {
            let product = u128::from(self.bits()) * u128::from(limit);
            let (high, low) = ((product >> 64) as u64, product as u64);
            if low >= limit || low >= limit.wrapping_neg() % limit.max(1) {
                return high;
            }
        }
    }

    /// A number from 0 to below 1, in steps of 2⁻²⁴, so that every one of them is an `f32`.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u32 << 24) as f32
    }

    /// Puts values into random order (Fisher and Yates, from the end).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            values.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_are_the_published_ones() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 7_960_286_522_194_355_700);
        let mut stream = Stream { state: [1, 2, 3, 4] };
        let expected =
            [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386, 9_228_616_714_210_784_205];
        assert_eq!(expected.map(|_| stream.bits()), expected);
    }

    /// These numbers must never change: checkpoints and published results depend on them.
    #[test]
    fn streams_stay_what_they_are() {
        let mut stream = Stream::new("order", &[42, 7]);
        let mut values: Vec<u32> = (0..10).collect();
        stream.shuffle(&mut values);
        assert_eq!(values, [4, 1, 9, 5, 8, 2, 0, 6, 3, 7]);
        assert_eq!(stream.bits(), 12_679_220_402_306_058_916);
        assert_eq!(stream.below(1000), 296);
        assert_eq!((stream.unit() * (1 << 24) as f32) as u32, 15_567_382);
    }

    #[test]
    fn streams_of_different_keys_differ() {
        let keys: [&[u64]; 7] = [&[], &[0], &[0, 0], &[1], &[0, 1], &[1, 0], &[u64::MAX]];
        let mut firsts: Vec<u64> = keys.iter().map(|key| Stream::new("a", key).bits()).collect();
        firsts.extend(keys.iter().map(|key| Stream::new("b", key).bits()));
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 14);
    }

    #[test]
    fn numbers_are_within_limits_and_evenly_spread() {
        let mut stream = Stream::new("test", &[1]);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[stream.below(6) as usize] += 1;
            let unit = stream.unit();
            assert!((0.0..1.0).contains(&unit));
        }
        assert!(counts.iter().all(|&count| (9_600..10_400).contains(&count)), "{counts:?}");
        assert_eq!(stream.below(0), 0);
        assert_eq!(stream.below(1), 0);
        for _ in 0..1000 {
            assert!(stream.below(u64::MAX) < u64::MAX);
        }
    }

    #[test]
    fn every_order_of_three_comes_equally_often() {
        let mut stream = Stream::new("test", &[2]);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut values = [0, 1, 2];
            stream.shuffle(&mut values);
            *counts.entry(values).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
