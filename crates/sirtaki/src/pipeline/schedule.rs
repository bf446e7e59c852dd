//! The order of forward and backward passes on each worker.
//!
//! Each stage runs its backward passes in ascending order of micro-batches, in every schedule: gradients are added along
//! a tree that takes its leaves in order, so all schedules give the same bits.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Which passes run early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PipelineSchedule {
    /// All forward passes, then all backward passes: simple, and all activations are kept at once.
    GPipe,
    /// One forward, one backward pass in turn, as soon as the pipeline is full: stage `s` of `p` keeps the activations of
    /// at most `p - s` micro-batches.
    OneForwardOneBackward,
    /// The same with several stages per worker, which shortens the time in which workers wait for the pipeline to fill.
    Interleaved,
}

impl PipelineSchedule {
    /// All of them, with the names people type.
    pub const NAMES: [(&'static str, PipelineSchedule); 3] = [
        ("gpipe", PipelineSchedule::GPipe),
        ("1f1b", PipelineSchedule::OneForwardOneBackward),
        ("interleaved", PipelineSchedule::Interleaved),
    ];

    /// What people type.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, schedule)| *schedule == self).map_or("", |(name, _)| name)
    }

    /// The schedule of this name.
    pub fn named(name: &str) -> Result<PipelineSchedule> {
        let found = Self::NAMES.iter().find(|(other, _)| *other == name);
        found.map(|(_, schedule)| *schedule).ok_or_else(|| {
            let names: Vec<&str> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            Error::setting(format!("there is no schedule `{name}`"), format!("choose one of {}", names.join(", ")))
        })
    }
}

/// Which direction a micro-batch goes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// From the first stage to the last.
    Forward,
    /// From the last stage to the first.
    Backward,
}

/// One thing a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Action {
    /// In which direction.
    pub pass: Pass,
    /// With which stage of the whole network.
    pub stage: usize,
    /// On which micro-batch.
    pub micro: usize,
}

/// A pipeline's sizes and schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PipelinePlan {
    schedule: PipelineSchedule,
    workers: usize,
    chunks: usize,
    micros: usize,
}

impl PipelinePlan {
    /// A plan for this many workers, with `chunks` stages each and `micros` micro-batches per step.
    pub fn new(schedule: PipelineSchedule, workers: usize, chunks: usize, micros: usize) -> Result<Self> {
        if workers == 0 || chunks == 0 || micros == 0 {
            return Err(Error::setting(
                format!("a pipeline of {workers} workers with {chunks} stages each and {micros} micro-batches"),
                "each of these numbers is at least 1",
            ));
        }
        if chunks > 1 && schedule == PipelineSchedule::OneForwardOneBackward {
            return Err(Error::setting(
                format!("1f1b has one stage per worker, not {chunks}"),
                "choose the schedule `interleaved`, or one stage per worker",
            ));
        }
        Ok(Self { schedule, workers, chunks, micros })
    }

    /// How many workers share the network.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// How many micro-batches a step has.
    pub fn micros(&self) -> usize {
        self.micros
    }

    /// How many stages the network is cut into.
    pub fn stages(&self) -> usize {
        self.workers * self.chunks
    }

    /// Whose stage it is.
    pub fn owner(&self, stage: usize) -> usize {
        stage % self.workers
    }

    /// The stages of a worker, ascending.
    pub fn stages_of(&self, worker: usize) -> impl Iterator<Item = usize> + use<> {
        (worker..self.stages()).step_by(self.workers)
    }

    /// What a worker does in a step, in this order.
    pub fn actions(&self, worker: usize) -> Vec<Action> {
        let (forward, backward) = (self.forward(worker), self.backward(worker));
        let early = self.early(worker).min(forward.len());
        let mut actions = forward[..early].to_vec();
        let mut backward = backward.into_iter();
        for action in &forward[early..] {
            actions.push(*action);
            actions.extend(backward.next());
        }
        actions.extend(backward);
        actions.retain(|action| action.micro < self.micros);
        actions
    }

    /// How many forward passes a worker runs before its first backward pass, the one right before it not counted.
    fn early(&self, worker: usize) -> usize {
        let after = self.workers - worker - 1;
        match self.schedule {
            PipelineSchedule::GPipe => usize::MAX,
            PipelineSchedule::OneForwardOneBackward => after,
            // With one stage per worker nothing is gained by running further ahead.
            PipelineSchedule::Interleaved if self.chunks == 1 => after,
            PipelineSchedule::Interleaved => 2 * after + (self.chunks - 1) * self.workers,
        }
    }

    /// A worker's forward passes: as many micro-batches as there are workers through one stage, then through the next.
    fn forward(&self, worker: usize) -> Vec<Action> {
        let stages: Vec<usize> = self.stages_of(worker).collect();
        self.in_groups(&stages, Pass::Forward)
    }

    fn backward(&self, worker: usize) -> Vec<Action> {
        let mut stages: Vec<usize> = self.stages_of(worker).collect();
        stages.reverse();
        self.in_groups(&stages, Pass::Backward)
    }

    /// The passes through these stages, group by group. Workers wait for themselves if a group is smaller than the others,
    /// so the last one is planned in full, and what is not there is left out of the plan.
    fn in_groups(&self, stages: &[usize], pass: Pass) -> Vec<Action> {
        let size = if self.schedule == PipelineSchedule::Interleaved { self.workers } else { self.micros };
        let mut actions = Vec::with_capacity(stages.len() * self.micros.next_multiple_of(size));
        for first in (0..self.micros).step_by(size) {
            for &stage in stages {
                actions.extend((first..first + size).map(|micro| Action { pass, stage, micro }));
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{super::timing::StageTime, *};

    fn plans() -> impl Iterator<Item = PipelinePlan> {
        let schedules = PipelineSchedule::NAMES.map(|(_, schedule)| schedule);
        let sizes = (1..=6).flat_map(|workers| (1..=3).map(move |chunks| (workers, chunks)));
        let sizes = sizes.flat_map(|(workers, chunks)| (1..=13).map(move |micros| (workers, chunks, micros)));
        sizes.flat_map(move |(workers, chunks, micros)| {
            schedules.into_iter().filter_map(move |schedule| PipelinePlan::new(schedule, workers, chunks, micros).ok())
        })
    }

    #[test]
    fn everything_is_done_once_and_by_its_owner() {
        for plan in plans() {
            let mut done = HashSet::new();
            for worker in 0..plan.workers() {
                for action in plan.actions(worker) {
                    assert_eq!(plan.owner(action.stage), worker, "{plan:?}");
                    assert!(done.insert(action), "{plan:?}: {action:?} twice");
                }
            }
            assert_eq!(done.len(), 2 * plan.stages() * plan.micros(), "{plan:?}");
        }
    }

    #[test]
    fn backward_passes_of_a_stage_ascend_and_follow_their_forward_passes() {
        for plan in plans() {
            for worker in 0..plan.workers() {
                let actions = plan.actions(worker);
                for stage in plan.stages_of(worker) {
                    let of = |pass| actions.iter().filter(move |action| action.stage == stage && action.pass == pass);
                    assert!(of(Pass::Backward).map(|action| action.micro).eq(0..plan.micros()), "{plan:?}");
                    assert!(of(Pass::Forward).map(|action| action.micro).eq(0..plan.micros()), "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn no_plan_waits_for_itself() {
        for plan in plans() {
            let even = vec![StageTime::even(); plan.stages()];
            assert!(plan.timing(&even, 0.0).is_ok(), "{plan:?}");
        }
    }

    #[test]
    fn activations_are_kept_for_as_many_micro_batches_as_stages_follow() {
        for plan in plans().filter(|plan| plan.schedule == PipelineSchedule::OneForwardOneBackward) {
            for worker in 0..plan.workers() {
                let (mut kept, mut most) = (0_usize, 0);
                for action in plan.actions(worker) {
                    kept = if action.pass == Pass::Forward { kept + 1 } else { kept - 1 };
                    most = most.max(kept);
                }
                assert!(most <= plan.workers() - worker, "{plan:?}: worker {worker} keeps {most}");
            }
        }
    }

    #[test]
    fn sizes_that_make_no_pipeline_are_refused() {
        assert!(PipelinePlan::new(PipelineSchedule::GPipe, 0, 1, 1).is_err());
        assert!(PipelinePlan::new(PipelineSchedule::GPipe, 1, 1, 0).is_err());
        let error = PipelinePlan::new(PipelineSchedule::OneForwardOneBackward, 2, 2, 4).unwrap_err();
        assert_eq!(error.hint(), Some("choose the schedule `interleaved`, or one stage per worker"));
        let error = PipelineSchedule::named("zigzag").unwrap_err();
        assert_eq!(error.hint(), Some("choose one of gpipe, 1f1b, interleaved"));
    }
}
