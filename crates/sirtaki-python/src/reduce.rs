//! What Python says about a reduction, as the engine wants it.

use pyo3::PyResult;
use sirtaki_comm::{DType, ReduceOp, Reduction};
use sirtaki_engine::{Compression, Operation, Request, Tensor, TensorPlace};

use crate::ticket::misuse;

/// An all-reduce of any tensor.
pub(crate) struct AllReduce {
    operation: Operation,
    compression: Option<Compression>,
}

impl AllReduce {
    /// `op` is a word of Python's `OPERATIONS`; `wire` is the type in which to travel.
    pub(crate) fn new(op: &str, before: f64, after: f64, wire: Option<&str>) -> PyResult<Self> {
        let compression = match wire {
            None => None,
            Some("f16") => Some(Compression::F16),
            Some("bf16") => Some(Compression::BF16),
            Some(other) => return Err(misuse(format!("{other} is not a compression: choose f16 or bf16"))),
        };
        Ok(match op {
            "adasum" => Self { operation: Operation::Adasum, compression: None },
            op => Self { operation: Operation::AllReduce(reduction(op)?.scaled(before, after)), compression },
        })
    }

    pub(crate) fn request(&self, name: &str, dtype: DType, shape: &[usize]) -> Request {
        let request = Request::new(name, self.operation.clone(), dtype, shape);
        Request { compression: self.compression.filter(|_| dtype == DType::F32), ..request }
    }
}

/// A reduction by its name.
pub(crate) fn reduction(op: &str) -> PyResult<Reduction> {
    let op = ReduceOp::ALL.into_iter().find(|known| known.name() == op);
    op.map(Reduction::new).ok_or_else(|| misuse("this reduction does not exist"))
}

/// The request for a tensor where it lies. On a GPU, Python makes tensors smaller before they are handed in.
pub(crate) fn placed(request: Request, tensor: &Tensor) -> Request {
    let mut request = request.placed(tensor.place());
    request.compression.take_if(|_| request.place == TensorPlace::Device);
    request
}
