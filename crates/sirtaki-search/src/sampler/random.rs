//! Uniform random points. Nothing is learnt, so nothing can mislead it: the measure of all others.

use super::{Question, Sampler};
use crate::{random::Random, space::Point};

/// Suggests points at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomSampler;

impl Sampler for RandomSampler {
    fn suggest(&mut self, question: &Question<'_>) -> Point {
        let mut random = Random::new(question.seed, &[question.number]);
        let unit: Vec<f64> = (0..question.space.len()).map(|_| random.uniform()).collect();
        question.space.from_unit(&unit)
    }
}
