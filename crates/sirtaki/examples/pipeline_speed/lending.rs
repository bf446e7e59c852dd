//! What a step takes where every worker keeps all parameters, and where it keeps some rows and borrows the others: with
//! gradients that are exchanged while the backward pass goes on, and with gradients that are waited for.

use std::{collections::BTreeMap, fmt::Write, time::Instant};

use burn::{optim::AdamConfig, tensor::Tensor};
use sirtaki::{
    Chain, DistributedOptimizer, Error, Flow, Pipeline, Result, World,
    data::{FixedShards, Position},
    pipeline::PipelineSchedule,
};

use crate::work::{Dense, Size, median};

/// Steps that do not count.
const WARM_UP: usize = 1;

/// What a worker keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Keeping {
    All,
    Rows,
    RowsAndWaits,
}

impl Keeping {
    pub(crate) const ALL: [Self; 3] = [Self::All, Self::Rows, Self::RowsAndWaits];

    fn name(self) -> &'static str {
        match self {
            Keeping::All => "all parameters",
            Keeping::Rows => "rows of them",
            Keeping::RowsAndWaits => "rows, waiting for gradients",
        }
    }
}

/// The median of the seconds of a step. Every worker has the samples of a micro-batch.
pub(crate) fn step(world: &World, keeping: Keeping, size: Size) -> Result<f64> {
    let (device, alone) = (world.device().autodiff(), world.split(world.rank() as u64)?);
    let stages = match keeping {
        Keeping::All => std::iter::once(0..size.layers).collect(),
        Keeping::Rows | Keeping::RowsAndWaits => (0..size.layers).map(|layer| layer..layer + 1).collect(),
    };
    let pipeline = Pipeline::new(&alone, PipelineSchedule::GPipe, 1, stages)?;
    let mut pipeline = if keeping == Keeping::RowsAndWaits { pipeline.wait_for_gradients() } else { pipeline };
    let layer = |_| Ok(Dense::new(size.width, &device));
    let (mut chain, whose) = match keeping {
        Keeping::All => (Chain::new(pipeline.layers(), &device, 42, layer)?, world),
        Keeping::Rows | Keeping::RowsAndWaits => {
            (Chain::shard_over(world, pipeline.layers(), &device, 42, layer)?, &alone)
        }
    };
    let mut optimizer = DistributedOptimizer::new(whose, AdamConfig::new().init());
    let (batch, count) = (world.size() * size.samples, WARM_UP + size.steps);
    let plan = FixedShards::new(count * batch, Position::start(1), world.worker(), world.size(), batch)?;
    let mut times = Vec::new();
    for step in 0..count {
        world.engine().barrier("step")?;
        let begun = Instant::now();
        chain = pipeline.step(
            &mut optimizer,
            0.001,
            chain,
            (&plan, step),
            |shard| Ok::<_, Error>(Flow::new().with(Tensor::<2>::ones([shard.samples, size.width], &device))),
            |_, mut flow| Ok(flow.take::<Tensor<2>>()?.mean()),
        )?;
        times.push(begun.elapsed().as_secs_f64());
    }
    Ok(median(times.split_off(WARM_UP).into_iter()))
}

/// A table of the slowest ranks' times.
pub(crate) fn told(turns: &[(usize, Keeping, f64)]) -> String {
    let mut all: BTreeMap<(usize, Keeping), Vec<f64>> = BTreeMap::new();
    turns.iter().for_each(|(workers, keeping, time)| all.entry((*workers, *keeping)).or_default().push(*time));
    let mut text = String::from("data parallelism in reproducible steps, a micro-batch for each worker, who keeps");
    for ((workers, keeping), times) in all {
        let _ = write!(text, "\n{workers:>7}  {:<28} {:>7.2} ms", keeping.name(), 1000.0 * median(times.into_iter()));
    }
    text
}
