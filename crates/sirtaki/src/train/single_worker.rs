//! What one worker does by itself: the rate that a speed-up is compared with.
//!
//! A machine's speed drifts, so it is measured in several turns, some before the first step of all workers and some after
//! the last one, and all of them are reported. Between steps there are none: they would be part of what is recorded of a
//! run with several workers, and not of a run with one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use burn::module::Module as _;

use super::{data_sets::DataSet, model::Passes, settings::Method};
use crate::{
    Chain, Layer, Result, World,
    data::{Ahead, Loader, Partition, Position, Worker},
};

/// Steps before the first turn, whose speed is not that of the following ones.
const WARM: usize = 3;
/// Turns before the run, and as many after it.
const TURNS: usize = 3;
/// Least steps and time of a turn; it lasts until both are reached.
const STEPS: usize = 2;
const BEFORE: Duration = Duration::from_millis(250);
/// A turn after the run lasts this part of the run's time, within these bounds.
const PART: u32 = 60;
const AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Samples per second of rank 0 alone while the others wait, in every turn; the same on all ranks.
#[derive(Debug, Default)]
pub(super) struct Alone {
    pub(super) rates: Vec<f64>,
}

/// What is measured.
pub(super) struct Measured<'a, L> {
    pub(super) world: &'a World,
    pub(super) passes: &'a Passes,
    pub(super) network: &'a Chain<L>,
    pub(super) method: Method,
    pub(super) data: &'a DataSet,
    /// Samples per step.
    pub(super) batch: usize,
}

impl Alone {
    /// The turns before the run.
    pub(super) fn before<L: Layer>(&mut self, measured: &Measured<'_, L>) -> Result<()> {
        self.take_turns(measured, BEFORE)
    }

    /// The turns after a run that took this long.
    pub(super) fn after<L: Layer>(&mut self, measured: &Measured<'_, L>, run: Duration) -> Result<()> {
        self.take_turns(measured, (run / PART).clamp(AFTER.0, AFTER.1))
    }

    fn take_turns<L: Layer>(&mut self, measured: &Measured<'_, L>, time: Duration) -> Result<()> {
        let world = measured.world;
        let mine = if world.rank() == 0 { measured.turns(time)? } else { [0.0; TURNS] };
        let rates = world.sums("one worker", mine)?;
        self.rates.extend(rates.into_iter().filter(|&rate| rate > 0.0));
        Ok(())
    }

    /// The rate that half of the turns exceeded.
    pub(super) fn median(&self) -> Option<f64> {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        let (one, other) = (rates.get(rates.len().saturating_sub(1) / 2)?, rates.get(rates.len() / 2)?);
        Some((one + other) / 2.0)
    }
}

impl<L: Layer> Measured<'_, L> {
    /// The rates of some turns, one after the other. Weights do not change.
    fn turns(&self, time: Duration) -> Result<[f64; TURNS]> {
        // Running statistics are shared by plain copies, and have to stay as they are.
        let mut network = self.network.valid().train();
        let mut optimizer = super::model::optimizer(self.method);
        let mut batches = self.batches()?;
        let mut step = |network: Chain<L>| -> Result<(Chain<L>, usize)> {
            let batch = match batches.next() {
                Some(batch) => batch?,
                None => {
                    batches = self.batches()?;
                    return Ok((network, 0));
                }
            };
            let count = batch.count();
            let gradients = self.passes.train(&network, batch, 1.0)?.1;
            // As expensive as a real step, but changes nothing.
            Ok((optimizer.step(0.0, network, gradients), count))
        };
        for _ in 0..WARM {
            network = step(network)?.0;
        }
        let mut rates = [0.0; TURNS];
        for rate in &mut rates {
            let (begun, mut steps, mut count) = (Instant::now(), 0, 0);
            while steps < STEPS || begun.elapsed() < time {
                let samples;
                (network, samples) = step(network)?;
                (steps, count) = (steps + usize::from(samples > 0), count + samples);
            }
            *rate = count as f64 / begun.elapsed().as_secs_f64();
        }
        Ok(rates)
    }

    fn batches(&self) -> Result<Loader> {
        let samples = &self.data.train;
        let plan = Partition::new(samples.count(), Position::start(0), Worker { rank: 0, world: 1 }, self.batch)?;
        Loader::new(Arc::clone(samples), plan, Ahead::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_turn_counts() {
        let median = |rates: &[f64]| Alone { rates: rates.to_vec() }.median();
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[100.0, 1.0, 4.0, 6.0]), Some(5.0));
    }
}
