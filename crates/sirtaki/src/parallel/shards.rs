//! Steps whose results do not depend on the number of workers, down to the last bit.
//!
//! The batch of a step is cut into a fixed number of shards; see [`FixedShards`]. Everything that happens to a shard
//! follows from the shard: it begins with the statistics that the step began with and with random numbers of its own.
//! Everything that shards have in common is added along one tree; see [`super::sums`]. Rejected: gathering all shards'
//! gradients on all ranks, which moves and keeps as many copies as there are shards.

use std::time::Instant;

use burn::{
    module::Module,
    optim::{GradientsParams, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
    tensor::{DType, Device, TensorData},
};
use sirtaki_comm::kernel;
use sirtaki_engine::Operation;

use super::{
    DistributedOptimizer,
    convert::{copied, outbound},
    gradients::{Entry, Names, Reducer, take},
    module_tensors::{Part, Which, read, replace},
    sum_tree::Branches,
    tree_sums::{Column, Sums, join, over_all},
};
use crate::{
    Error, Result, World,
    data::{FixedShards, Shard},
    random::Stream,
};

const STATISTICS: &str = "statistics of shards";

/// Reseeds the random numbers of this device from a stream: before a forward pass, so that those of dropout depend on
/// the position in the data and not on what was computed before.
pub fn seed(device: &Device, mut stream: Stream) {
    device.seed(stream.bits());
}

impl DistributedOptimizer {
    /// One step with all shards of a step of the plan, to the same bits on any number of workers.
    ///
    /// `gradients` is called for each of this worker's shards, in the order of the plan, and returns those of the mean
    /// loss of the shard's samples; shards are weighted by their samples. Before each call, the module's devices are
    /// [seeded](seed) for the shard. Shards without samples, which are the very last of an epoch, are left out. Running
    /// statistics become the mean over all shards that changed them.
    ///
    /// All ranks call it. Parameters without a gradient in a shard count as zero; those without one in any are not
    /// touched. Gradients cannot be [compressed](Self::compress) and there is one pass per shard.
    ///
    /// Workers have to compute alike: with the same version of the program, and on processors of the same kind. Where
    /// Burn's feature `rayon` is switched on, which adds large sums in any order, set `RAYON_NUM_THREADS=1`.
    ///
    /// ```no_run
    /// # use burn::{nn::LinearConfig, optim::{GradientsParams, SgdConfig}, tensor::Tensor};
    /// # use sirtaki::{DistributedOptimizer, data::{FixedShards, Position, Worker}};
    /// # fn main() -> sirtaki::Result<()> {
    /// # let world = sirtaki::init()?;
    /// # let device = world.device().autodiff();
    /// # let mut model = world.broadcast(LinearConfig::new(4, 2).init(&device), 0)?;
    /// let mut optimizer = DistributedOptimizer::new(&world, SgdConfig::new().init());
    /// let worker = Worker { rank: world.rank(), world: world.size() };
    /// let plan = FixedShards::new(60_000, Position::start(42), worker, 8, 256)?;
    /// for step in 0..plan.steps() {
    ///     model = optimizer.step_shards(0.1, model, &plan, step, |model, shard| {
    ///         let loss = model.forward(Tensor::<2>::ones([shard.samples, 4], &device)).mean();
    ///         Ok::<_, sirtaki::Error>(GradientsParams::from_grads(loss.backward(), model))
    ///     })?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn step_shards<M: Module, E: From<Error>>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        plan: &FixedShards,
        step: usize,
        mut gradients: impl FnMut(&M, Shard) -> std::result::Result<GradientsParams, E>,
    ) -> std::result::Result<M, E> {
        check(&self.world, &self.reducer, plan)?;
        if step >= plan.steps() {
            let problem = format!("there is no step {step} in a plan of {}", plan.steps());
            return Err(Error::setting(problem, "make a plan for the next epoch").into());
        }
        let parameters = take(&module, &mut GradientsParams::new());
        let names = self.reducer.names(&module, &parameters);
        let mut sharded = Sharded::new(&module, &self.reducer, parameters, &names, plan)?;
        let (mut module, devices) = (module, module_devices(&sharded.parameters));
        for batch in step * plan.per_step()..(step + 1) * plan.per_step() {
            let shard = plan.shard(batch);
            if shard.samples == 0 {
                sharded.skip(shard);
                continue;
            }
            devices.iter().for_each(|device| seed(device, plan.stream("forward", batch)));
            let gradients = gradients(&module, shard)?;
            module = sharded.add(module, shard, gradients)?;
        }
        let begun = Instant::now();
        let (module, gradients) = sharded.finish(&self.world, module, plan.together(step))?;
        self.waited += begun.elapsed();
        Ok(self.follow(rate, module, gradients))
    }
}

/// What the options and the plan must be.
fn check(world: &World, reducer: &Reducer, plan: &FixedShards) -> Result<()> {
    let refused = |problem: &str, hint: &str| Err(Error::setting(problem, hint));
    if reducer.compression.is_some() {
        return refused("compressed gradients would depend on the number of workers", "leave `compress` out");
    }
    if reducer.passes > 1 {
        return refused("every shard has a backward pass of its own", "leave `passes` out, and take more shards");
    }
    let (rank, mine) = (world.rank(), plan.per_step());
    if plan.place(0).1 != rank * mine || plan.shards() != world.size() * mine {
        let problem = format!("the plan of shards is not that of rank {rank} of {}", world.size());
        return refused(&problem, "make it with `Worker { rank: world.rank(), world: world.size() }`");
    }
    Ok(())
}

fn module_devices(parameters: &[Entry]) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for parameter in parameters {
        if !devices.contains(&parameter.device) {
            devices.push(parameter.device.clone());
        }
    }
    devices
}

/// A step that some shards have been added to.
struct Sharded<'a> {
    reducer: &'a Reducer,
    parameters: Vec<Entry>,
    /// What is not trained, as it was before the step.
    still: Vec<Part>,
    /// First the gradients, then the statistics.
    columns: Vec<Column>,
    sums: Branches<Sums>,
    /// How many samples have added to each column.
    counts: Vec<f64>,
    shards: usize,
    full: f64,
}

impl<'a> Sharded<'a> {
    fn new<M: Module>(
        module: &M,
        reducer: &'a Reducer,
        parameters: Vec<Entry>,
        names: &Names,
        plan: &FixedShards,
    ) -> Result<Self> {
        let still = read(module, STATISTICS, Which::NotTrained, true)?;
        let column = |(entry, name): (&Entry, &String)| Column {
            name: name.clone(),
            shape: entry.shape.clone(),
            dtype: entry.dtype,
        };
        // In f64 the mean of equal numbers of a narrower type is that number.
        let statistic = |part: &Part| Column { name: part.name.clone(), shape: part.shape.clone(), dtype: DType::F64 };
        let columns: Vec<Column> =
            parameters.iter().zip(&names.names).map(column).chain(still.iter().map(statistic)).collect();
        let (shards, full) = (plan.shards(), plan.shard_size() as f64);
        let (sums, counts) = (Branches::new(shards), vec![0.0; columns.len()]);
        Ok(Self { reducer, parameters, still, columns, sums, counts, shards, full })
    }

    fn skip(&mut self, shard: Shard) {
        self.sums.add(shard.number..shard.number + 1, Sums::new(), join);
    }

    /// Adds a shard; returns the module with the statistics from before the step.
    fn add<M: Module>(&mut self, module: M, shard: Shard, mut gradients: GradientsParams) -> Result<M> {
        let weight = shard.samples as f64 / self.full;
        let scale = if self.reducer.mean { weight } else { 1.0 };
        let taken = take(&module, &mut gradients);
        let mut values: Vec<(Option<TensorData>, f64)> = taken.into_iter().map(|entry| (entry.data, scale)).collect();
        let mut old = Vec::new();
        for (before, after) in self.still.iter().zip(read(&module, STATISTICS, Which::NotTrained, true)?) {
            let changed = match (&before.data, &after.data) {
                (Some(before), Some(after)) => before.as_bytes() != after.as_bytes(),
                _ => false,
            };
            old.extend(before.data.clone().filter(|_| changed).map(|data| (before.name.clone(), before.id, data)));
            values.push((after.data.filter(|_| changed), weight));
        }
        let mut sums = Sums::new();
        for (((value, weight), column), count) in values.into_iter().zip(&self.columns).zip(&mut self.counts) {
            let sum = value.map(|value| summand(column, value, weight)).transpose()?;
            *count += if sum.is_some() { shard.samples as f64 } else { 0.0 };
            sums.push(sum);
        }
        self.sums.add(shard.number..shard.number + 1, sums, join);
        Ok(replace(module, STATISTICS, old))
    }

    /// The module with the new statistics, and the gradients of all ranks.
    fn finish<M: Module>(self, world: &World, module: M, samples: usize) -> Result<(M, Option<GradientsParams>)> {
        let Self { reducer, parameters, still, columns, sums, counts, shards, full } = self;
        let (sums, counts) = over_all(world, &reducer.purpose, &columns, sums, shards, counts)?;
        let mut sums = sums.into_iter().zip(columns).zip(counts);
        let mut gradients = Vec::new();
        for (entry, ((sum, column), _)) in parameters.into_iter().zip(sums.by_ref()) {
            let data = sum.map(|sum| copied(sum.bytes(), column.shape, column.dtype));
            gradients.extend(data.map(|data| (entry.id, data, entry.device)));
        }
        let mut statistics = Vec::new();
        for (part, ((sum, column), count)) in still.into_iter().zip(sums) {
            let Some(mut sum) = sum else { continue };
            kernel::scale(sum.dtype(), sum.bytes_mut(), full / count);
            let data = cast(copied(sum.bytes(), column.shape, column.dtype), part.dtype)?;
            statistics.push((part.name, part.id, data));
        }
        let scale = if reducer.mean { full / samples as f64 } else { 1.0 };
        let gradients = reducer.put(&module, scale, gradients);
        Ok((replace(module, STATISTICS, statistics), gradients))
    }
}

/// What a shard adds to a column.
fn summand(column: &Column, value: TensorData, weight: f64) -> Result<sirtaki_engine::Tensor> {
    let (_, mut sum) = outbound(&column.name, Operation::Barrier, cast(value, column.dtype)?);
    kernel::scale(sum.dtype(), sum.bytes_mut(), weight);
    Ok(sum)
}

fn cast(data: TensorData, dtype: DType) -> Result<TensorData> {
    if data.dtype() == dtype {
        return Ok(data);
    }
    data.try_cast(dtype).map_err(|error| Error::setting(error.to_string(), "use floating-point statistics"))
}
