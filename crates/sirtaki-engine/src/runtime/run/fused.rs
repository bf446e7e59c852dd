//! Several tensors through one collective, in a buffer of the communicator: one copy in, one copy out. This file
//! handles tensors that lie one after another; [`super::parts`] those of which ranks have parts.

use std::ops::Range;

use sirtaki_comm::{Buffer, CommError, Communicator, DType, Rank, Reduction, SliceMut, kernel};

use super::{
    Item, Runner,
    compress::{get, put},
    neutral::fill,
};
use crate::{
    decide::{fuse::room, request::Operation},
    runtime::ticket::Output,
};

/// Bytes of a compressed tensor that travel at a time when it is too large to be fused.
const CHUNK: usize = 4 << 20;

pub(super) type Outputs = Result<Vec<Option<Output>>, CommError>;

impl Runner {
    /// Runs tensors that [`crate::fuse`] has put together.
    pub(super) fn fused(&mut self, mut items: Vec<Item<'_>>) -> Outputs {
        let Some(first) = items.first() else { return Ok(Vec::new()) };
        let (operation, wire) = (first.request.operation.clone(), first.request.wire_dtype());
        match operation {
            Operation::AllReduce(reduction) => {
                match items.as_mut_slice() {
                    [item] if room(item.request, item.rows) > CHUNK => self.in_chunks(item, reduction)?,
                    _ => self.all_reduce_fused(&mut items, wire, reduction)?,
                }
                Ok(same_shape(items))
            }
            Operation::Broadcast { root } => {
                self.broadcast_fused(&mut items, root)?;
                Ok(same_shape(items))
            }
            Operation::AllGather => self.all_gather_fused(&items),
            Operation::ReduceScatter(reduction) => self.reduce_scatter_fused(&items, wire, reduction),
            other => Err(CommError::Invalid { problem: format!("{} is not fused", other.describe()) }),
        }
    }

    fn all_reduce_fused(&mut self, items: &mut [Item<'_>], wire: DType, reduction: Reduction) -> Result<(), CommError> {
        let places = one_after_another(items);
        let total = places.last().map_or(0, |place| place.end);
        let (comm, buffer) = self.room_for(total)?;
        for (item, place) in items.iter().zip(&places) {
            let place = &mut buffer[place.start..][..item.request.elements() * wire.size()];
            match &item.tensor {
                Some(tensor) => put(place, tensor.bytes(), item.request.compression),
                None => fill(place, wire, reduction.op),
            }
        }
        comm.all_reduce(SliceMut::new(wire, &mut buffer[..total])?, reduction)?;
        for (item, place) in items.iter_mut().zip(&places) {
            let place = &buffer[place.start..][..item.request.elements() * wire.size()];
            if let Some(tensor) = &mut item.tensor {
                get(tensor.bytes_mut(), place, item.request.compression);
            }
        }
        Ok(())
    }

    /// One compressed tensor, piece by piece.
    fn in_chunks(&mut self, item: &mut Item<'_>, reduction: Reduction) -> Result<(), CommError> {
        let (wire, elements) = (item.request.wire_dtype(), item.request.elements());
        let (comm, buffer) = self.room_for(CHUNK)?;
        let step = CHUNK / wire.size();
        for start in (0..elements).step_by(step) {
            let count = step.min(elements - start);
            let place = &mut buffer[..count * wire.size()];
            let range = start * item.request.dtype.size()..(start + count) * item.request.dtype.size();
            match &item.tensor {
                Some(tensor) => put(place, &tensor.bytes()[range.clone()], item.request.compression),
                None => fill(place, wire, reduction.op),
            }
            comm.all_reduce(SliceMut::new(wire, place)?, reduction)?;
            if let Some(tensor) = &mut item.tensor {
                get(&mut tensor.bytes_mut()[range], &buffer[..count * wire.size()], item.request.compression);
            }
        }
        Ok(())
    }

    /// As bytes, whatever the elements are.
    fn broadcast_fused(&mut self, items: &mut [Item<'_>], root: Rank) -> Result<(), CommError> {
        let places = one_after_another(items);
        let total = places.last().map_or(0, |place| place.end);
        let brings = self.comm.group().rank() == root;
        let (comm, buffer) = self.room_for(total)?;
        for (item, place) in items.iter().zip(&places).filter(|_| brings) {
            if let Some(tensor) = &item.tensor {
                kernel::copy(&mut buffer[place.start..][..tensor.bytes().len()], tensor.bytes());
            }
        }
        comm.broadcast(SliceMut::new(DType::U8, &mut buffer[..total])?, root)?;
        for (item, place) in items.iter_mut().zip(&places).filter(|_| !brings) {
            if let Some(tensor) = &mut item.tensor {
                let length = tensor.bytes().len();
                kernel::copy(tensor.bytes_mut(), &buffer[place.start..][..length]);
            }
        }
        Ok(())
    }

    /// The communicator and a buffer of at least this size. All ranks have run the same batches before, so all of them
    /// make a larger one at the same time.
    pub(super) fn room_for(&mut self, bytes: usize) -> Result<(&mut dyn Communicator, &mut Buffer), CommError> {
        let buffer = match self.buffer.take() {
            Some(buffer) if buffer.len() >= bytes => buffer,
            smaller => {
                drop(smaller);
                self.comm.buffer(bytes.next_power_of_two())?
            }
        };
        Ok((&mut self.comm, self.buffer.insert(buffer)))
    }
}

/// Where tensors lie in the buffer.
fn one_after_another(items: &[Item<'_>]) -> Vec<Range<usize>> {
    let mut end = 0;
    let mut place = |item: &Item<'_>| {
        let start = end;
        end += room(item.request, item.rows);
        start..end
    };
    items.iter().map(&mut place).collect()
}

/// The tensors themselves, with what is in them now.
fn same_shape(items: Vec<Item<'_>>) -> Vec<Option<Output>> {
    items.into_iter().map(|item| Some(Output::Tensor(item.tensor?, item.request.shape.clone()))).collect()
}
