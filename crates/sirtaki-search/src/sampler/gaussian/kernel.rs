//! How alike two points are: a Matérn 5/2 kernel over all parameters together, with a length of its own for each
//! (automatic relevance determination), plus the mean of one Matérn kernel per parameter.
//!
//! The first part can model anything but needs many points in many dimensions. The second can only model sums of
//! functions of one parameter, for which a handful of points suffices; losses of training jobs are largely of that
//! kind. The fit decides how much of each to believe.

use crate::numerics::{dense::dot, exponential::exp_negative};

/// A Matérn 5/2 kernel of a squared distance, and its derivative by it.
#[inline]
pub(super) fn matern(squared: f64) -> (f64, f64) {
    let r = (5.0 * squared).sqrt();
    let e = exp_negative(-r);
    ((1.0 + r + r * r * (1.0 / 3.0)) * e, (-5.0 / 6.0) * (1.0 + r) * e)
}

/// The logarithms of what a kernel is made of, in the order in which a fit sees them: a weight (one over the square of
/// the length) per parameter, then the parts below.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hyper(pub(super) Vec<f64>);

/// Positions behind the weights.
pub(super) const JOINT: usize = 0;
pub(super) const ADDITIVE: usize = 1;
/// By how much the weights of the additive part are larger.
pub(super) const SHARPER: usize = 2;
pub(super) const NOISE: usize = 3;
/// How many positions there are behind the weights.
pub(super) const PARTS: usize = 4;

impl Hyper {
    /// Where a fit that knows nothing starts.
    pub(super) fn start(parameters: usize) -> Self {
        let mut values = vec![prior_weight(parameters); parameters];
        values.extend([0.0, -1.5, (parameters as f64).ln(), -9.0]);
        Self(values)
    }

    pub(super) fn parameters(&self) -> usize {
        self.0.len() - PARTS
    }

    pub(super) fn weight(&self, parameter: usize) -> f64 {
        self.0[parameter].exp()
    }

    pub(super) fn part(&self, part: usize) -> f64 {
        self.0[self.parameters() + part].exp()
    }
}

/// The most likely logarithm of a weight beforehand: lengths grow with the root of the number of parameters, so that
/// typical distances between points stay the same (Hvarfner and others, 2024).
pub(super) fn prior_weight(parameters: usize) -> f64 {
    -2.0 * (std::f64::consts::SQRT_2 + 0.5 * (parameters as f64).ln() - 1.0)
}

/// Points in coordinates in which distances make sense, one coordinate after the other, so that loops over points are
/// contiguous.
#[derive(Debug, Clone)]
pub(super) struct Cloud {
    /// The parameter of each coordinate, in ascending order.
    pub(super) owners: Vec<usize>,
    /// `columns[coordinate][point]`.
    pub(super) columns: Vec<Vec<f64>>,
}

impl Cloud {
    pub(super) fn new(owners: Vec<usize>, points: &[Vec<f64>]) -> Self {
        let columns = (0..owners.len()).map(|c| points.iter().map(|point| point[c]).collect()).collect();
        Self { owners, columns }
    }

    pub(super) fn len(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }

    /// Some of the points.
    pub(super) fn only(&self, chosen: &[usize]) -> Self {
        let pick = |column: &Vec<f64>| chosen.iter().map(|&point| column[point]).collect();
        Self { owners: self.owners.clone(), columns: self.columns.iter().map(pick).collect() }
    }

    pub(super) fn push(&mut self, point: &[f64]) {
        for (column, x) in self.columns.iter_mut().zip(point) {
            column.push(*x);
        }
    }
}

/// The kernel between a point and all of a cloud, with what its gradient needs.
#[derive(Debug, Default)]
pub(super) struct Alike {
    pub(super) values: Vec<f64>,
    joint_slopes: Vec<f64>,
    /// One row per parameter.
    additive_slopes: Vec<f64>,
    squared: Vec<f64>,
    total: Vec<f64>,
}

impl Alike {
    /// Computes the kernel between `point` and the cloud.
    pub(super) fn compute(&mut self, hyper: &Hyper, cloud: &Cloud, point: &[f64]) {
        self.compute_first(cloud.len(), hyper, cloud, point);
    }

    /// Computes the kernel between `point` and the first `n` of the cloud.
    pub(super) fn compute_first(&mut self, n: usize, hyper: &Hyper, cloud: &Cloud, point: &[f64]) {
        let d = hyper.parameters();
        let (joint, additive) = (hyper.part(JOINT), hyper.part(ADDITIVE) / d as f64);
        let sharper = hyper.part(SHARPER);
        for vector in [&mut self.values, &mut self.joint_slopes, &mut self.squared, &mut self.total] {
            vector.clear();
            vector.resize(n, 0.0);
        }
        self.additive_slopes.resize(n * d, 0.0);
        let mut coordinate = 0;
        for parameter in 0..d {
            let weight = hyper.weight(parameter);
            self.squared.fill(0.0);
            while cloud.owners.get(coordinate) == Some(&parameter) {
                let x = point[coordinate];
                for (squared, other) in self.squared.iter_mut().zip(&cloud.columns[coordinate]) {
                    *squared += (x - other) * (x - other);
                }
                coordinate += 1;
            }
            let slopes = &mut self.additive_slopes[parameter * n..(parameter + 1) * n];
            let sums = self.total.iter_mut().zip(&mut self.values);
            for (((total, sum), slope), squared) in sums.zip(slopes).zip(&self.squared) {
                let squared = weight * squared;
                *total += squared;
                let (value, change) = matern(sharper * squared);
                *sum += additive * value;
                *slope = additive * sharper * change;
            }
        }
        for ((sum, slope), total) in self.values.iter_mut().zip(&mut self.joint_slopes).zip(&self.total) {
            let (value, change) = matern(*total);
            *sum += joint * value;
            *slope = joint * change;
        }
    }

    /// The gradient of the sum of `factors[i] · kernel(point, i)` by the coordinates of the point.
    pub(super) fn gradient(&mut self, hyper: &Hyper, cloud: &Cloud, point: &[f64], factors: &[f64]) -> Vec<f64> {
        let n = cloud.len();
        let mut gradient = Vec::with_capacity(point.len());
        for (coordinate, &parameter) in cloud.owners.iter().enumerate() {
            let additive = &self.additive_slopes[parameter * n..(parameter + 1) * n];
            let slopes = self.joint_slopes.iter().zip(additive);
            for ((product, factor), (joint, additive)) in self.squared.iter_mut().zip(factors).zip(slopes) {
                *product = factor * (joint + additive);
            }
            let (total, x) = (self.squared.iter().sum::<f64>(), point[coordinate]);
            let moment = dot(&self.squared, &cloud.columns[coordinate]);
            gradient.push(2.0 * hyper.weight(parameter) * (x * total - moment));
        }
        gradient
    }
}
