//! How long a step of a pipeline takes, from the times of its stages.

use super::schedule::{Action, Pass, PipelinePlan};
use crate::{Error, Result};

/// How long a stage takes for one micro-batch, in seconds or any other unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageTime {
    /// Forward.
    pub forward: f64,
    /// Backward.
    pub backward: f64,
}

impl StageTime {
    /// One unit forward and two backward, as most layers take.
    pub fn even() -> Self {
        Self { forward: 1.0, backward: 2.0 }
    }

    fn of(&self, pass: Pass) -> f64 {
        match pass {
            Pass::Forward => self.forward,
            Pass::Backward => self.backward,
        }
    }
}

/// A step of a pipeline as it would go.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// From the first forward pass to the last backward pass.
    pub step: f64,
    /// How long each worker computes.
    pub busy: Vec<f64>,
    /// Begin and end of everything that each worker does.
    pub spans: Vec<Vec<(Action, f64, f64)>>,
}

impl Timing {
    /// The share of the workers' time in which they wait for each other.
    pub fn bubble(&self) -> f64 {
        if self.step == 0.0 {
            return 0.0;
        }
        1.0 - self.busy.iter().sum::<f64>() / (self.busy.len() as f64 * self.step)
    }
}

impl PipelinePlan {
    /// The step of a pipeline whose stages take `times`, and in which a message to another worker takes `message`.
    pub fn timing(&self, times: &[StageTime], message: f64) -> Result<Timing> {
        if times.len() != self.stages() {
            let problem = format!("times of {} stages for a pipeline of {}", times.len(), self.stages());
            return Err(Error::setting(problem, "give the time of every stage"));
        }
        let actions: Vec<Vec<Action>> = (0..self.workers()).map(|worker| self.actions(worker)).collect();
        let mut done = Done::new(self);
        let mut timing = Timing { step: 0.0, busy: vec![0.0; self.workers()], spans: vec![Vec::new(); self.workers()] };
        loop {
            let mut moved = false;
            for (worker, actions) in actions.iter().enumerate() {
                while let Some(action) = actions.get(timing.spans[worker].len()) {
                    let Some(ready) = self.ready(action, &done, message) else { break };
                    let begin = timing.spans[worker].last().map_or(0.0, |(_, _, end)| *end).max(ready);
                    let end = begin + times[action.stage].of(action.pass);
                    timing.spans[worker].push((*action, begin, end));
                    timing.busy[worker] += end - begin;
                    timing.step = timing.step.max(end);
                    done.set(action, end);
                    moved = true;
                }
            }
            if timing.spans.iter().zip(&actions).all(|(spans, actions)| spans.len() == actions.len()) {
                return Ok(timing);
            }
            if !moved {
                return Err(Error::setting("workers of the pipeline wait for each other", "choose another schedule"));
            }
        }
    }

    /// When what an action needs is there; `None` if that is not known yet.
    fn ready(&self, action: &Action, done: &Done, message: f64) -> Option<f64> {
        let last = self.stages() - 1;
        let before = |pass, stage| done.get(&Action { pass, stage, micro: action.micro });
        let sent = |time: f64| if self.workers() == 1 { time } else { time + message };
        match action.pass {
            Pass::Forward if action.stage == 0 => Some(0.0),
            Pass::Forward => before(Pass::Forward, action.stage - 1).map(sent),
            Pass::Backward if action.stage == last => before(Pass::Forward, last),
            Pass::Backward => {
                let own = before(Pass::Forward, action.stage)?;
                Some(before(Pass::Backward, action.stage + 1).map(sent)?.max(own))
            }
        }
    }
}

/// When each action ended.
struct Done {
    ends: Vec<Option<f64>>,
    micros: usize,
}

impl Done {
    fn new(plan: &PipelinePlan) -> Self {
        Self { ends: vec![None; 2 * plan.stages() * plan.micros()], micros: plan.micros() }
    }

    fn place(&self, action: &Action) -> usize {
        2 * (action.stage * self.micros + action.micro) + usize::from(action.pass == Pass::Backward)
    }

    fn get(&self, action: &Action) -> Option<f64> {
        self.ends[self.place(action)]
    }

    fn set(&mut self, action: &Action, end: f64) {
        let place = self.place(action);
        self.ends[place] = Some(end);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::PipelineSchedule, *};

    fn bubble(schedule: PipelineSchedule, workers: usize, chunks: usize, micros: usize) -> f64 {
        let plan = PipelinePlan::new(schedule, workers, chunks, micros).unwrap();
        plan.timing(&vec![StageTime::even(); plan.stages()], 0.0).unwrap().bubble()
    }

    #[test]
    fn bubbles_are_those_of_the_theory() {
        for (workers, micros) in [(1, 4), (2, 1), (2, 8), (4, 16), (6, 3)] {
            let theory = (workers - 1) as f64 / (micros + workers - 1) as f64;
            for schedule in [PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward] {
                assert!((bubble(schedule, workers, 1, micros) - theory).abs() < 1e-12, "{workers} {micros}");
            }
        }
    }

    #[test]
    fn stages_in_turn_shorten_the_bubble() {
        for (workers, chunks, micros) in [(4, 2, 16), (2, 2, 4), (4, 3, 8)] {
            let theory = (workers - 1) as f64 / (chunks * micros + workers - 1) as f64;
            let bubble = bubble(PipelineSchedule::Interleaved, workers, chunks, micros);
            assert!((bubble - theory).abs() < 1e-12, "{workers} {chunks} {micros}: {bubble}, theory {theory}");
        }
    }

    #[test]
    fn a_slow_stage_sets_the_pace() {
        let plan = PipelinePlan::new(PipelineSchedule::OneForwardOneBackward, 2, 1, 100).unwrap();
        let slow = StageTime { forward: 2.0, backward: 4.0 };
        let timing = plan.timing(&[StageTime::even(), slow], 0.0).unwrap();
        assert!((timing.step - (100.0 * 6.0 + 3.0)).abs() < 1e-9, "{}", timing.step);
        assert!(plan.timing(&[slow], 0.0).is_err());
    }
}
