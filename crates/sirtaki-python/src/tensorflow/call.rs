//! What a node of a graph asks for, as Python has written it into the node's attribute.
//!
//! One text instead of an attribute each: TensorFlow's attributes have no double precision, and the same ops serve all
//! collectives. The first line has words, the second the name:
//!
//! ```text
//! all_reduce 0 main average 0.5 1 f16
//! gradients.kernel
//! ```

use std::str::FromStr;

use sirtaki_comm::{DType, Rank, ReduceOp, Reduction};
use sirtaki_engine::{Compression, Operation, Request};

/// A collective.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// What to do; splits are known later.
    operation: Operation,
    compression: Option<Compression>,
    of_all: bool,
    /// The number of the engine.
    pub(super) set: u64,
    /// Whether the program's main thread waits while threads of TensorFlow's do this, one call after the other.
    pub(super) for_main: bool,
    /// The name that ranks know it by.
    pub(super) name: String,
}

impl Call {
    /// Whether results come in place of the inputs.
    pub(super) fn overwrites(&self) -> bool {
        matches!(self.operation, Operation::ReduceScatter(_))
    }

    /// Whether results are the inputs if there is only one rank.
    pub(super) fn keeps_values_of_one(&self) -> bool {
        match self.operation {
            Operation::AllReduce(reduction) => (reduction.before, reduction.after) == (1.0, 1.0),
            Operation::Broadcast { .. } => true,
            _ => false,
        }
    }

    /// Whether rows are sent to other ranks.
    pub(super) fn exchanges(&self) -> bool {
        matches!(self.operation, Operation::AllToAll { .. })
    }

    /// The request for one of `count` tensors.
    pub(super) fn request(&self, index: usize, count: usize, dtype: DType, shape: &[usize]) -> Request {
        let name = if count == 1 { self.name.clone() } else { format!("{}.{index}", self.name) };
        let request = Request::new(name, self.operation.clone(), dtype, shape);
        let compression = self.compression.filter(|_| dtype == DType::F32);
        Request { compression, of_all: self.of_all, ..request }
    }

    /// The same for rows that go to each rank.
    pub(super) fn with_splits(&self, splits: Vec<usize>) -> Self {
        Self { operation: Operation::AllToAll { splits }, ..self.clone() }
    }
}

impl FromStr for Call {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (words, name) = text.split_once('\n').ok_or_else(|| wrong(text))?;
        let words: Vec<&str> = words.split(' ').collect();
        let [kind, set, thread, arguments @ ..] = words.as_slice() else { return Err(wrong(text)) };
        let mut compression = None;
        let operation = match (*kind, arguments) {
            ("all_reduce", ["adasum", ..]) => Operation::Adasum,
            ("all_reduce", [op, before, after, wire]) => {
                compression = match *wire {
                    "f16" => Some(Compression::F16),
                    "bf16" => Some(Compression::BF16),
                    _ => None,
                };
                Operation::AllReduce(reduction(op, before, after).ok_or_else(|| wrong(text))?)
            }
            ("reduce_scatter", [op, before, after]) => {
                Operation::ReduceScatter(reduction(op, before, after).ok_or_else(|| wrong(text))?)
            }
            ("broadcast", [root]) => Operation::Broadcast { root: root.parse::<Rank>().map_err(|_| wrong(text))? },
            ("all_gather", []) => Operation::AllGather,
            ("all_to_all", []) => Operation::AllToAll { splits: Vec::new() },
            ("barrier", []) => Operation::Barrier,
            ("join", []) => Operation::Join,
            _ => return Err(wrong(text)),
        };
        let of_all = !matches!(operation, Operation::AllReduce(_) | Operation::Adasum | Operation::Join);
        let set = set.parse().map_err(|_| wrong(text))?;
        Ok(Self { operation, compression, of_all, set, for_main: *thread == "main", name: name.into() })
    }
}

fn reduction(op: &str, before: &str, after: &str) -> Option<Reduction> {
    let op = ReduceOp::ALL.into_iter().find(|known| known.name() == op)?;
    Some(Reduction::new(op).scaled(before.parse().ok()?, after.parse().ok()?))
}

fn wrong(text: &str) -> String {
    format!("{text:?} is not a call of this version of Sirtaki\nhint: build the graph with the package that runs it")
}
