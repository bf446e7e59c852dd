//! A density over a space as a sum of kernels, one around each of some points and a flat one.
//!
//! Along a numeric parameter a kernel is a normal distribution cut off at the ends of the unit interval; along a
//! categorical one it prefers the choice of its point. Columns are kept one after the other, so that the innermost loop runs
//! over kernels.

use std::f64::consts::{PI, SQRT_2};

use crate::{
    random::Random,
    space::{Parameter, Point, Space},
};

/// The kernels of one side.
pub(super) struct Kernels {
    columns: Vec<Column>,
    weights: Vec<f64>,
    log_weights: Vec<f64>,
}

/// What the kernels are along one parameter.
enum Column {
    Number {
        /// Its place, width and the logarithm of its height at its place; flat kernels have height 1 and infinite width.
        centres: Vec<f64>,
        inverse_widths: Vec<f64>,
        heights: Vec<f64>,
        widths: Vec<f64>,
    },
    Choice {
        /// The choice of each kernel's point; `NONE` where it has none.
        choices: Vec<usize>,
        of: usize,
    },
}

const NONE: usize = usize::MAX;

impl Kernels {
    /// A kernel around each of `points`, given by unit coordinates, with its weight, and a flat one of average weight.
    /// Kernels are at least `narrowest` wide.
    pub(super) fn new(space: &Space, points: &[&[f64]], weights: Vec<f64>, narrowest: f64) -> Self {
        let column = |(index, parameter): (usize, &Parameter)| {
            let places: Vec<f64> = points.iter().map(|point| point[index]).collect();
            match parameter.domain.count() {
                Some(count) if parameter.domain.is_choice() => choice_column(&places, count as usize),
                count => number_column(&places, narrowest.max(count.map_or(0.0, |count| 0.5 / count as f64))),
            }
        };
        let columns = space.parameters().iter().enumerate().map(column).collect();
        let sum: f64 = weights.iter().sum();
        let flat = if weights.is_empty() { 1.0 } else { sum / weights.len() as f64 };
        let weights: Vec<f64> = weights.iter().chain([&flat]).map(|weight| weight / (sum + flat)).collect();
        let log_weights = weights.iter().map(|weight| weight.ln()).collect();
        Self { columns, weights, log_weights }
    }

    /// A random point of this density.
    pub(super) fn draw(&self, space: &Space, random: &mut Random) -> Point {
        let kernel = random.weighted(&self.weights);
        space.fill(|index, _| {
            let domain = &space.parameters()[index].domain;
            match &self.columns[index] {
                Column::Number { centres, widths, .. } => {
                    let unit = match widths[kernel] {
                        width if width.is_finite() => truncated(centres[kernel], width, random),
                        _ => random.uniform(),
                    };
                    domain.from_unit(unit)
                }
                Column::Choice { choices, of } => {
                    let kept = choices[kernel] != NONE && random.uniform() >= self.mutation();
                    if kept { choices[kernel] as f64 } else { random.below(*of) as f64 }
                }
            }
        })
    }

    /// How likely a kernel draws a choice without looking at its own.
    fn mutation(&self) -> f64 {
        1.0 / self.weights.len() as f64
    }

    /// The logarithm of the density at a point, up to a constant.
    pub(super) fn log_density(&self, unit: &[f64]) -> f64 {
        let mut logs = self.log_weights.clone();
        for (column, &place) in self.columns.iter().zip(unit) {
            if place.is_nan() {
                continue;
            }
            match column {
                Column::Number { centres, inverse_widths, heights, .. } => {
                    let kernels = centres.iter().zip(inverse_widths).zip(heights);
                    for (log, ((centre, inverse), height)) in logs.iter_mut().zip(kernels) {
                        let distance = (place - centre) * inverse;
                        *log += height - 0.5 * distance * distance;
                    }
                }
                Column::Choice { choices, of } => {
                    let flat = 1.0 / *of as f64;
                    let choice = (place * *of as f64) as usize;
                    let (other, same) = (self.mutation() * flat, 1.0 - self.mutation() * (1.0 - flat));
                    let (other, same, flat) = (other.ln(), same.ln(), flat.ln());
                    for (log, own) in logs.iter_mut().zip(choices) {
                        *log += if *own == choice {
                            same
                        } else if *own == NONE {
                            flat
                        } else {
                            other
                        };
                    }
                }
            }
        }
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // What is smaller by 13 orders of magnitude changes nothing.
        let sum: f64 = logs.iter().filter(|log| **log > largest - 30.0).map(|log| (log - largest).exp()).sum();
        largest + sum.ln()
    }
}

fn choice_column(places: &[f64], of: usize) -> Column {
    let choice = |place: &f64| if place.is_nan() { NONE } else { ((place * of as f64) as usize).min(of - 1) };
    let mut choices: Vec<usize> = places.iter().map(choice).collect();
    choices.push(NONE);
    Column::Choice { choices, of }
}

fn number_column(places: &[f64], narrowest: f64) -> Column {
    let widths = widths(places, narrowest);
    let mut centres = Vec::with_capacity(places.len() + 1);
    let (mut inverse_widths, mut heights) = (centres.clone(), centres.clone());
    for (&place, &width) in places.iter().zip(&widths) {
        let flat = place.is_nan();
        centres.push(if flat { 0.0 } else { place });
        inverse_widths.push(if flat { 0.0 } else { 1.0 / width });
        heights.push(if flat { 0.0 } else { height(place, width) });
    }
    centres.push(0.5);
    inverse_widths.push(1.0);
    heights.push(height(0.5, 1.0));
    let mut widths: Vec<f64> =
        widths.iter().zip(places).map(|(width, place)| if place.is_nan() { f64::INFINITY } else { *width }).collect();
    widths.push(1.0);
    Column::Number { centres, inverse_widths, heights, widths }
}

/// From so many points on, the distance of neighbours is below the smallest width nearly everywhere.
const DENSE: usize = 1000;

/// A width per kernel: the larger distance to a neighbour, within limits.
fn widths(places: &[f64], narrowest: f64) -> Vec<f64> {
    let mut widths = vec![narrowest; places.len()];
    if places.len() > DENSE {
        return widths;
    }
    let mut order: Vec<usize> = (0..places.len()).filter(|&index| !places[index].is_nan()).collect();
    order.sort_by(|&a, &b| places[a].total_cmp(&places[b]));
    for (rank, &index) in order.iter().enumerate() {
        let before = rank.checked_sub(1).map(|before| places[index] - places[order[before]]);
        let after = order.get(rank + 1).map(|&after| places[after] - places[index]);
        let width = match (before, after) {
            (Some(before), Some(after)) => before.max(after),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => 1.0,
        };
        widths[index] = width.clamp(narrowest, 1.0);
    }
    widths
}

/// A number of the normal distribution around `centre`, given that it is in the unit interval.
fn truncated(centre: f64, width: f64, random: &mut Random) -> f64 {
    loop {
        let place = centre + width * random.normal();
        if (0.0..=1.0).contains(&place) {
            return place;
        }
    }
}

/// The logarithm of the density of a kernel at its centre.
fn height(centre: f64, width: f64) -> f64 {
    // Far from both ends nothing is cut off.
    let cut = if centre.min(1.0 - centre) > 6.0 * width { 1.0 } else { mass(centre, width) };
    -(width * (2.0 * PI).sqrt() * cut).ln()
}

/// How much of a normal distribution is in the unit interval; at least a little, since its centre is there and its width
/// at most 1.
fn mass(centre: f64, width: f64) -> f64 {
    let below = |distance: f64| 0.5 * (1.0 + erf(distance / width / SQRT_2));
    below(1.0 - centre) - below(-centre)
}

/// The error function, to seven digits (Abramowitz and Stegun 7.1.26 is good to 1.5e-7).
fn erf(x: f64) -> f64 {
    if x.abs() > 5.5 {
        return x.signum();
    }
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let series =
        ((((1.061_405_429 * t - 1.453_152_027) * t + 1.421_413_741) * t - 0.284_496_736) * t + 0.254_829_592) * t;
    (1.0 - series * (-x * x).exp()).copysign(x)
}
