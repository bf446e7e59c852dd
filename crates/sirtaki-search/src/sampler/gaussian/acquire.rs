//! The point of which most is expected.
//!
//! The expected improvement has many local maxima, most of them between points that were tried. A pool of points from
//! the whole space and from the neighbourhood of the best ones gives places to start; from the best of these the
//! surface is climbed: along the gradient in the parameters that have one, and by trying the alternatives of the others.

use super::{coding::Coding, kernel::Alike, model::Model};
use crate::{
    numerics::{
        lbfgs::{self, Limits},
        normal::{log_cumulative, log_expected_improvement},
    },
    random::Random,
    sampler::sobol,
    space::{Domain, Point, Space},
};

/// What makes a point worth trying.
pub(super) struct Worth<'a> {
    pub(super) model: &'a Model,
    /// The best value so far; none when no point so far keeps the constraints.
    pub(super) best: Option<f64>,
    /// A process for how far constraints are broken, which points below 0 are not.
    pub(super) constraint: Option<&'a Model>,
}

impl Worth<'_> {
    fn of(&self, points: &[Vec<f64>]) -> Vec<f64> {
        let mut worth = vec![0.0; points.len()];
        if let Some(best) = self.best {
            for (worth, expected) in worth.iter_mut().zip(self.model.predict(points)) {
                *worth += log_expected_improvement(expected.mean, expected.deviation, best).0;
            }
        }
        if let Some(constraint) = self.constraint {
            for (worth, expected) in worth.iter_mut().zip(constraint.predict(points)) {
                *worth += log_cumulative(-expected.mean / expected.deviation).0;
            }
        }
        worth
    }

    fn slope(&self, alike: &mut Alike, point: &[f64]) -> (f64, Vec<f64>) {
        let (mut worth, mut gradient) = (0.0, vec![0.0; point.len()]);
        let mut add = |(value, slope): (f64, Vec<f64>)| {
            worth += value;
            gradient.iter_mut().zip(slope).for_each(|(g, s)| *g += s);
        };
        if let Some(best) = self.best {
            add(self.model.slope(alike, point, |at| log_expected_improvement(at.mean, at.deviation, best)));
        }
        if let Some(constraint) = self.constraint {
            add(constraint.slope(alike, point, |at| {
                let (value, slope) = log_cumulative(-at.mean / at.deviation);
                (value, -slope / at.deviation, slope * at.mean / (at.deviation * at.deviation))
            }));
        }
        (worth, gradient)
    }
}

/// Points of the whole space to start with, and points near the best ones.
const ANYWHERE: u64 = 200;
const NEARBY: usize = 120;
/// How many of each kind to climb from, and evaluations of the gradient per climb at most.
const CLIMBS: usize = 3;
const STEPS: usize = 30;
/// How many of the best points to look around.
const INCUMBENTS: usize = 5;
/// Parameters with more values than this are climbed as if they were continuous, then rounded.
const COUNTABLE: u64 = 12;

/// The search for the best point.
pub(super) struct Acquisition<'a> {
    pub(super) space: &'a Space,
    pub(super) coding: &'a Coding,
    pub(super) worth: Worth<'a>,
    /// What was tried, best first.
    pub(super) known: Vec<&'a Point>,
    /// Only points that differ from this one in a parameter without gradient are wanted.
    pub(super) unlike: Option<&'a Point>,
    /// Only the surroundings of the best point are climbed: so far from it in each parameter, on the unit scale.
    pub(super) reach: Option<f64>,
}

/// The values of the parameters that are not climbed: choices, and numbers of which there are few.
pub(super) fn discrete(space: &Space, point: &Point) -> Vec<Option<f64>> {
    let few = |index: &usize| {
        let domain = &space.parameters()[*index].domain;
        !is_smooth(domain) && domain.count() != Some(1)
    };
    (0..space.len()).filter(few).map(|index| point.0[index]).collect()
}

fn is_smooth(domain: &Domain) -> bool {
    !domain.is_choice() && domain.count().is_none_or(|count| count > COUNTABLE)
}

impl Acquisition<'_> {
    /// Points in descending order of their worth. Callers take the first that is new.
    pub(super) fn maximize(&self, random: &mut Random) -> Vec<Point> {
        let (seed, dimensions) = (random.bits(), self.space.len());
        let anywhere = if self.reach.is_some() { 0 } else { ANYWHERE };
        let anywhere = (0..anywhere).map(|number| self.space.from_unit(&sobol(seed, number, dimensions))).collect();
        let incumbents = &self.known[..self.known.len().min(INCUMBENTS)];
        let around = incumbents.iter().cycle().take(NEARBY);
        let nearby = around.map(|point| self.near(point, random)).collect();
        let mut alike = Alike::default();
        let mut ranked = Vec::new();
        // A step away from the best point in a parameter without gradient the others may have to move before it pays.
        let aside = self.known.first().map_or_else(Vec::new, |best| self.alternatives(best, false, random));
        for pool in [anywhere, nearby, aside] {
            let pool = self.rank(pool);
            for start in pool.iter().take(CLIMBS) {
                ranked.push(self.climb(start.clone(), &mut alike, random));
            }
            ranked.extend(pool);
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.into_iter().map(|(_, point)| point).collect()
    }

    /// Those of the points that are wanted, the most worth first.
    fn rank(&self, mut points: Vec<Point>) -> Vec<(f64, Point)> {
        if let Some(unlike) = self.unlike.map(|point| discrete(self.space, point)) {
            points.retain(|point| discrete(self.space, point) != unlike);
        }
        let coordinates: Vec<Vec<f64>> = points.iter().map(|point| self.coding.encode(self.space, point)).collect();
        let mut ranked: Vec<(f64, Point)> = self.worth.of(&coordinates).into_iter().zip(points).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked
    }

    /// The point with these unit values; a parameter that has none but exists takes that of the best point that has one.
    fn settle(&self, unit: &[Option<f64>], random: &mut Random) -> Point {
        self.space.fill(|index, _| {
            let domain = &self.space.parameters()[index].domain;
            match unit[index] {
                Some(unit) => domain.from_unit(unit),
                None => {
                    let known = self.known.iter().find_map(|point| point.0[index]);
                    known.unwrap_or_else(|| domain.from_unit(random.uniform()))
                }
            }
        })
    }

    /// A point that differs from another one in some parameters, a little or more.
    fn near(&self, point: &Point, random: &mut Random) -> Point {
        let reach: f64 = [0.2, 0.05, 0.01, 0.002][random.below(4)];
        let share = (2.0 / self.space.len() as f64).max(0.3);
        let mut unit = self.space.to_unit(point);
        for (value, parameter) in unit.iter_mut().zip(self.space.parameters()) {
            let Some(value) = value else { continue };
            if random.uniform() >= share {
                continue;
            }
            *value = match parameter.domain.count() {
                Some(_) if parameter.domain.is_choice() => random.uniform(),
                Some(count) => {
                    // At least one step, for less would change nothing.
                    let step = random.normal() * reach.max(1.0 / count as f64);
                    (*value + step).clamp(0.0, 1.0)
                }
                None => (*value + reach * random.normal()).clamp(0.0, 1.0),
            };
        }
        self.settle(&unit, random)
    }

    /// Climbs from a point in turns: along the gradient, then over alternatives.
    fn climb(&self, start: (f64, Point), alike: &mut Alike, random: &mut Random) -> (f64, Point) {
        let mut best = start;
        for _turn in 0..3 {
            let smooth = self.climb_smooth(&best.1, alike, random);
            if smooth.0 > best.0 {
                best = smooth;
            }
            let alternatives = self.alternatives(&best.1, true, random);
            if alternatives.is_empty() {
                break;
            }
            match self.rank(alternatives).into_iter().next() {
                Some(better) if better.0 > best.0 => best = better,
                _ => break,
            }
        }
        best
    }

    fn climb_smooth(&self, point: &Point, alike: &mut Alike, random: &mut Random) -> (f64, Point) {
        let smooth: Vec<usize> = (0..self.space.len())
            .filter(|&index| point.0[index].is_some() && is_smooth(&self.space.parameters()[index].domain))
            .collect();
        let mut unit = self.space.to_unit(point);
        let mut coordinates = self.coding.encode(self.space, point);
        let limits = Limits { evaluations: STEPS, gradient: 1e-6, gain: 1e-5 };
        let (lower, upper): (Vec<f64>, Vec<f64>) = smooth.iter().map(|&index| self.room(index)).unzip();
        let ends = lower.iter().zip(&upper);
        let start: Vec<f64> = smooth
            .iter()
            .zip(ends)
            .map(|(&index, (low, high))| unit[index].unwrap_or(0.5).clamp(*low, *high))
            .collect();
        let top = lbfgs::minimize(&start, &lower, &upper, limits, |values, gradient| {
            for (&index, value) in smooth.iter().zip(values) {
                coordinates[self.coding.places[index]] = value - 0.5;
            }
            let (worth, slope) = self.worth.slope(alike, &coordinates);
            for (&index, g) in smooth.iter().zip(gradient) {
                *g = -slope[self.coding.places[index]];
            }
            -worth
        });
        for (&index, value) in smooth.iter().zip(&top.point) {
            unit[index] = Some(*value);
        }
        let point = self.settle(&unit, random);
        let worth = self.worth.of(&[self.coding.encode(self.space, &point)]);
        (worth[0], point)
    }

    /// From where to where a parameter may move, on the unit scale.
    fn room(&self, index: usize) -> (f64, f64) {
        let value = self.known.first().and_then(|best| best.0[index]);
        match self.reach.zip(value) {
            Some((reach, value)) => {
                let centre = self.space.parameters()[index].domain.to_unit(value);
                ((centre - reach).max(0.0), (centre + reach).min(1.0))
            }
            None => (0.0, 1.0),
        }
    }

    /// Points that differ in one parameter that has no gradient, or, if wanted, by a step or two in one that is rounded.
    fn alternatives(&self, point: &Point, rounded: bool, random: &mut Random) -> Vec<Point> {
        let unit = self.space.to_unit(point);
        let mut alternatives = Vec::new();
        for (index, parameter) in self.space.parameters().iter().enumerate() {
            let (Some(value), Some(count)) = (point.0[index], parameter.domain.count()) else { continue };
            let mut values = Vec::new();
            if count <= COUNTABLE {
                values.extend((0..count).map(|cell| (cell as f64 + 0.5) / count as f64));
            } else if parameter.domain.is_choice() {
                values.extend((0..COUNTABLE).map(|_| random.uniform()));
            } else if rounded {
                let at = parameter.domain.to_unit(value);
                values.extend([-2.0, -1.0, 1.0, 2.0].map(|steps: f64| (at + steps / count as f64).clamp(0.0, 1.0)));
            }
            for other in values {
                if parameter.domain.from_unit(other) != value {
                    let mut unit = unit.clone();
                    unit[index] = Some(other);
                    alternatives.push(self.settle(&unit, random));
                }
            }
        }
        alternatives
    }
}
