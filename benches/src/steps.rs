//! The engine as a benchmark peer.
//!
//! An order for as many bytes as ResNet-50 has parameters is a training step: its tensors are submitted one by one, in
//! an order that differs from rank to rank and from step to step. Any other order is one tensor.

use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{Engine, Operation, Request, Tensor, Ticket};

use crate::{BenchError, resnet, serve::Work};

/// The engine at work.
pub struct Steps {
    engine: Engine,
    /// Start and length of each tensor in the buffer, and its name.
    tensors: Vec<(usize, usize, String)>,
    step: u64,
}

impl Steps {
    /// Steps through `engine`.
    pub fn new(engine: Engine) -> Self {
        let mut start = 0;
        let tensor = |(index, length): (usize, usize)| {
            start += length;
            (start - length, length, format!("layer {index}"))
        };
        Self { engine, tensors: resnet::tensors().into_iter().enumerate().map(tensor).collect(), step: 0 }
    }

    fn submit(&self, name: &str, data: &mut [f32]) -> Ticket {
        let request = Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[data.len()]);
        // SAFETY: `run` waits for the ticket before the borrow of the data ends, and submits no part of it twice.
        let tensor = unsafe { Tensor::foreign(data.as_mut_ptr().cast(), DType::F32, data.len(), Box::new(())) };
        self.engine.submit(request, tensor)
    }
}

/// Two engines that take turns, call by call, so that they see the same machine and the same memory.
pub struct Turns {
    engines: [Steps; 2],
    next: usize,
}

impl Turns {
    /// `first` runs the first timed call.
    pub fn new(first: Engine, second: Engine) -> Self {
        Self { engines: [first, second].map(Steps::new), next: 0 }
    }
}

impl Work for Turns {
    fn barrier(&mut self) -> Result<(), BenchError> {
        self.next = 0;
        self.engines.iter_mut().try_for_each(Steps::barrier)
    }

    fn run(&mut self, data: &mut [f32]) -> Result<(), BenchError> {
        let turn = self.next;
        self.next = 1 - turn;
        self.engines[turn].run(data)
    }
}

impl Work for Steps {
    fn barrier(&mut self) -> Result<(), BenchError> {
        self.engine.barrier("barrier").map_err(failed)
    }

    fn run(&mut self, data: &mut [f32]) -> Result<(), BenchError> {
        let whole = self.tensors.last().map_or(0, |(start, length, _)| start + length);
        if data.len() != whole {
            return self.submit("tensor", data).wait().map(drop).map_err(failed);
        }
        self.step += 1;
        let seed = self.step * 1000 + self.engine.group().rank() as u64;
        let tickets: Vec<Ticket> = resnet::shuffled(self.tensors.len(), seed)
            .into_iter()
            .map(|index| {
                let (start, length, name) = &self.tensors[index];
                self.submit(name, &mut data[*start..start + length])
            })
            .collect();
        // All of them, even after an error: the engine uses the memory until they are done.
        let outcomes: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop)).map_err(failed)
    }
}

fn failed(error: sirtaki_engine::EngineError) -> BenchError {
    BenchError::Protocol(error.to_string())
}
