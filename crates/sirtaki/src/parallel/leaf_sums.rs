//! Gradients and running statistics of a step, summed over the leaves of one tree.
//!
//! A leaf is a piece of the batch of a step: a shard or a micro-batch. Everything that happens to a leaf follows from the
//! leaf, so sums along the tree over all leaves have the same bits however leaves are spread over ranks; see
//! [`sirtaki_comm::sum_tree`].

use burn::{
    module::{Module, ParamId},
    optim::GradientsParams,
    tensor::{DType, Device, TensorData},
};
use sirtaki_comm::{kernel, sum_tree::Branches};
use sirtaki_engine::{Operation, Tensor};

use super::{
    convert::{copied, outbound},
    gradients::{Entry, take},
    module_tensors::{Part, Which, read, replace},
    tree_sums::{Column, Sums, join},
};
use crate::{Error, Result, World};

pub(super) const STATISTICS: &str = "statistics of shards";

/// A step to which some leaves have been added, with the parameters of a module.
pub struct LeafSums {
    pub(super) parameters: Vec<Entry>,
    /// What is not trained, as it was before the step.
    still: Vec<Part>,
    /// First the gradients, then the statistics.
    pub(super) columns: Vec<Column>,
    sums: Branches<Sums>,
    /// How many samples have added to each column.
    counts: Vec<f64>,
    pub(super) leaves: usize,
    full: f64,
    samples: f64,
    mean: bool,
    /// The workers that have the other stages of the network.
    stages: Option<World>,
    /// The workers that keep other rows of the parameters.
    pub(super) shares: Option<World>,
}

/// What a forward pass made of each running statistic that it changed.
pub(super) type Statistics = Vec<Option<TensorData>>;

impl LeafSums {
    /// Nothing yet of a step in `leaves` leaves with `samples` samples in all, on all ranks. Leaves are weighted by their
    /// samples; `full` is how many an ordinary leaf has.
    pub fn new<M: Module>(module: &M, leaves: usize, full: usize, samples: usize) -> Result<Self> {
        let parameters = take(module, &mut GradientsParams::new());
        let still = read(module, STATISTICS, Which::NotTrained, true)?;
        let column = |entry: &Entry| Column { shape: entry.shape.clone(), dtype: entry.dtype };
        // In f64 the mean of equal numbers of a narrower type is that number.
        let statistic = |part: &Part| Column { shape: part.shape.clone(), dtype: DType::F64 };
        let columns: Vec<Column> = parameters.iter().map(column).chain(still.iter().map(statistic)).collect();
        let (sums, counts) = (Branches::new(leaves), vec![0.0; columns.len()]);
        let (full, samples, mean) = (full as f64, samples as f64, true);
        Ok(Self { parameters, still, columns, sums, counts, leaves, full, samples, mean, stages: None, shares: None })
    }

    /// Those of no parameters, in the place of others.
    pub(super) fn none() -> Self {
        Self {
            parameters: Vec::new(),
            still: Vec::new(),
            columns: Vec::new(),
            sums: Branches::new(0),
            counts: Vec::new(),
            leaves: 0,
            full: 0.0,
            samples: 0.0,
            mean: true,
            stages: None,
            shares: None,
        }
    }

    /// Gradients are added without weights, instead of averaged over samples.
    #[must_use]
    pub fn summed(mut self, summed: bool) -> Self {
        self.mean = !summed;
        self
    }

    /// The devices of the parameters.
    pub fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<Device> = Vec::new();
        for parameter in &self.parameters {
            if !devices.contains(&parameter.device) {
                devices.push(parameter.device.clone());
            }
        }
        devices
    }

    /// Leaves out a leaf, which has no samples.
    pub fn skip(&mut self, leaf: usize) {
        self.sums.add(leaf..leaf + 1, Sums::new(), join);
    }

    /// Adds the gradients of the mean loss of a leaf's samples, and the statistics that the module has gathered from
    /// them. Returns the module with the statistics from before the step. A rank adds its leaves in ascending order,
    /// without gaps.
    pub fn add<M: Module>(&mut self, module: M, leaf: usize, samples: usize, gradients: GradientsParams) -> Result<M> {
        let (module, statistics) = self.observe(module)?;
        self.add_observed(&module, (leaf, samples), gradients, statistics)?;
        Ok(module)
    }

    /// The statistics that a forward pass changed, and the module with those from before the step.
    pub(super) fn observe<M: Module>(&self, module: M) -> Result<(M, Statistics)> {
        let (mut old, mut statistics) = (Vec::new(), Statistics::new());
        for (before, after) in self.still.iter().zip(read(&module, STATISTICS, Which::NotTrained, true)?) {
            let changed = match (&before.data, &after.data) {
                (Some(before), Some(after)) => before.as_bytes() != after.as_bytes(),
                _ => false,
            };
            old.extend(before.data.clone().filter(|_| changed).map(|data| (before.name.clone(), before.id, data)));
            statistics.push(after.data.filter(|_| changed));
        }
        Ok((replace(module, STATISTICS, old), statistics))
    }

    /// Adds a leaf with these samples, whose statistics were observed after its forward pass.
    pub(super) fn add_observed<M: Module>(
        &mut self,
        module: &M,
        (leaf, samples): (usize, usize),
        mut gradients: GradientsParams,
        statistics: Statistics,
    ) -> Result<()> {
        let weight = samples as f64 / self.full;
        let scale = if self.mean { weight } else { 1.0 };
        let gradients = take(module, &mut gradients).into_iter().map(|entry| (entry.data, scale));
        let values = gradients.chain(statistics.into_iter().map(|statistic| (statistic, weight)));
        let mut sums = Sums::new();
        for (((value, weight), column), count) in values.zip(&self.columns).zip(&mut self.counts) {
            let sum = value.map(|value| summand(column, value, weight)).transpose()?;
            *count += if sum.is_some() { samples as f64 } else { 0.0 };
            sums.push(sum);
        }
        self.sums.add(leaf..leaf + 1, sums, join);
        Ok(())
    }

    /// The sums of some stages of a network as those of one module with the layers of all of them, in this order. The
    /// workers `stages` have the others.
    pub(super) fn of_stages(parts: Vec<Self>, stages: &World) -> Option<Self> {
        let mut parts = parts.into_iter();
        let mut all = parts.next()?;
        all.stages = Some(stages.clone());
        for part in parts {
            let (here, there) = (all.parameters.len(), part.parameters.len());
            let mut sums = Branches::new(all.leaves);
            for ((branch, left), (_, right)) in all.sums.into_branches().zip(part.sums.into_branches()) {
                let (left, right) = (expanded(left, all.columns.len()), expanded(right, part.columns.len()));
                sums.add(branch, merged((left, here), (right, there)), join);
            }
            all.sums = sums;
            all.counts = merged((all.counts, here), (part.counts, there));
            all.columns = merged((all.columns, here), (part.columns, there));
            all.parameters.extend(part.parameters);
            all.still.extend(part.still);
        }
        Some(all)
    }

    /// The sums of this rank and their counts, which are then over.
    pub(super) fn take_sums(&mut self) -> (Branches<Sums>, Vec<f64>) {
        (std::mem::replace(&mut self.sums, Branches::new(self.leaves)), std::mem::take(&mut self.counts))
    }

    /// Sums of all ranks, in the place of this one's.
    pub(super) fn put_sums(&mut self, sums: Branches<Sums>, counts: Vec<f64>) {
        (self.sums, self.counts) = (sums, counts);
    }

    /// Worlds whose workers have other gradients of the same step, for a norm of all of them.
    pub(super) fn others(&self) -> Vec<World> {
        self.stages.iter().chain(&self.shares).cloned().collect()
    }

    /// What the tensors that are not trained are called.
    pub(super) fn statistics(&self) -> impl Iterator<Item = &str> {
        self.still.iter().map(|part| part.name.as_str())
    }

    /// What sums of gradients over all leaves are multiplied by.
    pub(super) fn scale(&self) -> f64 {
        if self.mean { self.full / self.samples } else { 1.0 }
    }

    /// The new statistics, from their sums and counts over all leaves.
    pub(super) fn new_statistics(
        &self,
        sums: impl Iterator<Item = (Option<Tensor>, f64)>,
    ) -> Result<Vec<(String, ParamId, TensorData)>> {
        let mut statistics = Vec::new();
        let columns = &self.columns[self.parameters.len()..];
        for ((part, column), (sum, count)) in self.still.iter().zip(columns).zip(sums) {
            let Some(mut sum) = sum else { continue };
            kernel::scale(sum.dtype(), sum.bytes_mut(), self.full / count);
            let data = cast(copied(sum.bytes(), column.shape.clone(), column.dtype), part.dtype)?;
            statistics.push((part.name.clone(), part.id, data));
        }
        Ok(statistics)
    }
}

impl std::fmt::Debug for LeafSums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parameters = self.parameters.len();
        f.debug_struct("LeafSums")
            .field("leaves", &self.leaves)
            .field("parameters", &parameters)
            .finish_non_exhaustive()
    }
}

/// The columns of two modules, of which the first ones are those of gradients.
fn merged<T>((mut left, here): (Vec<T>, usize), (mut right, there): (Vec<T>, usize)) -> Vec<T> {
    let statistics = (left.split_off(here), right.split_off(there));
    left.into_iter().chain(right).chain(statistics.0).chain(statistics.1).collect()
}

/// A sum for each column, also where no leaf has added anything.
fn expanded(mut sums: Sums, columns: usize) -> Sums {
    sums.resize_with(columns, || None);
    sums
}

/// What a leaf adds to a column.
fn summand(column: &Column, value: TensorData, weight: f64) -> Result<Tensor> {
    let (_, mut sum) = outbound("", Operation::Barrier, cast(value, column.dtype)?);
    kernel::scale(sum.dtype(), sum.bytes_mut(), weight);
    Ok(sum)
}

fn cast(data: TensorData, dtype: DType) -> Result<TensorData> {
    if data.dtype() == dtype {
        return Ok(data);
    }
    data.try_cast(dtype).map_err(|error| Error::setting(error.to_string(), "use floating-point statistics"))
}
