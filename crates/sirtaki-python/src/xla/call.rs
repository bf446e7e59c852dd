//! What a call asks for, as requests of the engine, and what becomes of its results.

use std::sync::Arc;

use sirtaki_comm::{ReduceOp, Reduction};
use sirtaki_engine::{EngineError, Operation, Output, Request};

use super::{
    abi::{Code, Frame},
    frame::{self, Kind, Named, Place},
    future::Future,
    workers,
};
use crate::registry::{self, Live};

pub(super) const NOT_ON_GPUS: &str = "sirtaki's collectives inside jit work on arrays in the host's memory, not in that of \
     a GPU\nhint: set JAX_PLATFORMS=cpu, or call the collective outside jit, where arrays are copied to the host and back";

/// Bytes of a call that takes no longer than waking a thread.
const SMALL: usize = 64 << 10;
/// Bytes of a call that may end while its handler looks for that.
const BRIEF: usize = 4 << 20;

type Problem = (Code, String);

/// One call: arrays that take part in the same operation, together.
pub(super) struct XlaCall {
    engine: Arc<Live>,
    name: String,
    operation: Operation,
    /// How many rows from each rank there is room for.
    room: Vec<usize>,
    arguments: Vec<Place>,
    results: Vec<Place>,
}

impl XlaCall {
    /// Copies everything out of the frame and checks it.
    ///
    /// # Safety
    /// `frame` is what XLA passes to a handler.
    pub(super) unsafe fn read(frame: &Frame) -> Result<Self, Problem> {
        let invalid = |problem: String| (Code::InvalidArgument, problem);
        // SAFETY: the caller's promise.
        let (attributes, arguments, results) = unsafe {
            let (arguments, results) = (frame::places(&frame.arguments), frame::places(&frame.results));
            (Named::new(&frame.attributes), arguments.map_err(invalid)?, results.map_err(invalid)?)
        };
        let missing =
            |name: &str| invalid(format!("a call without {name}; sirtaki's own functions make no such calls"));
        let number = attributes.integer("engine").ok_or_else(|| missing("engine"))?;
        let name = attributes.text("name").ok_or_else(|| missing("name"))?.to_owned();
        let operation = operation(&attributes).ok_or_else(|| missing("operation"))?;
        let computes = matches!(operation, Operation::AllReduce(_) | Operation::ReduceScatter(_) | Operation::Adasum);
        if computes && arguments.iter().any(|place| matches!(place.kind, Kind::Opaque(_))) {
            return Err(invalid(format!("\"{name}\": elements of this type can be sent but not reduced")));
        }
        if arguments.is_empty() || results.len() < arguments.len() {
            return Err(missing("a result for each argument"));
        }
        let engine = registry::find(number).map_err(|problem| (Code::FailedPrecondition, problem))?;
        let room = attributes.counts("room").unwrap_or_default();
        Ok(Self { engine, name, operation, room, arguments, results })
    }

    /// Whether results replace the arguments where these are.
    fn in_place(&self) -> bool {
        matches!(self.operation, Operation::AllReduce(_) | Operation::Adasum | Operation::Broadcast { .. })
    }

    fn bytes(&self) -> usize {
        self.arguments.iter().map(Place::bytes).sum()
    }

    /// Whether it is worth looking for the end of the call at once.
    pub(super) fn is_brief(&self) -> bool {
        self.bytes() <= BRIEF
    }

    /// Hands everything in. `future` ends the call.
    pub(super) fn submit(self, future: Future) {
        let (in_place, is_small) = (self.in_place(), self.bytes() <= SMALL);
        // A reduced scatter overwrites its input, so each argument has a copy among the results, after the others.
        let copies = match &self.operation {
            Operation::ReduceScatter(_) => self.results.get(self.arguments.len()..).unwrap_or_default(),
            _ if in_place => &self.results,
            _ => &[],
        };
        copies.iter().zip(&self.arguments).for_each(|(copy, argument)| copy.fill_from(argument));
        let used = if copies.is_empty() { &self.arguments } else { copies };
        let count = used.len();
        let request = |(index, place): (usize, &Place)| {
            let name = if count == 1 { self.name.clone() } else { format!("{}.{index}", self.name) };
            let (dtype, shape) = place.described();
            let request = Request::new(name, self.operation.clone(), dtype, &shape);
            let of_all = !matches!(self.operation, Operation::AllReduce(_) | Operation::Adasum);
            (Request { room: self.room.clone(), of_all, ..request }, place.tensor(&future))
        };
        let requests = used.iter().enumerate().map(request).collect();
        let ticket = self.engine.submit(&self.name, requests);
        let (own, results) = (ticket.clone(), if in_place { Vec::new() } else { self.results });
        ticket.when_done(move || match own.take() {
            Some(Ok(outputs)) if is_small || results.is_empty() => keep(outputs, &results, &future),
            Some(Ok(outputs)) => workers::perform(move || keep(outputs, &results, &future)),
            Some(Err(error)) => future.fail(code(&error), error.to_string()),
            None => (),
        });
    }
}

/// Copies what the engine has made to where XLA wants it.
fn keep(outputs: Vec<Output>, results: &[Place], future: &Future) {
    for (output, result) in outputs.iter().zip(results) {
        let (Output::Tensor(tensor, _) | Output::Received { tensor, .. }) = output else { continue };
        if !result.fill(tensor.bytes()) {
            let (made, room) = (tensor.byte_len(), result.bytes());
            future.fail(Code::InvalidArgument, format!("{made} bytes arrived where {room} were expected"));
        }
    }
}

fn code(error: &EngineError) -> Code {
    if error.is_recoverable() { Code::InvalidArgument } else { Code::Unavailable }
}

fn operation(attributes: &Named<'_>) -> Option<Operation> {
    let reduction = || {
        let name = attributes.text("op")?;
        let op = ReduceOp::ALL.into_iter().find(|op| op.name() == name)?;
        Some(Reduction::new(op).scaled(attributes.number("before")?, attributes.number("after")?))
    };
    Some(match attributes.text("operation")? {
        "all_reduce" if attributes.text("op") == Some("adasum") => Operation::Adasum,
        "all_reduce" => Operation::AllReduce(reduction()?),
        "reduce_scatter" => Operation::ReduceScatter(reduction()?),
        "all_gather" => Operation::AllGather,
        "broadcast" => Operation::Broadcast { root: attributes.integer("root")?.try_into().ok()? },
        "all_to_all" => Operation::AllToAll { splits: attributes.counts("splits")? },
        _ => return None,
    })
}
