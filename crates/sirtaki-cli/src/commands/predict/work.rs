//! What a step of one worker is: when each gradient is ready, how long it computes, and how much that varies.

use super::cost::LinearCost;

/// A tensor that is reduced in every step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tensor {
    pub name: String,
    pub bytes: usize,
}

/// One step of one worker, in seconds since it had the results of the step before.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    /// When each tensor was submitted.
    pub ready: Vec<f64>,
    /// When everything was computed.
    pub computed: f64,
}

impl Sample {
    /// The step with `factor` times as much to do, of which `fixed` seconds at its beginning stay the same.
    pub(super) fn scaled(&self, factor: f64, fixed: f64) -> Self {
        let scale = |time: &f64| time.min(fixed) + (time - fixed).max(0.0) * factor;
        Self { ready: self.ready.iter().map(scale).collect(), computed: scale(&self.computed) }
    }
}

/// What is known of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Work {
    /// What it is, for people.
    pub title: String,
    /// In the order in which they come.
    pub tensors: Vec<Tensor>,
    /// Steps of any worker; at least one.
    pub samples: Vec<Sample>,
    /// Workers among which the samples were spread.
    pub workers: usize,
    /// Samples of the data that a worker has in one step.
    pub batch: Option<usize>,
    /// Seconds of a step that do not depend on how much data it is for: the optimizer.
    pub fixed: f64,
    /// An all-reduce inside a host, where that was recorded.
    pub local: Option<LinearCost>,
    /// Copying into and out of a shared buffer, in seconds per byte.
    pub copy: f64,
    /// The standard deviation of computing times divided by their mean, if they are to vary normally around the mean of the
    /// samples instead of as these do.
    pub noise: Option<f64>,
    /// Seconds that a step of the recorded workers took on average, with its communication.
    pub recorded_step: Option<f64>,
    /// Remarks about the source of the data.
    pub notes: Vec<String>,
}

impl Work {
    /// The mean time that a worker computes in a step.
    pub(super) fn computing(&self) -> f64 {
        self.samples.iter().map(|sample| sample.computed).sum::<f64>() / self.samples.len().max(1) as f64
    }

    /// How much the computing time varies: the standard deviation divided by the mean.
    pub(super) fn variation(&self) -> f64 {
        if let Some(noise) = self.noise {
            return noise;
        }
        let mean = self.computing();
        let square = |sample: &Sample| (sample.computed - mean).powi(2);
        let variance = self.samples.iter().map(square).sum::<f64>() / self.samples.len().max(1) as f64;
        if mean > 0.0 { variance.sqrt() / mean } else { 0.0 }
    }

    /// The samples, or their mean where times vary normally around it.
    pub(super) fn basis(&self) -> Vec<Sample> {
        if self.noise.is_none() {
            return self.samples.clone();
        }
        let count = self.samples.len().max(1) as f64;
        let mean = |time: &dyn Fn(&Sample) -> f64| self.samples.iter().map(time).sum::<f64>() / count;
        let ready = (0..self.tensors.len()).map(|at| mean(&|sample| sample.ready.get(at).copied().unwrap_or(0.0)));
        vec![Sample { ready: ready.collect(), computed: self.computing() }]
    }

    /// Bytes that every worker reduces in a step.
    pub(super) fn bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_data_shortens_what_depends_on_it() {
        let sample = Sample { ready: vec![0.5, 3.0], computed: 5.0 };
        assert_eq!(sample.scaled(0.5, 1.0), Sample { ready: vec![0.5, 2.0], computed: 3.0 });
        assert_eq!(sample.scaled(1.0, 1.0), sample);
    }
}
