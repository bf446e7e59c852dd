//! Finding good choices by measuring steps. Pure: durations come in, choices to try come out.
//!
//! One thing is varied at a time, each on top of the best found so far: how tensors are fused, then the algorithm, then
//! the size of pieces. Something is better only if it is so by a clear margin, and the best is measured once more against
//! what came first before it is kept, because machines change their speed by themselves. A search ends after at most
//! [`Tuner::most_steps`] repeated steps, and is sooner done with what is hopeless.
//!
//! A choice says how the table makes batches and how collectives are carried out. It comes into use when an order is
//! adopted, between steps and on all ranks at once, so trying something never touches a buffer in use.

use std::{collections::VecDeque, fmt, time::Duration};

use serde::{Deserialize, Serialize};
use sirtaki_comm::collective::{Algorithm, Alternatives};

use crate::{fuse::Limits, message::Knobs};

/// Steps after a change that do not count.
const SKIPPED: usize = 2;
/// Steps that count.
const MEASURED: usize = 5;
/// Better means that the median is below that of the best so far times this.
const MARGIN: f64 = 0.95;
/// After this many steps that count, none of them below the best so far times [`HOPELESS`], there is no hope.
const FEW: usize = 2;
const HOPELESS: f64 = 1.3;

/// What can be chosen for an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Which tensors are fused.
    #[serde(flatten)]
    pub limits: Limits,
    /// How collectives are carried out.
    #[serde(flatten)]
    pub knobs: Knobs,
}

/// What an order does in a cycle: measurements of one say nothing about another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Workload {
    /// How many tensors.
    pub tensors: usize,
    /// Their bytes together.
    pub bytes: u64,
}

/// One thing to do differently.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Limits(Limits),
    Algorithm(Algorithm),
    Piece(usize),
}

impl Change {
    fn on(self, mut choice: Choice) -> Choice {
        match self {
            Change::Limits(limits) => choice.limits = limits,
            Change::Algorithm(algorithm) => choice.knobs.algorithm = Some(algorithm),
            Change::Piece(bytes) => choice.knobs.piece = u32::try_from(bytes).ok(),
        }
        choice
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Search,
    /// The first choice once more.
    First,
    /// The best against what the first one takes now, in seconds.
    Best(f64),
    Done,
}

/// A search for the best choice for one workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuner {
    first: Choice,
    changes: VecDeque<Change>,
    stage: Stage,
    /// What is in use.
    trial: Choice,
    /// The best so far, and its seconds per step.
    best: (Choice, f64),
    skip: usize,
    steps: Vec<Duration>,
    /// Everything measured, in seconds per step.
    log: Vec<(Choice, f64)>,
}

impl Tuner {
    /// A search that starts with `first` and compares it with other limits and with the alternatives.
    pub fn new(first: Choice, alternatives: &Alternatives) -> Self {
        let limits = [(4 << 20, 256 << 10), (16 << 20, 256 << 10), (64 << 20, 4 << 20)];
        let limits = limits.into_iter().map(|(fused, large)| Change::Limits(Limits { fused, large }));
        let algorithms = alternatives.algorithms.iter().copied().map(Change::Algorithm);
        let pieces = alternatives.pieces.iter().copied().map(Change::Piece);
        let changes = limits.chain(algorithms).chain(pieces).collect();
        let (best, steps, log) = ((first, f64::INFINITY), Vec::new(), Vec::new());
        Self { first, changes, stage: Stage::Search, trial: first, best, skip: SKIPPED, steps, log }
    }

    /// Repeated steps that a search takes at most, from its beginning.
    pub fn most_steps(&self) -> usize {
        // The first choice, every change, and both at the end.
        (SKIPPED + MEASURED) * (self.changes.len() + 3)
    }

    /// The order was adopted (anew); its first steps do not count.
    pub fn begin(&mut self) {
        self.skip = SKIPPED;
    }

    /// A step took this long; gives the choice to go on with when it changes.
    pub fn step(&mut self, duration: Duration) -> Option<Choice> {
        if self.is_done() {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.steps.push(duration);
        let hopeless = |step: &Duration| step.as_secs_f64() > self.best.1 * HOPELESS;
        let given_up = self.stage == Stage::Search && self.steps.len() >= FEW && self.steps.iter().all(hopeless);
        if self.steps.len() < MEASURED && !given_up {
            return None;
        }
        self.steps.sort_unstable();
        let median = self.steps[self.steps.len() / 2].as_secs_f64();
        self.steps.clear();
        self.log.push((self.trial, median));
        let next = self.conclude(median);
        (std::mem::replace(&mut self.trial, next) != next).then(|| {
            self.skip = SKIPPED;
            next
        })
    }

    /// What follows from the median of what is in use: the choice to go on with.
    fn conclude(&mut self, median: f64) -> Choice {
        match self.stage {
            Stage::Search => {
                if median < self.best.1 * MARGIN {
                    self.best = (self.trial, median);
                }
                let tried = |choice: Choice| self.log.iter().any(|&(other, _)| other == choice);
                while let Some(change) = self.changes.pop_front() {
                    let next = change.on(self.best.0);
                    if !tried(next) {
                        return next;
                    }
                }
                self.stage = if self.best.0 == self.first { Stage::Done } else { Stage::First };
                self.first
            }
            Stage::First => {
                self.stage = Stage::Best(median);
                self.best.0
            }
            Stage::Best(first) => {
                if median >= first * MARGIN {
                    self.best = (self.first, first);
                }
                self.stage = Stage::Done;
                self.best.0
            }
            Stage::Done => self.best.0,
        }
    }

    /// Whether the search is over.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// What came of it: the choice in use, once the search is over the best.
    pub fn outcome(&self, workload: Workload) -> Tuned {
        let seconds =
            |choice: Choice| self.log.iter().rfind(|(other, _)| *other == choice).map(|&(_, seconds)| seconds);
        let choice = if self.is_done() { self.best.0 } else { self.trial };
        let before = if choice == self.first { None } else { seconds(self.first) };
        Tuned { workload, choice, seconds: seconds(choice), before, measured: self.log.len() }
    }
}

/// What was chosen for a workload, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// What for.
    pub workload: Workload,
    /// What was chosen.
    pub choice: Choice,
    /// What a step takes with it, as far as it is known.
    pub seconds: Option<f64>,
    /// What a step took with the first choice, if another is better.
    pub before: Option<f64>,
    /// How many choices were measured; none where the outcome of an earlier job is used.
    pub measured: usize,
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Workload { tensors, bytes } = self.workload;
        write!(f, "tuned for steps of {tensors} tensors, {:.1} MB: {}", bytes as f64 / 1e6, self.choice)?;
        match (self.seconds, self.before) {
            (Some(now), Some(before)) => write!(f, "; {:.2} ms a step instead of {:.2}", now * 1e3, before * 1e3)?,
            (Some(now), None) => write!(f, "; {:.2} ms a step", now * 1e3)?,
            _ => {}
        }
        match self.measured {
            0 => write!(f, " (as an earlier job found)"),
            measured => write!(f, " ({measured} measurements)"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Limits { fused, large }, Knobs { algorithm, piece }) = (self.limits, self.knobs);
        write!(f, "tensors below {} KiB fused up to {} KiB", large >> 10, fused >> 10)?;
        algorithm.map_or(Ok(()), |algorithm| write!(f, ", algorithm {}", algorithm.name()))?;
        piece.map_or(Ok(()), |piece| write!(f, ", pieces of {} KiB", piece >> 10))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Choice =
        Choice { limits: Limits { fused: 16 << 20, large: 1 << 20 }, knobs: Knobs { algorithm: None, piece: None } };

    fn alternatives() -> Alternatives {
        Alternatives { algorithms: vec![Algorithm::Halving, Algorithm::Direct], pieces: vec![64 << 10, 1 << 20] }
    }

    /// Runs a search to its end; gives the final choice and the steps it took.
    fn search(mut cost: impl FnMut(Choice, usize) -> u64) -> (Tuner, Choice, usize) {
        let mut tuner = Tuner::new(FIRST, &alternatives());
        let (most, mut choice, mut steps, mut since) = (tuner.most_steps(), FIRST, 0, 0);
        while !tuner.is_done() {
            // The first steps after a change are slow and must not count.
            let slow = if since < SKIPPED { 100_000 } else { 0 };
            (steps, since) = (steps + 1, since + 1);
            if let Some(next) = tuner.step(Duration::from_micros(cost(choice, steps) + slow)) {
                (choice, since) = (next, 0);
            }
        }
        assert!(steps <= most, "{steps} steps of at most {most}");
        assert_eq!(tuner.step(Duration::ZERO), None);
        (tuner, choice, steps)
    }

    fn microseconds(choice: Choice) -> u64 {
        let limits = if choice.limits.fused == 64 << 20 { 8000 } else { 10_000 };
        let algorithm = if choice.knobs.algorithm == Some(Algorithm::Direct) { 0 } else { 1000 };
        limits + algorithm + if choice.knobs.piece == Some(1 << 20) { 0 } else { 1000 }
    }

    #[test]
    fn the_best_of_every_kind_wins() {
        let (tuner, choice, _) = search(|choice, _| microseconds(choice));
        assert_eq!(choice.limits, Limits { fused: 64 << 20, large: 4 << 20 });
        assert_eq!(choice.knobs, Knobs { algorithm: Some(Algorithm::Direct), piece: Some(1 << 20) });
        assert_eq!(
            tuner.outcome(Workload { tensors: 3, bytes: 2_000_000 }).to_string(),
            "tuned for steps of 3 tensors, 2.0 MB: tensors below 4096 KiB fused up to 65536 KiB, algorithm direct, \
             pieces of 1024 KiB; 8.00 ms a step instead of 12.00 (10 measurements)"
        );
    }

    #[test]
    fn small_differences_and_passing_ones_do_not_count() {
        assert_eq!(search(|choice, _| 10_000 - (choice.limits.fused >> 18) as u64).1, FIRST);
        // Everything becomes faster by itself while something else is being tried, so that looks better.
        let (tuner, choice, _) = search(|_, step| if step < 10 { 20_000 } else { 10_000 });
        assert_eq!(choice, FIRST);
        assert!(tuner.outcome(Workload::default()).before.is_none());
    }

    #[test]
    fn what_is_hopeless_ends_soon() {
        let (tuner, choice, steps) = search(|choice, _| if choice == FIRST { 1000 } else { 50_000 });
        assert_eq!(choice, FIRST);
        assert_eq!(steps, SKIPPED + MEASURED + 7 * (SKIPPED + FEW));
        assert_eq!(tuner.outcome(Workload::default()).measured, 8);
    }

    proptest! {
        /// Whatever steps take, the search ends in time, with something that was tried.
        #[test]
        fn every_search_ends(seed in any::<u64>()) {
            let mut state = seed;
            let (tuner, choice, _) = search(|_, _| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 48
            });
            prop_assert!(tuner.log.iter().any(|(tried, _)| *tried == choice));
            prop_assert_eq!(tuner.outcome(Workload::default()).choice, choice);
        }

        /// Where every choice always takes its own time, the outcome is never slower than the beginning.
        #[test]
        fn the_outcome_is_no_worse(costs in prop::collection::vec(1000_u64..100_000, 64)) {
            let cost = |choice: Choice| {
                let Knobs { algorithm, piece } = choice.knobs;
                let at = choice.limits.fused / 7 + choice.limits.large / 3 + piece.unwrap_or(0) as usize / 5;
                costs[(at + algorithm.map_or(0, |algorithm| algorithm as usize + 1)) % costs.len()]
            };
            let (_, choice, _) = search(|choice, _| cost(choice));
            prop_assert!(choice == FIRST || (cost(choice) as f64) < cost(FIRST) as f64 * MARGIN);
        }
    }
}
