//! Batches that the device handles by itself.

use std::sync::Arc;

use sirtaki_comm::{
    CommError, Communicator, ReduceOp, Reduction,
    device::{DeviceMemory, PinnedMemory, View},
};

use super::lane::DeviceLane;
use crate::{
    decide::request::{Operation, Request, shares},
    runtime::{
        memory::Tensor,
        run::{Item, Runner, fill, with_rows},
        ticket::Output,
    },
};

/// What one item of a batch works on.
struct Work {
    /// The elements, filled where this rank has to fill them.
    view: View,
    /// This rank's tensor, or its stand-in on a rank that has joined.
    keeps: Keeps,
}

enum Keeps {
    Tensor(Tensor),
    /// Kept until everything is queued.
    Neutral {
        _memory: DeviceMemory,
    },
}

impl DeviceLane {
    /// Whether the device can handle this batch with those of other ranks; all ranks come to the same answer.
    pub(super) fn can_queue(&self, items: &[Item<'_>]) -> bool {
        let can = |request: &Request| match request.operation {
            Operation::AllReduce(reduction) | Operation::ReduceScatter(reduction) => {
                self.transport.reduces(request.dtype, reduction)
            }
            Operation::Broadcast { .. } | Operation::AllGather | Operation::AllToAll { .. } => self.transport.moves(),
            _ => false,
        };
        items.iter().all(|item| can(item.request))
    }

    pub(super) fn queue(
        &mut self,
        host: &mut Runner,
        mut items: Vec<Item<'_>>,
    ) -> Result<Vec<Option<Output>>, CommError> {
        let Some(first) = items.first() else { return Ok(Vec::new()) };
        match first.request.operation.clone() {
            Operation::AllReduce(reduction) => {
                let works = self.in_place(&mut items, reduction.op)?;
                if host.comm.group().size() > 1 || reduction != Reduction::new(reduction.op) {
                    let views: Vec<View> = works.iter().map(|work| work.view).collect();
                    self.transport.all_reduce(&mut host.comm, &views, reduction, &self.stream)?;
                }
                self.same(&items, works)
            }
            Operation::Broadcast { root } => {
                let works = self.in_place(&mut items, ReduceOp::Sum)?;
                let views: Vec<View> = works.iter().map(|work| work.view).collect();
                self.transport.broadcast(&mut host.comm, &views, root, &self.stream)?;
                self.same(&items, works)
            }
            Operation::AllGather => self.gather(host, items),
            Operation::ReduceScatter(reduction) => self.scatter(host, items, reduction),
            Operation::AllToAll { .. } => self.exchange(host, items.remove(0)),
            other => Err(CommError::Invalid { problem: format!("{} is not done by a device", other.describe()) }),
        }
    }

    /// Tensors that are changed where they are; on a rank that has joined, elements that change nothing.
    fn in_place(&mut self, items: &mut [Item<'_>], op: ReduceOp) -> Result<Vec<Work>, CommError> {
        let mut works = Vec::with_capacity(items.len());
        for item in items {
            works.push(match item.tensor.take() {
                Some(tensor) => {
                    let view = tensor.view().ok_or_else(elsewhere)?;
                    Work { view, keeps: Keeps::Tensor(tensor) }
                }
                None => self.neutral(item.request, op)?,
            });
        }
        Ok(works)
    }

    /// Elements that change nothing.
    fn neutral(&self, request: &Request, op: ReduceOp) -> Result<Work, CommError> {
        let memory = DeviceMemory::on_stream(&self.stream, request.bytes())?;
        let view = memory.view(0, request.dtype, request.elements())?;
        if matches!(op, ReduceOp::Sum | ReduceOp::Average) {
            self.stream.clear(view)?;
        } else {
            let mut elements = PinnedMemory::new(&self.gpu, request.bytes())?;
            fill(&mut elements[..request.bytes()], request.dtype, op);
            elements.copy_to(0, view, &self.stream)?;
            self.until_past(&self.stream.record()?)?;
        }
        Ok(Work { view, keeps: Keeps::Neutral { _memory: memory } })
    }

    /// The tensors themselves, complete when the stream has come to this point.
    fn same(&self, items: &[Item<'_>], works: Vec<Work>) -> Result<Vec<Option<Output>>, CommError> {
        let done = Arc::new(self.stream.record()?);
        let output = |(work, item): (Work, &Item<'_>)| match work.keeps {
            Keeps::Tensor(tensor) => Some(Output::Tensor(tensor.after(done.clone()), item.request.shape.clone())),
            Keeps::Neutral { .. } => None,
        };
        Ok(works.into_iter().zip(items).map(output).collect())
    }

    fn gather(&mut self, host: &mut Runner, items: Vec<Item<'_>>) -> Result<Vec<Option<Output>>, CommError> {
        let rank = host.comm.group().rank();
        let (mut memories, mut views) = (Vec::new(), Vec::new());
        for Item { request, rows, tensor } in &items {
            let counts: Vec<usize> = rows.iter().map(|rows| rows * request.row()).collect();
            let total: usize = counts.iter().sum();
            let memory = DeviceMemory::on_stream(&self.stream, total * request.dtype.size())?;
            let all = memory.view(0, request.dtype, total)?;
            if let Some(tensor) = tensor {
                let begin: usize = counts[..rank].iter().sum();
                let mine = tensor.view().ok_or_else(elsewhere)?;
                self.stream.copy(all.part(begin, begin + counts[rank]), mine)?;
            }
            memories.push(memory);
            views.push((all, counts));
        }
        self.transport.all_gather(&mut host.comm, &views, &self.stream)?;
        let done = Arc::new(self.stream.record()?);
        let output = |((memory, (view, _)), item): ((DeviceMemory, (View, Vec<usize>)), Item<'_>)| {
            let shape = with_rows(item.request, item.rows.iter().sum());
            Some(Output::Tensor(Tensor::made(view, done.clone(), memory, item.tensor?), shape))
        };
        Ok(memories.into_iter().zip(views).zip(items).map(output).collect())
    }

    fn scatter(
        &mut self,
        host: &mut Runner,
        mut items: Vec<Item<'_>>,
        reduction: Reduction,
    ) -> Result<Vec<Option<Output>>, CommError> {
        let (rank, size) = (host.comm.group().rank(), host.comm.group().size());
        let works = self.in_place(&mut items, reduction.op)?;
        let views: Vec<(View, Vec<usize>)> = works
            .iter()
            .zip(&items)
            .map(|(work, item)| {
                let rows = shares(item.request.rows(), size);
                (work.view, rows.iter().map(|rows| rows * item.request.row()).collect())
            })
            .collect();
        self.transport.reduce_scatter(&mut host.comm, &views, reduction, &self.stream)?;
        let mut parts = Vec::with_capacity(works.len());
        for (all, counts) in &views {
            let begin: usize = counts[..rank].iter().sum();
            let own = all.part(begin, begin + counts[rank]);
            let memory = DeviceMemory::on_stream(&self.stream, own.bytes())?;
            let part = memory.view(0, own.dtype(), own.len())?;
            self.stream.copy(part, own)?;
            parts.push((memory, part));
        }
        let done = Arc::new(self.stream.record()?);
        let output = |((work, (memory, part)), item): ((Work, (DeviceMemory, View)), &Item<'_>)| match work.keeps {
            Keeps::Neutral { .. } => None,
            Keeps::Tensor(input) => {
                let rows = shares(item.request.rows(), size)[rank];
                Some(Output::Tensor(Tensor::made(part, done.clone(), memory, input), with_rows(item.request, rows)))
            }
        };
        Ok(works.into_iter().zip(parts).zip(&items).map(output).collect())
    }

    fn exchange(&mut self, host: &mut Runner, item: Item<'_>) -> Result<Vec<Option<Output>>, CommError> {
        let Item { request, rows, tensor } = item;
        let (rank, size) = (host.comm.group().rank(), host.comm.group().size());
        let sent: Vec<usize> = rows[rank * size..(rank + 1) * size].iter().map(|rows| rows * request.row()).collect();
        let received: Vec<usize> = (0..size).map(|from| rows[from * size + rank]).collect();
        let counts: Vec<usize> = received.iter().map(|rows| rows * request.row()).collect();
        let total: usize = counts.iter().sum();
        let memory = DeviceMemory::on_stream(&self.stream, total * request.dtype.size())?;
        let into = memory.view(0, request.dtype, total)?;
        let out = match &tensor {
            Some(tensor) => tensor.view().ok_or_else(elsewhere)?,
            None => into.part(0, 0),
        };
        self.transport.all_to_all(&mut host.comm, (out, &sent), (into, &counts), &self.stream)?;
        let done = Arc::new(self.stream.record()?);
        let Some(input) = tensor else { return Ok(vec![None]) };
        let shape = with_rows(request, received.iter().sum());
        Ok(vec![Some(Output::Received { tensor: Tensor::made(into, done, memory, input), shape, rows: received })])
    }
}

fn elsewhere() -> CommError {
    CommError::Invalid { problem: "a tensor of the host's memory came to a device".into() }
}
