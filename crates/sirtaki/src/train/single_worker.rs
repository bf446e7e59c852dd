//! What one worker does by itself: the rate that a speed-up is compared with.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{data_sets::DataSet, model::Passes, settings::Method};
use crate::{
    Chain, Layer, Result, World,
    data::{Ahead, Loader, Partition, Position, Worker},
};

/// Steps before the measurement.
const WARM: usize = 3;
/// Least steps and time of a measurement; it lasts until both are reached.
const STEPS: usize = 5;
const TIME: Duration = Duration::from_millis(800);

/// Samples per second of rank 0 alone while the others wait; the same on all ranks. The weights do not change.
pub(super) fn speed<L: Layer>(
    world: &World,
    passes: &Passes,
    network: &Chain<L>,
    method: Method,
    data: &DataSet,
    batch: usize,
) -> Result<Option<f64>> {
    if world.size() == 1 {
        return Ok(None);
    }
    let mine = if world.rank() == 0 { measure(passes, network.clone(), method, data, batch)? } else { 0.0 };
    let [speed] = world.sums("one worker", [mine])?;
    Ok(Some(speed).filter(|&speed| speed > 0.0))
}

fn measure<L: Layer>(
    passes: &Passes,
    mut network: Chain<L>,
    method: Method,
    data: &DataSet,
    batch: usize,
) -> Result<f64> {
    let mut optimizer = super::model::optimizer(method);
    let plan = Partition::new(data.train.count(), Position::start(0), Worker { rank: 0, world: 1 }, batch)?;
    let batches = Loader::new(Arc::clone(&data.train), plan, Ahead::default())?;
    let (mut begun, mut count) = (Instant::now(), 0);
    for (step, batch) in batches.enumerate() {
        if step == WARM {
            (begun, count) = (Instant::now(), 0);
        }
        if step >= WARM + STEPS && begun.elapsed() >= TIME {
            break;
        }
        let batch = batch?;
        count += batch.count();
        let gradients = passes.train(&network, batch, 1.0)?.1;
        // As expensive as a real step, but changes nothing.
        network = optimizer.step(0.0, network, gradients);
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
