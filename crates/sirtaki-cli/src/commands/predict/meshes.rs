//! Networks in stages: what each mesh of copies and stages would do, and which of them to take. Pure.
//!
//! Layers are the tensors, from the last gradient to the first, and take as long as their gradients took to come. They are
//! cut into stages where a run would cut them, and a step goes as the schedule says. Gradients are reduced after it, as
//! networks in stages do.

use serde::Serialize;
use sirtaki::pipeline::{Cut, LayerCost, PipelinePlan, PipelineSchedule, StageTime, cut};

use super::{
    cost::{Network, PAYLOAD},
    scale::ScalingMode,
    work::Work,
};

/// A weight with its gradient and the two numbers that Adam keeps.
const COPIES: u64 = 4;
/// The share of computing that is the forward pass.
const FORWARD: f64 = 1.0 / 3.0;
/// Layers that are told apart; neighbours of more are taken together.
const LAYERS: usize = 512;
/// Stages of a pipeline at most.
const STAGES: usize = 64;

/// What is wanted of a network in stages.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeshQuery {
    pub micros: usize,
    pub schedule: PipelineSchedule,
    /// Bytes of a worker.
    pub memory: Option<u64>,
    /// Bytes that a stage passes on for each micro-batch.
    pub activations: f64,
}

/// What to expect of a mesh.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MeshForecast {
    pub workers: usize,
    /// Copies of the network.
    pub data: usize,
    /// Workers that share one.
    pub pipe: usize,
    pub step_seconds: f64,
    pub efficiency: f64,
    pub speedup: f64,
    /// The share of the passes' time in which workers wait for other stages.
    pub bubble: f64,
    /// How long each worker of a pipeline computes in a step.
    pub stage_seconds: Vec<f64>,
    /// Gradients among copies.
    pub reduction_seconds: f64,
    /// Weights, gradients and Adam's state of the worker that has most of them.
    pub memory_bytes: u64,
    pub fits: bool,
    /// The fastest that fits, for this number of workers.
    pub proposed: bool,
}

/// All meshes of these numbers of workers.
pub(super) fn meshes(
    work: &Work,
    network: &Network,
    scaling: ScalingMode,
    wanted: MeshQuery,
    workers: &[usize],
) -> sirtaki::Result<Vec<MeshForecast>> {
    let layers = layers(work);
    let mut all = Vec::new();
    for &workers in workers {
        let mut rows = Vec::new();
        let most = if wanted.schedule == PipelineSchedule::Interleaved { layers.len() / 2 } else { layers.len() };
        for pipe in (1..=workers.min(STAGES)).filter(|&pipe| workers % pipe == 0 && (pipe == 1 || pipe <= most)) {
            rows.push(Mesh { work, network, scaling, wanted, layers: &layers, workers, pipe }.forecast()?);
        }
        let fits = |(_, row): &(usize, &MeshForecast)| row.fits;
        let faster = |one: &(usize, &MeshForecast), other: &(usize, &MeshForecast)| {
            one.1.step_seconds.total_cmp(&other.1.step_seconds)
        };
        let best = rows.iter().enumerate().filter(fits).min_by(faster).map(|(place, _)| place);
        best.into_iter().for_each(|place| rows[place].proposed = true);
        all.extend(rows);
    }
    Ok(all)
}

/// The layers of the network, with the seconds that they take for what one worker does in a step.
fn layers(work: &Work) -> Vec<LayerCost> {
    let count = work.samples.len().max(1) as f64;
    let mean = |tensor: usize| work.samples.iter().filter_map(|sample| sample.ready.get(tensor)).sum::<f64>() / count;
    let computed = (work.computing() - work.fixed).max(0.0);
    let mut before = work.fixed + FORWARD * computed;
    let mut spans: Vec<f64> = Vec::new();
    for tensor in 0..work.tensors.len() {
        let ready = mean(tensor);
        spans.push((ready - before).max(0.0));
        before = before.max(ready);
    }
    let total: f64 = spans.iter().sum();
    let even = 1.0 / spans.len().max(1) as f64;
    let share = |span: f64| if total > 0.0 { span / total } else { even };
    let layer = |(span, tensor): (&f64, &super::work::Tensor)| LayerCost {
        time: computed * share(*span),
        memory: (tensor.bytes as u64).saturating_mul(COPIES),
    };
    let layers: Vec<LayerCost> = spans.iter().zip(&work.tensors).rev().map(layer).collect();
    let join = |some: &[LayerCost]| LayerCost {
        time: some.iter().map(|layer| layer.time).sum(),
        memory: some.iter().fold(0, |sum, layer| sum.saturating_add(layer.memory)),
    };
    layers.chunks(layers.len().div_ceil(LAYERS).max(1)).map(join).collect()
}

struct Mesh<'a> {
    work: &'a Work,
    network: &'a Network,
    scaling: ScalingMode,
    wanted: MeshQuery,
    layers: &'a [LayerCost],
    workers: usize,
    pipe: usize,
}

impl Mesh<'_> {
    fn forecast(&self) -> sirtaki::Result<MeshForecast> {
        let Mesh { work, wanted, pipe, workers, .. } = *self;
        let interleaved = wanted.schedule == PipelineSchedule::Interleaved && pipe > 1;
        let schedule = if interleaved { wanted.schedule } else { self.plain() };
        let plan = PipelinePlan::new(schedule, pipe, if interleaved { 2 } else { 1 }, wanted.micros)?;
        let cut = self.cut(&plan)?;
        let of_stage = |stage: usize| &self.layers[cut.stages[stage].clone()];
        let seconds = |stage: usize| of_stage(stage).iter().map(|layer| layer.time).sum::<f64>() * self.share();
        let micros = wanted.micros as f64;
        let time = |stage: usize| {
            let micro = seconds(stage) / micros;
            StageTime { forward: FORWARD * micro, backward: (1.0 - FORWARD) * micro }
        };
        let times: Vec<StageTime> = (0..plan.stages()).map(time).collect();
        let timing = plan.timing(&times, self.message())?;
        let memory = |worker: usize| {
            let stages = plan.stages_of(worker).flat_map(|stage| of_stage(stage).iter());
            stages.fold(0_u64, |sum, layer| sum.saturating_add(layer.memory))
        };
        let most = (0..pipe).map(memory).max().unwrap_or(0);
        let reduction = self.reduction(most / COPIES);
        let optimizer = work.fixed * most as f64 / (COPIES as f64 * work.bytes() as f64).max(1.0);
        let (step, alone) = (timing.step + reduction + optimizer, self.alone());
        let speedup = alone / step;
        Ok(MeshForecast {
            workers,
            data: workers / pipe,
            pipe,
            step_seconds: step,
            efficiency: speedup / workers as f64,
            speedup,
            bubble: timing.bubble(),
            stage_seconds: timing.busy.clone(),
            reduction_seconds: reduction,
            memory_bytes: most,
            fits: wanted.memory.is_none_or(|memory| most <= memory),
            proposed: false,
        })
    }

    /// The schedule for one stage per worker.
    fn plain(&self) -> PipelineSchedule {
        match self.wanted.schedule {
            PipelineSchedule::Interleaved => PipelineSchedule::OneForwardOneBackward,
            schedule => schedule,
        }
    }

    /// The best stages that fit, or the best if none do.
    fn cut(&self, plan: &PipelinePlan) -> sirtaki::Result<Cut> {
        let stages = plan.stages();
        let limit = self.wanted.memory.map_or(u64::MAX, |memory| memory / (stages / self.pipe).max(1) as u64);
        cut(self.layers, stages, limit).or_else(|_| cut(self.layers, stages, u64::MAX))
    }

    /// How many times as much as one recorded worker a whole pipeline does.
    fn share(&self) -> f64 {
        let pipe = self.pipe as f64;
        match self.scaling {
            ScalingMode::Weak => pipe,
            ScalingMode::Strong => pipe * self.work.workers as f64 / self.workers as f64,
        }
    }

    /// How long one worker would need by itself for what all of them do.
    fn alone(&self) -> f64 {
        let (fixed, computing) = (self.work.fixed, self.work.computing());
        match self.scaling {
            ScalingMode::Weak => self.workers as f64 * computing,
            ScalingMode::Strong => fixed + (computing - fixed).max(0.0) * self.work.workers as f64,
        }
    }

    /// Activations on their way from stage to stage.
    fn message(&self) -> f64 {
        let Network { latency, bandwidth, per_host, local, .. } = *self.network;
        match self.pipe {
            1 => 0.0,
            // Neighbours in a pipeline share a host wherever hosts have enough workers.
            pipe if pipe <= per_host => local.at(self.wanted.activations),
            _ => latency + self.wanted.activations / (bandwidth * PAYLOAD),
        }
    }

    /// All copies of a stage reduce its gradients, and the stages of a host share its link.
    fn reduction(&self, bytes: u64) -> f64 {
        let (copies, per_host) = (self.workers / self.pipe, self.network.per_host);
        let sharing = self.pipe.min(per_host) as f64;
        let bandwidth = self.network.bandwidth / sharing;
        let network = Network { per_host: (per_host / self.pipe).max(1), bandwidth, ..*self.network };
        network.all_reduce(usize::try_from(bytes).unwrap_or(usize::MAX), copies).seconds
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            cost::LinearCost,
            work::{Sample, Tensor},
        },
        *,
    };

    /// Eight equal layers of 1 MB that one worker computes in 3 s.
    fn work() -> Work {
        let tensor = |number: usize| Tensor { name: number.to_string(), bytes: 1_000_000 };
        let ready = (1..=8).map(|number| 1.0 + 2.0 * f64::from(number) / 8.0).collect();
        Work {
            title: "even".into(),
            tensors: (0..8).map(tensor).collect(),
            samples: vec![Sample { ready, computed: 3.0 }],
            workers: 1,
            batch: None,
            fixed: 0.0,
            local: None,
            copy: 0.0,
            noise: None,
            recorded_step: None,
            notes: Vec::new(),
        }
    }

    fn forecast(schedule: PipelineSchedule, memory: Option<u64>, bandwidth: f64) -> Vec<MeshForecast> {
        let local = LinearCost::default();
        let network = Network {
            latency: 0.0,
            bandwidth,
            per_host: 1,
            local,
            rails: 1,
            spine: None,
            per_message: 0.0,
            forced: None,
        };
        let wanted = MeshQuery { micros: 16, schedule, memory, activations: 0.0 };
        meshes(&work(), &network, ScalingMode::Weak, wanted, &[4]).unwrap()
    }

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9, "{one} and {other}");
    }

    #[test]
    fn equal_stages_wait_as_theory_says() {
        for (schedule, chunks) in [(PipelineSchedule::OneForwardOneBackward, 1.0), (PipelineSchedule::Interleaved, 2.0)]
        {
            let rows = forecast(schedule, None, 1e18);
            assert_eq!(rows.iter().map(|row| (row.data, row.pipe)).collect::<Vec<_>>(), [(4, 1), (2, 2), (1, 4)]);
            for row in &rows {
                let pipe = row.pipe as f64;
                near(row.bubble, (pipe - 1.0) / (chunks * 16.0 + pipe - 1.0));
                assert!(row.stage_seconds.iter().all(|seconds| (seconds - 3.0).abs() < 1e-9), "{row:?}");
                assert!((row.efficiency - (1.0 - row.bubble)).abs() < 1e-2, "{row:?}");
                assert_eq!(row.memory_bytes, 32_000_000 / row.pipe as u64);
            }
        }
    }

    #[test]
    fn the_fastest_mesh_that_fits_is_proposed() {
        let proposed = |memory, bandwidth| {
            let rows = forecast(PipelineSchedule::OneForwardOneBackward, memory, bandwidth);
            rows.into_iter().find(|row| row.proposed).map(|row| row.pipe)
        };
        assert_eq!(proposed(None, 1e18), Some(1), "nothing is lost by copies");
        assert_eq!(proposed(Some(31_000_000), 1e18), Some(2), "half of it fits");
        assert_eq!(proposed(Some(8_000_000), 1e18), Some(4));
        assert_eq!(proposed(Some(7_000_000), 1e18), None);
        assert_eq!(proposed(None, 1e5), Some(4), "gradients take longer than waiting");
    }
}
