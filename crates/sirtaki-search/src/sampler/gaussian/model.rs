//! A Gaussian process: given points, values and a kernel, what to expect elsewhere.

use super::kernel::{ADDITIVE, Alike, Cloud, Hyper, JOINT, NOISE};
use crate::numerics::dense::{Cholesky, dot};

/// A process that knows some values.
#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) hyper: Hyper,
    cloud: Cloud,
    values: Vec<f64>,
    factor: Cholesky,
    /// The inverse of the kernel matrix times the values.
    solved: Vec<f64>,
    noise: f64,
    /// How many of the values were told; the others are believed.
    told: usize,
}

/// What a model expects at a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// The smallest variance that is told from rounding errors, relative to that of the kernel.
const SMALLEST: f64 = 1e-12;

impl Model {
    pub(super) fn new(hyper: Hyper, cloud: Cloud, values: Vec<f64>) -> Self {
        let n = cloud.len();
        let mut noise = hyper.part(NOISE);
        let mut alike = Alike::default();
        let mut matrix = vec![0.0; n * n];
        for i in 0..n {
            let point: Vec<f64> = cloud.columns.iter().map(|column| column[i]).collect();
            alike.compute_first(i, &hyper, &cloud, &point);
            matrix[i * n..i * n + i].copy_from_slice(&alike.values);
        }
        let scale = hyper.part(JOINT) + hyper.part(ADDITIVE);
        loop {
            let mut noisy = matrix.clone();
            for i in 0..n {
                noisy[i * n + i] = scale + noise;
            }
            if let Some(factor) = Cholesky::new(noisy, n) {
                let mut model = Self { hyper, cloud, values, factor, solved: Vec::new(), noise, told: n };
                model.solve();
                return model;
            }
            noise = (noise * 10.0).max(1e-12 * scale);
        }
    }

    fn solve(&mut self) {
        self.solved = self.values.clone();
        self.factor.forward(&mut self.solved);
        self.factor.backward(&mut self.solved);
    }

    fn scale(&self) -> f64 {
        self.hyper.part(JOINT) + self.hyper.part(ADDITIVE)
    }

    /// The model once the values at `points` are what it expects there (kriging believer), one after the other. Points
    /// that add nothing it can tell from rounding errors are left out.
    pub(super) fn believing(mut self, points: &[Vec<f64>]) -> Self {
        let mut alike = Alike::default();
        for point in points {
            alike.compute(&self.hyper, &self.cloud, point);
            let mean = dot(&alike.values, &self.solved);
            let mut row = alike.values.clone();
            row.push(self.scale() + self.noise.max(1e-9 * self.scale()));
            if self.factor.extend(&row) {
                self.cloud.push(point);
                self.values.push(mean);
            }
        }
        self.solve();
        self
    }

    /// The smallest of the believed values.
    pub(super) fn lowest_belief(&self) -> Option<f64> {
        self.values[self.told..].iter().copied().min_by(f64::total_cmp)
    }

    fn expected(&self, mean: f64, explained: f64) -> Expected {
        let scale = self.scale();
        Expected { mean, deviation: (scale - explained).max(SMALLEST * scale).sqrt() }
    }

    /// What to expect at many points.
    pub(super) fn predict(&self, points: &[Vec<f64>]) -> Vec<Expected> {
        let n = self.cloud.len();
        let mut alike = Alike::default();
        let mut four: [Vec<f64>; 4] = std::array::from_fn(|_| vec![0.0; n]);
        let mut expected = Vec::with_capacity(points.len());
        for chunk in points.chunks(4) {
            let mut means = [0.0; 4];
            for ((point, column), mean) in chunk.iter().zip(&mut four).zip(&mut means) {
                alike.compute(&self.hyper, &self.cloud, point);
                *mean = dot(&alike.values, &self.solved);
                column.copy_from_slice(&alike.values);
            }
            self.factor.forward4(&mut four);
            let columns = four.iter().zip(means).take(chunk.len());
            expected.extend(columns.map(|(column, mean)| self.expected(mean, dot(column, column))));
        }
        expected
    }

    /// What to expect at a point, and, given the derivatives of something by mean and deviation, its gradient by the
    /// point's coordinates.
    pub(super) fn slope<T>(
        &self,
        alike: &mut Alike,
        point: &[f64],
        judge: impl FnOnce(Expected) -> (T, f64, f64),
    ) -> (T, Vec<f64>) {
        alike.compute(&self.hyper, &self.cloud, point);
        let mut weights = alike.values.clone();
        self.factor.forward(&mut weights);
        let explained = dot(&weights, &weights);
        let expected = self.expected(dot(&alike.values, &self.solved), explained);
        let (result, by_mean, by_deviation) = judge(expected);
        self.factor.backward(&mut weights);
        // The variance falls by twice the weights times the change of the kernel; the deviation by that over twice
        // itself.
        let factor = by_deviation / expected.deviation;
        for (weight, solved) in weights.iter_mut().zip(&self.solved) {
            *weight = by_mean * solved - factor * *weight;
        }
        let gradient = alike.gradient(&self.hyper, &self.cloud, point, &weights);
        (result, gradient)
    }
}
