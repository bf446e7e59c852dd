//! Why a pipeline cannot go on, told from worker to worker.
//!
//! A worker that fails sends its reason where others wait for its tensors, and those pass it on, so that all workers fail
//! for the same reason instead of waiting for each other.

use std::panic::{AssertUnwindSafe, catch_unwind};

use sirtaki_engine::{Output, Tensor};

use super::{
    chain::{Chain, Layer},
    flow::Flow,
};
use crate::{Error, Result, error::panic_message};

/// The dimensions of a message that is a reason; tensors of a flow have fewer.
const DIMENSIONS: usize = 7;

/// What is wrong, and what to do about it.
pub(super) type Reason = (String, String);

/// A reason as a message, with its shape.
pub(super) fn message(reason: &Reason) -> (Tensor, Vec<usize>) {
    let bytes = postcard::to_stdvec(reason).unwrap_or_default();
    let mut shape = vec![1; DIMENSIONS];
    shape[0] = bytes.len();
    (Tensor::from_vec(bytes), shape)
}

/// Fails if a message is a reason.
pub(super) fn check(output: &Output) -> Result<()> {
    let Output::Message { tensor, shape, .. } = output else { return Ok(()) };
    if shape.len() != DIMENSIONS {
        return Ok(());
    }
    let unknown = |_| (String::from("another worker of the pipeline failed"), String::from("its own error says why"));
    let (problem, hint) = postcard::from_bytes(tensor.bytes()).unwrap_or_else(unknown);
    Err(Error::setting(problem, hint))
}

/// What layers make of a flow. Burn panics if tensors do not fit together; then this is an error.
pub(super) fn forward<L: Layer>(stage: usize, layers: &Chain<L>, input: &Flow) -> Result<Flow> {
    catch_unwind(AssertUnwindSafe(|| layers.forward(input.again()))).unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        let reason = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let problem = format!("stage {stage} cannot compute with {input:?}: {reason}");
        Err(Error::setting(problem, "look whether all workers make the layers of the same network"))
    })
}
