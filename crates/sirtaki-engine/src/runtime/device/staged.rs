//! Batches that travel through the host's memory: where ranks have no NCCL, and for what NCCL cannot do.
//!
//! The engine's thread waits for copies to arrive, as it would for a collective. Large all-reduces go in pieces, so
//! that copies to the host, reductions and copies back overlap.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use sirtaki_comm::{
    CommError, Communicator, Reduction, SliceMut,
    device::{DeviceMemory, Event, PinnedMemory, View},
};

use super::lane::DeviceLane;
use crate::{
    decide::{
        fuse::ALIGN,
        request::{Operation, Request, TensorPlace},
    },
    runtime::{
        memory::Tensor,
        run::{Item, Runner, fill},
        ticket::Output,
    },
};

/// Bytes of a piece, and how many pieces there is room for.
const PIECE: usize = 4 << 20;
const PIECES: usize = 4;
/// How long to poll before sleeping, and how long to sleep.
const LOOKING: Duration = Duration::from_micros(100);
const PAUSE: Duration = Duration::from_micros(20);

impl DeviceLane {
    /// Waits until the device has passed an event, unless everything ends first.
    pub(super) fn until_past(&self, event: &Event) -> Result<(), CommError> {
        let began = Instant::now();
        while !event.is_past()? {
            self.stopper.check()?;
            if began.elapsed() < LOOKING { thread::yield_now() } else { thread::sleep(PAUSE) }
        }
        Ok(())
    }

    pub(super) fn stage(&mut self, host: &mut Runner, items: Vec<Item<'_>>) -> Result<Vec<Option<Output>>, CommError> {
        if let [Item { request, tensor, .. }] = items.as_slice()
            && let Operation::AllReduce(reduction) = request.operation
            && request.bytes() > PIECE
        {
            self.in_pieces(host, request, tensor.as_ref().and_then(Tensor::view), reduction)?;
            return self.unchanged(items);
        }
        self.whole(host, items)
    }

    /// Tensors that were changed where they are.
    fn unchanged(&self, items: Vec<Item<'_>>) -> Result<Vec<Option<Output>>, CommError> {
        let done = Arc::new(self.stream.record()?);
        let output =
            |item: Item<'_>| Some(Output::Tensor(item.tensor?.after(done.clone()), item.request.shape.clone()));
        Ok(items.into_iter().map(output).collect())
    }

    /// One tensor, piece by piece; there is none on a rank that has joined.
    fn in_pieces(
        &mut self,
        host: &mut Runner,
        request: &Request,
        view: Option<View>,
        reduction: Reduction,
    ) -> Result<(), CommError> {
        let mut pinned = self.take_pinned(PIECE * PIECES)?;
        let (step, elements) = (PIECE / request.dtype.size(), request.elements());
        let pieces: Vec<(usize, usize)> =
            (0..elements).step_by(step).map(|begin| (begin, (begin + step).min(elements))).collect();
        self.incoming.wait(&self.stream.record()?)?;
        let mut copied: Vec<Event> = Vec::with_capacity(pieces.len());
        for (number, (begin, end)) in pieces.iter().enumerate() {
            let offset = number % PIECES * PIECE;
            let bytes = offset..offset + (end - begin) * request.dtype.size();
            if let Some(view) = view {
                while copied.len() < pieces.len().min(number + PIECES) {
                    let next = copied.len();
                    // Its place is free once the previous piece in this place is back on the device.
                    if next >= PIECES {
                        self.incoming.wait(&self.stream.record()?)?;
                    }
                    let (begin, end) = pieces[next];
                    pinned.copy_from(next % PIECES * PIECE, view.part(begin, end), &self.incoming)?;
                    copied.push(self.incoming.record()?);
                }
                self.until_past(&copied[number])?;
            } else {
                fill(&mut pinned[bytes.clone()], request.dtype, reduction.op);
            }
            host.comm.all_reduce(SliceMut::new(request.dtype, &mut pinned[bytes])?, reduction)?;
            if let Some(view) = view {
                pinned.copy_to(offset, view.part(*begin, *end), &self.stream)?;
            }
        }
        self.put_back(pinned)
    }

    /// All tensors at once.
    fn whole(&mut self, host: &mut Runner, items: Vec<Item<'_>>) -> Result<Vec<Option<Output>>, CommError> {
        let mut room = 0;
        let mut offsets = Vec::with_capacity(items.len());
        for item in &items {
            offsets.push(room);
            room += item.tensor.as_ref().map_or(0, Tensor::byte_len).next_multiple_of(ALIGN);
        }
        let mut pinned = self.take_pinned(room)?;
        for (item, offset) in items.iter().zip(&offsets) {
            if let Some(view) = item.tensor.as_ref().and_then(Tensor::view) {
                pinned.copy_from(*offset, view, &self.stream)?;
            }
        }
        self.until_past(&self.stream.record()?)?;
        let requests: Vec<Request> = items.iter().map(|item| item.request.clone().placed(TensorPlace::Host)).collect();
        let copies = items.iter().zip(&requests).zip(&offsets).map(|((item, request), offset)| {
            let tensor = item.tensor.as_ref().map(|tensor| {
                let start = pinned[*offset..].as_ptr().cast_mut();
                // SAFETY: every tensor has a part of the pinned memory of its own, which lives until the results are copied.
                unsafe { Tensor::foreign(start, tensor.dtype(), tensor.len(), Box::new(())) }
            });
            Item { request, rows: item.rows, tensor }
        });
        let copies = copies.collect();
        let outputs = host.run_on_host(copies)?;
        let mut results = Vec::with_capacity(items.len());
        for ((item, offset), output) in items.into_iter().zip(offsets).zip(outputs) {
            results.push(match (item.tensor, output) {
                (Some(tensor), Some(output)) => Some(self.back(tensor, &pinned, offset, output)?),
                _ => None,
            });
        }
        self.put_back(pinned)?;
        let done = Arc::new(self.stream.record()?);
        Ok(results.into_iter().map(|output| output.map(|output| completed(output, &done))).collect())
    }

    /// A result on the device: in the tensor itself, or in new memory if its size differs.
    fn back(&self, tensor: Tensor, pinned: &PinnedMemory, offset: usize, output: Output) -> Result<Output, CommError> {
        let (result, shape, rows) = match output {
            Output::Tensor(result, shape) => (result, shape, None),
            Output::Received { tensor: result, shape, rows } => (result, shape, Some(rows)),
            other => return Ok(other),
        };
        let view = tensor.view();
        if let Some(view) =
            view.filter(|view| result.bytes().as_ptr() == pinned[offset..].as_ptr() && view.len() == result.len())
        {
            pinned.copy_to(offset, view, &self.stream)?;
            return Ok(Output::Tensor(tensor, shape));
        }
        let mut copy = PinnedMemory::new(&self.gpu, result.byte_len())?;
        copy[..result.byte_len()].copy_from_slice(result.bytes());
        let memory = DeviceMemory::on_stream(&self.stream, result.byte_len())?;
        let view = memory.view(0, result.dtype(), result.len())?;
        copy.copy_to(0, view, &self.stream)?;
        let ready = Arc::new(self.stream.record()?);
        // The memory of the copy ends with this call.
        self.until_past(&ready)?;
        let made = Tensor::made(view, ready, memory, tensor);
        Ok(match rows {
            None => Output::Tensor(made, shape),
            Some(rows) => Output::Received { tensor: made, shape, rows },
        })
    }

    /// Pinned memory of at least this size, which nothing copies from any more.
    fn take_pinned(&mut self, bytes: usize) -> Result<PinnedMemory, CommError> {
        match self.pinned.take() {
            Some(pinned) if pinned.len() >= bytes => Ok(pinned),
            smaller => {
                drop(smaller);
                PinnedMemory::new(&self.gpu, bytes.next_power_of_two().max(PIECE * PIECES))
            }
        }
    }

    /// Keeps pinned memory for later use, once the device has copied what is in it.
    fn put_back(&mut self, pinned: PinnedMemory) -> Result<(), CommError> {
        self.until_past(&self.stream.record()?)?;
        self.pinned = Some(pinned);
        Ok(())
    }
}

fn completed(output: Output, done: &Arc<Event>) -> Output {
    match output {
        Output::Tensor(tensor, shape) => Output::Tensor(tensor.after(done.clone()), shape),
        Output::Received { tensor, shape, rows } => {
            Output::Received { tensor: tensor.after(done.clone()), shape, rows }
        }
        other => other,
    }
}
