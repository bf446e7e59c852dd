//! The optimizer's state of ranks that stepped by themselves: made equal, saved and read.

use burn::{module::Module, optim::ModuleOptimizer};
use burn_pack::Scalar;
use serde::{Deserialize, Serialize};

use super::{
    super::{
        OptimizerState,
        module_tensors::Part,
        optimizer_record::{fields, known, number_bytes, number_name, with_fields},
        synchronize::mean,
        update::SavedTensor,
    },
    outer::is_momentum,
};
use crate::{Error, Result, World, checkpoint::Description};

/// The number of steps in a checkpoint; no parameter has an empty path.
const STEPS: &str = "local steps";

/// Makes the state, such as momentum, the mean of all ranks', and says how many bytes it has.
pub(super) fn average<M: Module>(world: &World, optimizer: &mut ModuleOptimizer, module: &M) -> Result<u64> {
    let mut all = fields(optimizer)?;
    let mut state = Vec::new();
    let mut parts = Vec::new();
    for known in known(module)? {
        let Some(mut fields) = all.remove(&known.id.val()) else { continue };
        for (field, data) in std::mem::take(&mut fields.tensors) {
            let name = format!("{}/{field}", known.path);
            let (shape, dtype) = (data.shape().clone(), data.dtype());
            parts.push((state.len(), field, Part { name, id: known.id, shape, dtype, data: Some(data) }));
        }
        state.push((known, fields));
    }
    let (places, parts): (Vec<_>, Vec<_>) =
        parts.into_iter().map(|(owner, field, part)| ((owner, field), part)).unzip();
    if parts.is_empty() {
        return Ok(0);
    }
    let bytes = parts.iter().map(|part| (part.shape.num_elements() * part.dtype.size()) as u64).sum();
    for ((owner, field), (_, _, data)) in places.into_iter().zip(mean(world, "optimizer state", parts)?) {
        state[owner].1.tensors.insert(field, data);
    }
    let refused = |problem| {
        Error::setting(format!("the optimizer's state cannot be averaged: {problem}"), "use SGD, Adam or AdamW")
    };
    *optimizer = with_fields(optimizer, state).map_err(refused)?;
    Ok(bytes)
}

/// What local SGD adds to the state of its optimizer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct WindowState {
    pub(super) steps: u64,
    pub(super) momentum: Vec<SavedTensor>,
}

impl WindowState {
    /// The state of the optimizer with this.
    pub(super) fn add_to(self, state: OptimizerState<'_>) -> OptimizerState<'_> {
        let (dtype, bytes) = number_bytes(Scalar::UInt(self.steps));
        let steps = Description { name: number_name("", STEPS), dtype, shape: Vec::new() };
        state.with(self.momentum.into_iter().chain([(steps, bytes)]).collect())
    }

    /// The opposite.
    pub(super) fn take_from(state: OptimizerState<'_>) -> Result<(Self, OptimizerState<'_>)> {
        let is_steps = |tensor: &Description| tensor.name == number_name("", STEPS);
        let (own, rest) = state.without(|tensor| is_momentum(tensor) || is_steps(tensor))?;
        let (steps, momentum): (Vec<SavedTensor>, Vec<SavedTensor>) =
            own.into_iter().partition(|(tensor, _)| is_steps(tensor));
        let steps = steps.first().and_then(|(_, bytes)| Some(u64::from_le_bytes(bytes.as_slice().try_into().ok()?)));
        Ok((Self { steps: steps.unwrap_or(0), momentum }, rest))
    }
}
