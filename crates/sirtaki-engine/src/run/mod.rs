//! Carrying out a batch: copy in, one collective, copy out; or no copy at all where a tensor is alone.

use half::{bf16, f16, slice::HalfFloatSliceExt};
use sirtaki_comm::{Buffer, CommError, Communicator, DType, ReduceOp, Reduction, SliceMut, kernel};

use crate::{
    adasum,
    fuse::room,
    memory::Tensor,
    request::{Compression, Operation, Request, shares},
    ticket::Output,
};

/// Bytes of a compressed tensor that travel at a time when it is too large to be fused.
const CHUNK: usize = 4 << 20;

/// One tensor of a batch.
pub(crate) struct Item<'a> {
    /// What it is, as far as ranks agree.
    pub(crate) request: &'a Request,
    /// As in [`crate::message::Entry`].
    pub(crate) rows: &'a [usize],
    /// This rank's data; none when it has joined.
    pub(crate) tensor: Option<Tensor>,
}

impl Item<'_> {
    /// Whether what was decided fits what this rank has. It always does among ranks of one version.
    pub(crate) fn fits(&self, rank: usize, size: usize) -> bool {
        let (rows, row) = (self.rows, self.request.row());
        let bytes = |rows: &usize| rows.checked_mul(row)?.checked_mul(self.request.dtype.size());
        let total = rows.iter().try_fold(0_usize, |sum, rows| sum.checked_add(bytes(rows)?));
        if total.is_none_or(|total| total > isize::MAX as usize) {
            return false;
        }
        let mine = match self.request.operation {
            Operation::AllGather if rows.len() == size => rows[rank] * row,
            Operation::AllToAll { .. } if rows.len() == size * size => {
                rows[rank * size..(rank + 1) * size].iter().sum::<usize>() * row
            }
            Operation::AllGather | Operation::AllToAll { .. } => return false,
            _ => self.request.elements(),
        };
        self.request.problem(size).is_none()
            && self.tensor.as_ref().is_none_or(|t| t.len() == mine && t.dtype() == self.request.dtype)
    }
}

/// A communicator and the memory tensors are fused in.
pub(crate) struct Runner {
    pub(crate) comm: Box<dyn Communicator>,
    buffer: Option<Buffer>,
}

impl Runner {
    pub(crate) fn new(comm: Box<dyn Communicator>) -> Self {
        Self { comm, buffer: None }
    }

    /// Runs a batch with all other ranks; nothing comes of items without a tensor.
    pub(crate) fn run(&mut self, mut items: Vec<Item<'_>>) -> Result<Vec<Option<Output>>, CommError> {
        if let [Item { request, tensor, .. }] = items.as_mut_slice()
            && request.compression.is_none()
        {
            let (request, tensor) = (*request, tensor.take());
            let rows = items[0].rows;
            return Ok(vec![self.alone(request, rows, tensor)?]);
        }
        self.fused(&mut items)?;
        let shape = |request: &Request| request.shape.clone();
        Ok(items.into_iter().map(|item| Some(Output::Tensor(item.tensor?, shape(item.request)))).collect())
    }

    /// The smallest of two numbers over all ranks, each.
    pub(crate) fn vote(&mut self, numbers: &mut [i64; 2]) -> Result<(), CommError> {
        self.comm.all_reduce(SliceMut::from(&mut numbers[..]), Reduction::new(ReduceOp::Min))
    }

    fn alone(
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
                adasum::all_reduce(&mut *self.comm, &mut tensor)?;
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
        Ok(Output::Tensor(into, with_rows(request, received.iter().sum())))
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

    /// All-reduces of one kind through the buffer.
    fn fused(&mut self, items: &mut [Item<'_>]) -> Result<(), CommError> {
        let Some(first) = items.first() else { return Ok(()) };
        let Operation::AllReduce(reduction) = first.request.operation else {
            return Err(CommError::Invalid { problem: "only all_reduces are fused".into() });
        };
        let wire = first.request.wire_dtype();
        if let [item] = items
            && room(item.request) > CHUNK
        {
            return self.in_chunks(item, reduction);
        }
        let total = items.iter().map(|item| room(item.request)).sum();
        self.reserve(total)?;
        let Self { comm, buffer: Some(buffer) } = self else { return Ok(()) };
        let mut at = 0;
        for item in items.iter() {
            let length = item.request.elements() * wire.size();
            let place = &mut buffer[at..at + length];
            match &item.tensor {
                Some(tensor) => put(place, tensor.bytes(), item.request.compression),
                None => fill(place, wire, reduction.op),
            }
            at += room(item.request);
        }
        comm.all_reduce(SliceMut::new(wire, &mut buffer[..total])?, reduction)?;
        at = 0;
        for item in items.iter_mut() {
            let length = item.request.elements() * wire.size();
            if let Some(tensor) = &mut item.tensor {
                get(tensor.bytes_mut(), &buffer[at..at + length], item.request.compression);
            }
            at += room(item.request);
        }
        Ok(())
    }

    /// One compressed tensor, piece by piece.
    fn in_chunks(&mut self, item: &mut Item<'_>, reduction: Reduction) -> Result<(), CommError> {
        let (wire, elements) = (item.request.wire_dtype(), item.request.elements());
        self.reserve(CHUNK)?;
        let Self { comm, buffer: Some(buffer) } = self else { return Ok(()) };
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

    /// Makes room. All ranks have run the same batches before, so all of them make it at the same time.
    fn reserve(&mut self, bytes: usize) -> Result<(), CommError> {
        if self.buffer.as_ref().is_none_or(|buffer| buffer.len() < bytes) {
            self.buffer = None;
            self.buffer = Some(self.comm.buffer(bytes.next_power_of_two())?);
        }
        Ok(())
    }
}

fn with_rows(request: &Request, rows: usize) -> Vec<usize> {
    let mut shape = request.shape.clone();
    if shape.is_empty() {
        shape.push(rows);
    }
    shape[0] = rows;
    shape
}

/// Copies a tensor into the buffer.
fn put(place: &mut [u8], tensor: &[u8], compression: Option<Compression>) {
    match compression {
        None => kernel::copy(place, tensor),
        Some(Compression::F16) => {
            bytemuck::cast_slice_mut::<u8, f16>(place).convert_from_f32_slice(bytemuck::cast_slice(tensor));
        }
        Some(Compression::BF16) => {
            bytemuck::cast_slice_mut::<u8, bf16>(place).convert_from_f32_slice(bytemuck::cast_slice(tensor));
        }
    }
}

/// Copies a tensor back from the buffer.
fn get(tensor: &mut [u8], place: &[u8], compression: Option<Compression>) {
    match compression {
        None => kernel::copy(tensor, place),
        Some(Compression::F16) => {
            bytemuck::cast_slice::<u8, f16>(place).convert_to_f32_slice(bytemuck::cast_slice_mut(tensor));
        }
        Some(Compression::BF16) => {
            bytemuck::cast_slice::<u8, bf16>(place).convert_to_f32_slice(bytemuck::cast_slice_mut(tensor));
        }
    }
}

/// What a rank without data brings to a reduction: something that changes nothing.
fn neutral(request: &Request, op: ReduceOp) -> Tensor {
    let mut tensor = Tensor::zeros(request.dtype, request.elements());
    fill(tensor.bytes_mut(), request.dtype, op);
    tensor
}

fn fill(place: &mut [u8], dtype: DType, op: ReduceOp) {
    let element = neutral_element(dtype, op);
    place.chunks_exact_mut(dtype.size()).for_each(|chunk| chunk.copy_from_slice(&element[..dtype.size()]));
}

fn neutral_element(dtype: DType, op: ReduceOp) -> [u8; 8] {
    let mut element = [0; 8];
    let mut set = |bytes: &[u8]| element[..bytes.len()].copy_from_slice(bytes);
    macro_rules! number {
        ($type:ty, $one:expr, $low:expr, $high:expr) => {{
            let value: $type = match op {
                ReduceOp::Sum | ReduceOp::Average => <$type>::default(),
                ReduceOp::Product => $one,
                ReduceOp::Min => $high,
                ReduceOp::Max => $low,
            };
            set(&value.to_ne_bytes());
        }};
    }
    match dtype {
        DType::F16 => number!(f16, f16::ONE, f16::NEG_INFINITY, f16::INFINITY),
        DType::BF16 => number!(bf16, bf16::ONE, bf16::NEG_INFINITY, bf16::INFINITY),
        DType::F32 => number!(f32, 1.0, f32::NEG_INFINITY, f32::INFINITY),
        DType::F64 => number!(f64, 1.0, f64::NEG_INFINITY, f64::INFINITY),
        DType::I8 => number!(i8, 1, i8::MIN, i8::MAX),
        DType::U8 => number!(u8, 1, u8::MIN, u8::MAX),
        DType::I32 => number!(i32, 1, i32::MIN, i32::MAX),
        DType::I64 => number!(i64, 1, i64::MIN, i64::MAX),
        DType::Bool => number!(u8, 1, 0, 1),
    }
    element
}
