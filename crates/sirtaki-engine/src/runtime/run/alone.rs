//! One tensor by itself, where it lies.

use sirtaki_comm::{CommError, Communicator, Reduction};

use super::{Runner, neutral::neutral, with_rows};
use crate::{
    decide::request::{Operation, Request, shares},
    runtime::{adasum, memory::Tensor, ticket::Output},
};

impl Runner {
    pub(super) fn alone(
        &mut self,
        request: &Request,
        rows: &[usize],
        tensor: Option<Tensor>,
    ) -> Result<Option<Output>, CommError> {
        let absent = tensor.is_none();
        let output = match &request.operation {
            Operation::AllReduce(reduction) => {
                let mut tensor = tensor.unwrap_or_else(|| neutral(request, reduction.op));
                self.comm.all_reduce(tensor.slice_mut()?, *reduction)?;
                Output::Tensor(tensor, request.shape.clone())
            }
            Operation::Broadcast { root } => {
                let mut tensor = tensor.unwrap_or_else(|| Tensor::zeros(request.dtype, request.elements()));
                self.comm.broadcast(tensor.slice_mut()?, *root)?;
                Output::Tensor(tensor, request.shape.clone())
            }
            Operation::AllGather => self.all_gather(request, rows, tensor)?,
            Operation::AllToAll { .. } => self.all_to_all(request, rows, tensor)?,
            Operation::ReduceScatter(reduction) => self.reduce_scatter(request, *reduction, tensor)?,
            Operation::Adasum => {
                let mut tensor = tensor.unwrap_or_else(|| Tensor::zeros(request.dtype, request.elements()));
                adasum::all_reduce(&mut self.comm, &mut tensor)?;
                Output::Tensor(tensor, request.shape.clone())
            }
            Operation::Barrier | Operation::Join | Operation::ProcessSet { .. } => {
                self.comm.barrier()?;
                Output::Tensor(tensor.unwrap_or_else(Tensor::empty), vec![0])
            }
        };
        Ok((!absent).then_some(output))
    }

    fn all_gather(&mut self, request: &Request, rows: &[usize], mine: Option<Tensor>) -> Result<Output, CommError> {
        let rank = self.comm.group().rank();
        let counts: Vec<usize> = rows.iter().map(|rows| rows * request.row()).collect();
        let mut all = Tensor::zeros(request.dtype, counts.iter().sum());
        let begin: usize = counts[..rank].iter().sum::<usize>() * request.dtype.size();
        if let Some(mine) = mine {
            all.bytes_mut()[begin..begin + mine.bytes().len()].copy_from_slice(mine.bytes());
        }
        self.comm.all_gather(all.slice_mut()?, &counts)?;
        Ok(Output::Tensor(all, with_rows(request, rows.iter().sum())))
    }

    fn all_to_all(&mut self, request: &Request, rows: &[usize], mine: Option<Tensor>) -> Result<Output, CommError> {
        let (rank, size) = (self.comm.group().rank(), self.comm.group().size());
        let sent: Vec<usize> = rows[rank * size..(rank + 1) * size].iter().map(|rows| rows * request.row()).collect();
        let received: Vec<usize> = (0..size).map(|from| rows[from * size + rank]).collect();
        let counts: Vec<usize> = received.iter().map(|rows| rows * request.row()).collect();
        let mine = mine.unwrap_or_else(|| Tensor::zeros(request.dtype, 0));
        let mut into = Tensor::zeros(request.dtype, counts.iter().sum());
        self.comm.all_to_all(mine.slice()?, &sent, into.slice_mut()?, &counts)?;
        let shape = with_rows(request, received.iter().sum());
        Ok(Output::Received { tensor: into, shape, rows: received })
    }

    fn reduce_scatter(
        &mut self,
        request: &Request,
        reduction: Reduction,
        mine: Option<Tensor>,
    ) -> Result<Output, CommError> {
        let (rank, size) = (self.comm.group().rank(), self.comm.group().size());
        let rows = shares(request.rows(), size);
        let counts: Vec<usize> = rows.iter().map(|rows| rows * request.row()).collect();
        let mut all = mine.unwrap_or_else(|| neutral(request, reduction.op));
        self.comm.reduce_scatter(all.slice_mut()?, &counts, reduction)?;
        let mut part = Tensor::zeros(request.dtype, counts[rank]);
        let begin = counts[..rank].iter().sum::<usize>() * request.dtype.size();
        let length = part.bytes().len();
        part.bytes_mut().copy_from_slice(&all.bytes()[begin..begin + length]);
        Ok(Output::Tensor(part, with_rows(request, rows[rank])))
    }
}
