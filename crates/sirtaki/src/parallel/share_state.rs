//! An optimizer's state made equal on all ranks.

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Bytes, Tensor, TensorData},
};
use sirtaki_comm::Rank;
use sirtaki_engine::Operation;

use super::{
    DistributedOptimizer,
    convert::{inbound, outbound, zeros},
};
use crate::{Error, Result};

impl DistributedOptimizer {
    /// Says that this rank has no more batches, and waits until no rank has. Until then the others go on, and the mean
    /// is over those that do. Returns the module of the rank that was the last, which has seen all steps; this
    /// optimizer's state becomes that rank's too. All ranks call it at the end of an epoch.
    pub fn join<M: Module>(&mut self, module: M) -> Result<M> {
        let last = self.world.engine().join()?;
        let module = self.world.broadcast(module, last)?;
        self.broadcast(&module, last)?;
        Ok(module)
    }

    /// Makes the state, such as momentum, that of rank `root`, after the module has become that rank's with
    /// [`World::broadcast`](crate::World::broadcast). All ranks call it.
    pub fn broadcast<M: Module>(&mut self, module: &M, root: Rank) -> Result<()> {
        let mut identities = Identities::default();
        module.visit(&mut identities);
        let mine = identities.0.clone();
        let theirs = self.share("optimizer identities", TensorData::new(mine, [identities.0.len()]), root)?;
        let same = theirs.as_slice::<i64>().is_ok_and(|theirs| theirs == identities.0);
        let state = self.optimizer.into_bytes().map_err(|error| state_problem(&error.to_string()))?;
        // If modules differ, no rank may go on to share the state: it would wait for the others.
        let agreed = self.world.average(if same { 1.0 } else { 0.0 })?;
        if agreed < 1.0 {
            let problem = format!("the modules of rank {root} and of others are not the same");
            return Err(Error::setting(problem, "call World::broadcast on the module first, on all ranks"));
        }
        let length = self.share("optimizer length", TensorData::new(vec![state.len() as i64], [1]), root)?;
        let length = length.as_slice::<i64>().ok().and_then(|length| usize::try_from(*length.first()?).ok());
        let length = length.ok_or_else(|| state_problem("its length is not a number"))?;
        let data = if self.world.rank() == root {
            TensorData::from_bytes(state, [length], burn::tensor::DType::U8)
        } else {
            zeros(&[length].into(), burn::tensor::DType::U8)
        };
        let received = self.share("optimizer state", data, root)?;
        if self.world.rank() != root {
            let bytes = Bytes::from_bytes_vec(received.as_bytes().to_vec());
            let optimizer = self.optimizer.clone().from_bytes(bytes);
            self.optimizer = optimizer.map_err(|error| state_problem(&error.to_string()))?;
        }
        Ok(())
    }

    /// What rank `root` has.
    fn share(&self, name: &str, data: TensorData, root: Rank) -> Result<TensorData> {
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        let (request, tensor) = outbound(name, Operation::Broadcast { root }, data);
        inbound(name, self.world.engine().submit(request, tensor).wait_one()?, shape, dtype)
    }
}

fn state_problem(problem: &str) -> Error {
    Error::setting(format!("the optimizer's state cannot be shared: {problem}"), "use the same optimizer on all ranks")
}

/// The parameters an optimizer may know, by their identities.
#[derive(Default)]
struct Identities(Vec<i64>);

impl ModuleVisitor for Identities {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            self.0.push(param.id.val().cast_signed());
        }
    }
}
