//! Every combination, in random order. Ranges that cannot be counted are cut into a few values at equal distances.

use std::collections::HashSet;

use super::{Question, Sampler};
use crate::{
    random::Random,
    space::{Point, Space},
};

/// Suggests the points of a grid, each once; then from the start again.
#[derive(Clone, Debug)]
pub struct GridSampler {
    /// Into how many values a range is cut that cannot be counted.
    pub cuts: usize,
    kept: Option<(Space, u64, Vec<Point>)>,
}

impl Default for GridSampler {
    fn default() -> Self {
        Self { cuts: 5, kept: None }
    }
}

/// Larger grids are never finished; of those, random points do.
const LARGEST_GRID: usize = 20_000;

impl GridSampler {
    /// All points in random order, or none where there are too many.
    fn points(&mut self, question: &Question<'_>) -> &[Point] {
        let (space, seed) = (question.space, question.seed);
        let fits = |kept: &(Space, u64, Vec<Point>)| kept.0 == *space && kept.1 == seed;
        if !self.kept.as_ref().is_some_and(fits) {
            let mut points = all_points(space, self.cuts);
            Random::new(seed, &[]).shuffle(&mut points);
            self.kept = Some((space.clone(), seed, points));
        }
        self.kept.as_ref().map_or(&[], |kept| &kept.2)
    }

    fn untried(&mut self, question: &Question<'_>) -> Option<Point> {
        // What failed there once fails there again; what was lost on its way is run again by the study.
        let observations = question.history.ended().iter().chain(question.history.running());
        let tried: HashSet<Vec<u64>> = observations.map(|observation| key(&observation.point)).collect();
        self.points(question).iter().find(|point| !tried.contains(&key(point))).cloned()
    }
}

impl Sampler for GridSampler {
    fn suggest(&mut self, question: &Question<'_>) -> Point {
        if let Some(point) = self.untried(question) {
            return point;
        }
        let mut random = Random::new(question.seed, &[question.number]);
        let cuts = self.cuts;
        question
            .space
            .fill(|index, _| value(question.space, index, random.below(values(question.space, index, cuts)), cuts))
    }

    fn is_exhausted(&mut self, question: &Question<'_>) -> bool {
        !self.points(question).is_empty() && self.untried(question).is_none()
    }
}

fn key(point: &Point) -> Vec<u64> {
    point.0.iter().map(|value| value.map_or(u64::MAX, f64::to_bits)).collect()
}

/// How many values of a parameter are on the grid.
fn values(space: &Space, index: usize, cuts: usize) -> usize {
    let count = space.parameters()[index].domain.count();
    count.map_or(cuts.max(1), |count| usize::try_from(count).unwrap_or(usize::MAX))
}

fn value(space: &Space, index: usize, turn: usize, cuts: usize) -> f64 {
    let domain = &space.parameters()[index].domain;
    match domain.count() {
        Some(count) => domain.nth(turn as u64, count),
        None if cuts < 2 => domain.from_unit(0.5),
        None => domain.from_unit(turn as f64 / (cuts - 1) as f64),
    }
}

/// Counts through all values of the parameters that exist, the last one fastest; none where there are too many.
fn all_points(space: &Space, cuts: usize) -> Vec<Point> {
    let mut turns = vec![0; space.len()];
    let mut points = Vec::new();
    loop {
        let mut asked = Vec::new();
        points.push(space.fill(|index, _| {
            asked.push(index);
            value(space, index, turns[index], cuts)
        }));
        // The last parameter that was asked and has values left goes one further; those after it start again.
        let Some(last) = asked.iter().rposition(|&index| turns[index] + 1 < values(space, index, cuts)) else {
            return points;
        };
        turns[asked[last]] += 1;
        asked[last + 1..].iter().for_each(|&index| turns[index] = 0);
        if points.len() > LARGEST_GRID {
            return Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{finish, running};
    use super::*;
    use crate::sampler::History;

    #[test]
    fn every_combination_comes_once() {
        let space: Space = "o=a|b,n=0..2 when o=='a',f=float:0..1:0.5,m=0..1 when n > 1".parse().unwrap();
        let mut history = History::default();
        let mut sampler = GridSampler::default();
        let mut seen = HashSet::new();
        // 3 values of `f` by 1 for `b` and, for `a`, 0, 1 and twice 2.
        for number in 0..15 {
            let question = Question { seed: 3, space: &space, history: &history, number };
            assert!(!sampler.is_exhausted(&question));
            let point = sampler.suggest(&question);
            assert!(seen.insert(key(&point)), "{point:?} comes twice");
            history.put(if number % 2 == 0 { running(number, point) } else { finish(number, point, 1.0) });
        }
        let question = Question { seed: 3, space: &space, history: &history, number: 15 };
        assert!(sampler.is_exhausted(&question));
        assert!(seen.contains(&key(&sampler.suggest(&question))));
    }
}
