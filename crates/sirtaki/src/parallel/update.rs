//! How gradients become weights, whichever way they were computed.
//!
//! How gradients are computed (on one device, in stages, in parts of layers) and how they become weights are
//! independent of each other, and [`Update`] is where the two meet: training loops know nothing else of optimizers.
//! [`DistributedOptimizer`](super::DistributedOptimizer) keeps the whole state on every rank,
//! [`ShardedOptimizer`](super::ShardedOptimizer) a part of it, [`ServerOptimizer`](super::ServerOptimizer) none; each
//! takes the gradients of the ranks, or their sums over leaves of the tree, which give the same bits on any number of
//! ranks.

use std::{path::PathBuf, time::Duration};

use burn::{
    module::Module,
    optim::{GradientsParams, ModuleOptimizer, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
};

use serde::{Deserialize, Serialize};

use super::LeafSums;
use crate::{Error, Result, World, checkpoint::Description};

/// How gradients become weights. All ranks of its world call its methods, in the same order.
pub trait Update<M: Module> {
    /// The ranks whose gradients are combined.
    fn world(&self) -> &World;

    /// One step of all ranks. Parameters without a gradient on this rank count as zero; those without a gradient on any
    /// are not touched.
    fn step(&mut self, rate: ModuleLearningRate, module: M, gradients: Gradients) -> Result<M>;

    /// The module as it can be tested, saved or kept: all ranks have the same, with all that was learned so far.
    fn settle(&mut self, module: M) -> Result<M>;

    /// The optimizer's state for a checkpoint. The result is used on all ranks; see [`OptimizerState`].
    fn save(&self, module: &M) -> Result<OptimizerState<'_>>;

    /// Makes the state that which rank 0 has, after the module has become that rank's.
    fn restore(&mut self, module: &M, state: OptimizerState<'_>) -> Result<()>;

    /// The optimizer with its state, where every rank has all of it, so that training can go on in another world.
    fn whole(&self) -> Option<&ModuleOptimizer> {
        None
    }

    /// Refuses to change parameters of which this rank has only a part, if that would need all of it.
    fn check_parts(&self, _: &M) -> Result<()> {
        Ok(())
    }

    /// How many steps the fastest rank may be ahead of the slowest; `None` if that is not limited.
    fn ahead(&self) -> Option<u64> {
        Some(0)
    }

    /// Whether gradients are added instead of averaged.
    fn is_sum(&self) -> bool {
        false
    }

    /// How long this rank has waited for the gradients of all so far, with everything that is done to reduce them.
    fn waited(&self) -> Duration;

    /// What its steps have cost so far, on this rank; nothing where it is not counted.
    fn cost(&self) -> UpdateCost {
        UpdateCost::default()
    }

    /// How many steps were left out because gradients were too large for their type.
    fn skipped(&self) -> u64 {
        0
    }
}

/// What the steps of an [`Update`] have cost a rank: bytes that it sent and received, counted as the algorithms move them
/// that move least, whichever were chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateCost {
    /// Bytes of gradients, weights and state.
    pub bytes: u64,
    /// What it would have been if all gradients of all these steps had been averaged, as in data parallelism.
    pub bytes_of_data_parallelism: u64,
    /// Bytes of weights that it has in common with the other ranks of its host, instead of some of its own.
    pub shared: u64,
    /// How many of these steps began with weights that lacked 0, 1, 2 … steps of others; empty where none can be lacking.
    pub staleness: Vec<u64>,
}

impl UpdateCost {
    /// What two spans of steps, one after the other, have cost.
    #[must_use]
    pub fn and(mut self, next: &Self) -> Self {
        self.bytes += next.bytes;
        self.bytes_of_data_parallelism += next.bytes_of_data_parallelism;
        self.shared = self.shared.max(next.shared);
        self.staleness.resize(self.staleness.len().max(next.staleness.len()), 0);
        self.staleness.iter_mut().zip(&next.staleness).for_each(|(steps, more)| *steps += more);
        self
    }

    /// A step with gradients of so many bytes.
    pub(super) fn step(&mut self, ranks: usize, gradients: u64) {
        self.bytes_of_data_parallelism += 2 * passed_on(ranks, gradients);
    }

    /// So many bytes were reduced to ranks that have a part each, or gathered from them; an all-reduce does both.
    pub(super) fn pass(&mut self, ranks: usize, bytes: u64) {
        self.bytes += passed_on(ranks, bytes);
    }
}

/// What a rank sends and receives if all that it does not keep goes to the others and as much comes back.
fn passed_on(ranks: usize, bytes: u64) -> u64 {
    2 * (bytes - bytes / ranks as u64)
}

/// What a rank brings to a step.
pub enum Gradients {
    /// Those of its own batch. With means, of the mean loss of its samples.
    Own(GradientsParams),
    /// Sums over its leaves of the tree.
    Leaves(Box<LeafSums>),
}

impl std::fmt::Debug for Gradients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gradients::Own(_) => "Own(..)",
            Gradients::Leaves(_) => "Leaves(..)",
        })
    }
}

impl From<GradientsParams> for Gradients {
    fn from(gradients: GradientsParams) -> Self {
        Gradients::Own(gradients)
    }
}

impl From<LeafSums> for Gradients {
    fn from(sums: LeafSums) -> Self {
        Gradients::Leaves(Box::new(sums))
    }
}

/// A tensor of a state, and its elements.
pub(super) type SavedTensor = (Description, Vec<u8>);

/// Reads the elements of a tensor.
type Read<'a> = Box<dyn FnMut(&Description) -> Result<Vec<u8>> + 'a>;

/// An optimizer's state as whole tensors by the paths of their parameters, which do not say how many ranks there were
/// or what each of them had. One tensor at a time is in memory.
///
/// Rank 0 has the tensors. On other ranks there may be as many, with nothing in them: reading one may need all ranks, so
/// all read the same ones in the same order.
pub struct OptimizerState<'a> {
    tensors: Vec<Description>,
    read: Read<'a>,
    /// The checkpoint it comes from, for errors.
    origin: Option<PathBuf>,
}

impl<'a> OptimizerState<'a> {
    /// These tensors; `read` is called for one after the other.
    pub fn new(
        mut tensors: Vec<Description>,
        read: impl FnMut(&Description) -> Result<Vec<u8>> + 'a,
        origin: Option<PathBuf>,
    ) -> Self {
        tensors.sort_by(Description::order);
        Self { tensors, read: Box::new(read), origin }
    }

    /// No state, as before the first step, or because it is another rank that has it.
    pub fn none() -> Self {
        Self::new(Vec::new(), |_| Ok(Vec::new()), None)
    }

    /// What there is, in the order in which it is read.
    pub fn tensors(&self) -> &[Description] {
        &self.tensors
    }

    /// The elements of a tensor. On ranks other than 0 there may be none.
    pub fn read(&mut self, tensor: &Description) -> Result<Vec<u8>> {
        (self.read)(tensor)
    }

    /// The same and more; without these tensors again by [`OptimizerState::without`].
    pub(super) fn with(self, more: Vec<SavedTensor>) -> Self {
        let Self { mut tensors, mut read, origin } = self;
        tensors.extend(more.iter().map(|(tensor, _)| tensor.clone()));
        let own = move |tensor: &Description| match more.iter().find(|(other, _)| other.name == tensor.name) {
            Some((_, bytes)) => Ok(bytes.clone()),
            None => read(tensor),
        };
        Self::new(tensors, own, origin)
    }

    /// Some of the tensors, and the state without them.
    pub(super) fn without(mut self, is_taken: impl Fn(&Description) -> bool) -> Result<(Vec<SavedTensor>, Self)> {
        let (taken, rest) = std::mem::take(&mut self.tensors).into_iter().partition(is_taken);
        self.tensors = rest;
        let contents = |tensor: Description| self.read(&tensor).map(|bytes| (tensor, bytes));
        let taken: Result<Vec<_>> = Vec::into_iter(taken).map(contents).collect();
        Ok((taken?, self))
    }

    /// The error that this state does not fit.
    pub(super) fn refused(&self, problem: String) -> Error {
        let hint = "continue with the model and optimizer that wrote it, or in another folder; it is left as it is";
        match &self.origin {
            Some(path) => Error::file(path, problem, hint),
            None => Error::setting(problem, hint),
        }
    }
}

impl std::fmt::Debug for OptimizerState<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OptimizerState").field("tensors", &self.tensors).finish_non_exhaustive()
    }
}
