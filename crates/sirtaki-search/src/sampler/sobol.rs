//! Points that fill the space evenly: Sobol's sequence, scrambled.
//!
//! The points of a trial follow from its number alone, so any number of trials can be asked for at once. Scrambling is
//! Owen's, by a hash of the bits (Laine and Karras): it keeps the evenness, makes every seed a study of its own, and
//! keeps points off the lower corner.

use super::{Question, Sampler, directions::DIRECTIONS};
use crate::{random::mix, space::Point};

/// Suggests the points of a scrambled Sobol sequence.
#[derive(Clone, Copy, Debug, Default)]
pub struct SobolSampler;

impl Sampler for SobolSampler {
    fn suggest(&mut self, question: &Question<'_>) -> Point {
        question.space.from_unit(&sobol(question.seed, question.number, question.space.len()))
    }
}

/// Point `number` of the sequence of `seed`, in `[0, 1)`. Coordinates beyond the 64th are random.
pub fn sobol(seed: u64, number: u64, dimensions: usize) -> Vec<f64> {
    let coordinate = |dimension: usize| {
        let key = mix(seed ^ mix(dimension as u64));
        let bits = match sobol_bits(number as u32, dimension) {
            Some(bits) => scramble(bits, key as u32),
            None => mix(key ^ number) as u32,
        };
        (f64::from(bits) + 0.5) / 4_294_967_296.0
    };
    (0..dimensions).map(coordinate).collect()
}

fn sobol_bits(number: u32, dimension: usize) -> Option<u32> {
    if dimension == 0 {
        return Some(number.reverse_bits());
    }
    let (polynomial, initial) = DIRECTIONS.get(dimension - 1)?;
    let degree = initial.len();
    let mut directions = [0u32; 32];
    let mut bits = 0;
    for index in 0..32 {
        directions[index] = if index < degree {
            initial[index] << (31 - index)
        } else {
            let mut direction = directions[index - degree] ^ (directions[index - degree] >> degree);
            for back in 1..degree {
                if polynomial >> (degree - back) & 1 == 1 {
                    direction ^= directions[index - back];
                }
            }
            direction
        };
        if number >> index & 1 == 1 {
            bits ^= directions[index];
        }
        if number >> index <= 1 {
            break;
        }
    }
    Some(bits)
}

/// Turns the two halves of every interval around or not, at random at all levels.
fn scramble(bits: u32, key: u32) -> u32 {
    let mut x = bits.reverse_bits();
    x = x.wrapping_add(key);
    for factor in [0x6c50_b47c, 0xb82f_1e52, 0xc7af_e638, 0x8d22_f6e6] {
        x ^= x.wrapping_mul(factor);
    }
    x.reverse_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interval_gets_its_share() {
        for dimension in 0..64 {
            let mut seen = [0; 64];
            for number in 0..64 {
                seen[(sobol(7, number, dimension + 1)[dimension] * 64.0) as usize] += 1;
            }
            assert!(seen.iter().all(|count| *count == 1), "dimension {dimension}: {seen:?}");
        }
    }

    #[test]
    fn pairs_of_dimensions_fill_squares() {
        // In 256 points each of 16 boxes of a pair of the first dimensions holds close to 16.
        for (a, b) in (0..8).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let mut boxes = [0i32; 16];
            for number in 0..256 {
                let point = sobol(1, number, 8);
                boxes[(point[a] * 4.0) as usize * 4 + (point[b] * 4.0) as usize] += 1;
            }
            assert!(boxes.iter().all(|count| (8..=24).contains(count)), "{a} {b}: {boxes:?}");
        }
    }

    #[test]
    fn seeds_and_dimensions_differ() {
        assert_ne!(sobol(1, 0, 3), sobol(2, 0, 3));
        let wide = sobol(1, 5, 100);
        assert!(wide.iter().all(|x| (0.0..1.0).contains(x)));
        assert_eq!(wide[..70], sobol(1, 5, 70)[..]);
    }
}
