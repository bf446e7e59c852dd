//! Which kernel explains the values best: the maximum of their likelihood times the priors, by L-BFGS with exact
//! gradients.

use super::kernel::{ADDITIVE, Cloud, Hyper, JOINT, NOISE, PARTS, SHARPER, matern, prior_weight};
use crate::numerics::{
    dense::Cholesky,
    lbfgs::{self, Limits},
};

/// What a fit gave.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    pub(super) hyper: Hyper,
    /// The logarithm of likelihood times priors, up to a constant.
    pub(super) evidence: f64,
}

/// Mean and deviation of the priors of the parts behind the weights, and bounds of all.
const PRIORS: [(f64, f64); PARTS] = [(0.0, 1.0), (-1.5, 1.5), (0.0, 1.0), (-12.0, 3.0)];
const WEIGHT_DEVIATION: f64 = 2.0;
const BOUNDS: [(f64, f64); PARTS] = [(-6.0, 6.0), (-8.0, 6.0), (-2.0, 6.0), (-18.4, 1.0)];
const WEIGHT_BOUNDS: (f64, f64) = (-12.0, 8.0);

/// What fits to the same points have in common: the squared distances of all pairs, per parameter.
pub(super) struct Distances(Vec<Vec<f64>>);

impl Distances {
    pub(super) fn new(cloud: &Cloud, parameters: usize) -> Self {
        let n = cloud.len();
        let mut distances = vec![vec![0.0; n * n.saturating_sub(1) / 2]; parameters];
        for (column, &parameter) in cloud.columns.iter().zip(&cloud.owners) {
            let mut pair = 0;
            for i in 1..n {
                for j in 0..i {
                    distances[parameter][pair] += (column[i] - column[j]).powi(2);
                    pair += 1;
                }
            }
        }
        Self(distances)
    }

    /// Fits a kernel to the values from `start` with at most so many evaluations.
    pub(super) fn fit(&self, values: &[f64], start: &Hyper, evaluations: usize) -> Fit {
        let d = start.parameters();
        let (mut lower, mut upper) = (vec![WEIGHT_BOUNDS.0; d], vec![WEIGHT_BOUNDS.1; d]);
        lower.extend(BOUNDS.map(|bounds| bounds.0));
        upper.extend(BOUNDS.map(|bounds| bounds.1));
        let limits = Limits { evaluations, gradient: 1e-3, gain: 1e-4 };
        let minimum = lbfgs::minimize(&start.0, &lower, &upper, limits, |t, gradient| {
            self.evaluate(values, t, gradient).map_or(f64::INFINITY, |value| -value)
        });
        Fit { hyper: Hyper(minimum.point), evidence: -minimum.value }
    }

    /// The logarithm of the posterior; its negative gradient is written to `gradient`.
    pub(super) fn evaluate(&self, values: &[f64], t: &[f64], gradient: &mut [f64]) -> Option<f64> {
        let (n, d) = (values.len(), self.0.len());
        let hyper = Hyper(t.to_vec());
        let pairs = Pairs::new(&self.0, &hyper);
        let (joint, additive, noise) = (hyper.part(JOINT), hyper.part(ADDITIVE), hyper.part(NOISE));
        let mut matrix = vec![0.0; n * n];
        let mut pair = 0;
        for i in 0..n {
            matrix[i * n..i * n + i].copy_from_slice(&pairs.kernel[pair..pair + i]);
            matrix[i * n + i] = joint + additive + noise;
            pair += i;
        }
        let factor = Cholesky::new(matrix, n)?;
        let mut solved = values.to_vec();
        factor.forward(&mut solved);
        let quadratic: f64 = solved.iter().map(|v| v * v).sum();
        factor.backward(&mut solved);
        let mut sum = -0.5 * quadratic - 0.5 * factor.log_determinant();
        // With respect to an element of the matrix, the likelihood's derivative is half of this, and there are two of
        // each off the diagonal.
        let inverse = factor.inverse();
        let mut slopes = vec![0.0; pairs.kernel.len()];
        let (mut pair, mut trace) = (0, 0.0);
        for (i, a) in solved.iter().enumerate() {
            let row = &inverse[i * n..=i * n + i];
            for ((slope, b), inverse) in slopes[pair..pair + i].iter_mut().zip(&solved).zip(row) {
                *slope = a * b - inverse;
            }
            trace += 0.5 * (a * a - row[i]);
            pair += i;
        }
        gradient.fill(0.0);
        let from_joint: f64 = slopes.iter().zip(&pairs.joint).map(|(s, k)| s * k).sum();
        let all: f64 = slopes.iter().zip(&pairs.kernel).map(|(s, k)| s * k).sum();
        gradient[d + JOINT] = from_joint + joint * trace;
        gradient[d + ADDITIVE] = all - from_joint + additive * trace;
        gradient[d + NOISE] = noise * trace;
        for (parameter, distances) in self.0.iter().enumerate() {
            let weight = hyper.weight(parameter);
            let (mut with_joint, mut with_additive) = (0.0, 0.0);
            let changes = &pairs.additive_changes[parameter];
            for (((s, slope), change), distance) in slopes.iter().zip(&pairs.joint_slopes).zip(changes).zip(distances) {
                with_joint += s * slope * distance;
                with_additive += s * change;
            }
            gradient[parameter] = with_joint * weight + with_additive;
            gradient[d + SHARPER] += with_additive;
        }
        sum += priors(t, d, gradient);
        gradient.iter_mut().for_each(|g| *g = -*g);
        Some(sum)
    }
}

/// The logarithm of the priors; their gradient is added.
fn priors(t: &[f64], d: usize, gradient: &mut [f64]) -> f64 {
    let mut sum = 0.0;
    let mut add = |i: usize, mean: f64, deviation: f64| {
        let z = (t[i] - mean) / deviation;
        sum -= 0.5 * z * z;
        gradient[i] -= z / deviation;
    };
    for parameter in 0..d {
        add(parameter, prior_weight(d), WEIGHT_DEVIATION);
    }
    for (part, (mean, deviation)) in PRIORS.into_iter().enumerate() {
        let mean = if part == SHARPER { (d as f64).ln() } else { mean };
        add(d + part, mean, deviation);
    }
    sum
}

/// The kernel of all pairs and its derivatives.
struct Pairs {
    kernel: Vec<f64>,
    joint: Vec<f64>,
    joint_slopes: Vec<f64>,
    /// Per parameter, by the logarithm of its weight, the additive part alone.
    additive_changes: Vec<Vec<f64>>,
}

impl Pairs {
    fn new(distances: &[Vec<f64>], hyper: &Hyper) -> Self {
        let d = distances.len();
        let count = distances.first().map_or(0, Vec::len);
        let (amplitude, additive) = (hyper.part(JOINT), hyper.part(ADDITIVE) / d as f64);
        let sharper = hyper.part(SHARPER);
        let mut total = vec![0.0; count];
        let mut kernel = vec![0.0; count];
        let mut additive_changes = Vec::with_capacity(d);
        for (parameter, distances) in distances.iter().enumerate() {
            let weight = hyper.weight(parameter);
            let mut changes = vec![0.0; count];
            let sums = total.iter_mut().zip(&mut kernel);
            for (((total, sum), change), distance) in sums.zip(&mut changes).zip(distances) {
                let squared = weight * distance;
                *total += squared;
                let (value, slope) = matern(sharper * squared);
                *sum += additive * value;
                *change = additive * slope * sharper * squared;
            }
            additive_changes.push(changes);
        }
        let (mut joint, mut joint_slopes) = (vec![0.0; count], vec![0.0; count]);
        let parts = joint.iter_mut().zip(&mut joint_slopes);
        for (((part, part_slope), sum), total) in parts.zip(&mut kernel).zip(&total) {
            let (value, slope) = matern(*total);
            *part = amplitude * value;
            *part_slope = amplitude * slope;
            *sum += *part;
        }
        Self { kernel, joint, joint_slopes, additive_changes }
    }
}
