//! The loss of a classifier whose classes are split, without bringing the scores of all classes together.

use std::ops::Range;

use burn::tensor::{Int, Tensor};
use sirtaki_comm::{ReduceOp, Reduction};
use sirtaki_engine::Operation;

use super::{
    super::{
        convert::{inbound, outbound},
        differentiable::Collective,
    },
    part::{name, part},
};
use crate::{Result, World};

/// Cross entropy over the scores of a [`ColumnLinear`](super::ColumnLinear), of which every worker has some classes.
#[derive(Debug, Clone)]
pub struct SplitCrossEntropy {
    world: Option<World>,
    name: String,
    classes: Range<usize>,
    total: Collective,
    wanted: Collective,
}

impl SplitCrossEntropy {
    /// The loss for this many classes in all; none of them is elsewhere without a world.
    pub fn new<'a>(world: impl Into<Option<&'a World>>, classes: usize) -> Result<Self> {
        let world = world.into().filter(|world| world.size() > 1);
        let classes = part(world, classes, "classes")?;
        let name = name(world, "cross entropy");
        let [total, wanted] = ["total", "wanted"].map(|what| Collective::leaving(world, &format!("{name} {what}")));
        Ok(Self { world: world.cloned(), name, classes, total, wanted })
    }

    /// The mean loss of samples, the same on all workers: `scores` is `[samples, classes here]`, `targets` has the right
    /// class of each sample among all classes.
    ///
    /// # Panics
    /// If the scores are not those of this worker's classes, or ranks cannot work together any more.
    pub fn forward(&self, scores: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        self.forward_judged(scores, targets).0
    }

    /// The mean loss of samples, and how many of them have no larger score than that of the right class; both the same
    /// on all workers.
    ///
    /// # Panics
    /// As [`SplitCrossEntropy::forward`].
    pub fn forward_judged(&self, scores: Tensor<2>, targets: Tensor<1, Int>) -> (Tensor<1>, usize) {
        let [samples, here] = scores.dims();
        assert!(here == self.classes.len(), "scores of {here} classes, but {} of them are here", self.classes.len());
        let largest = self.largest(scores.clone().detach().max_dim(1));
        let scores = scores - largest;
        let total = self.total.of(scores.clone().exp().sum_dim(1)).log();
        let outside = targets
            .clone()
            .lower_elem(self.classes.start as i64)
            .bool_or(targets.clone().greater_equal_elem(self.classes.end as i64));
        let target = targets.sub_scalar(self.classes.start as i64).mask_fill(outside.clone(), 0);
        let wanted = scores.gather(1, target.reshape([samples, 1]));
        let wanted = self.wanted.of(wanted.mask_fill(outside.reshape([samples, 1]), 0.0));
        // Scores are below the largest one, which is zero here.
        let right: i64 = wanted.clone().detach().equal_elem(0.0).int().sum().into_scalar();
        ((total - wanted).mean(), right.max(0) as usize)
    }

    /// The largest score of each sample on any worker.
    fn largest(&self, own: Tensor<2>) -> Tensor<2> {
        let Some(world) = &self.world else { return own };
        let device = own.device();
        let data = own.into_data();
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        let name = format!("{} largest", self.name);
        let (request, tensor) = outbound(&name, Operation::AllReduce(Reduction::new(ReduceOp::Max)), data);
        let output = world.engine().submit(request, tensor).wait_one().map_err(crate::Error::from);
        let largest = output.and_then(|output| inbound(&name, output, shape, dtype));
        Tensor::from_data(largest.unwrap_or_else(|error| panic!("{error}")), (&device, dtype))
    }
}
