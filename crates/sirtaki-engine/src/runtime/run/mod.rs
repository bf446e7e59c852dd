//! Carrying out a batch: copy in, one collective, copy out; or no copy at all where a tensor is alone.

mod alone;
mod compress;
mod fused;
mod metered;
mod neutral;
mod parts;

use std::sync::Arc;

use sirtaki_comm::{Buffer, CommError, Communicator, ReduceOp, Reduction, SliceMut, device::DeviceArena};

pub(crate) use self::{
    metered::{Marks, Metered},
    neutral::fill,
};
use crate::{
    decide::request::{Operation, Request, TensorPlace},
    runtime::{
        device::{DeviceLane, DeviceSettings},
        memory::Tensor,
        ticket::Output,
    },
    settings::Warn,
    telemetry::Stream,
};

/// One tensor of a batch.
pub(crate) struct Item<'a> {
    /// What it is; only what ranks agree on.
    pub(crate) request: &'a Request,
    /// As in [`crate::decide::message::Entry`].
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

/// A communicator, the memory tensors are fused in, and the lane for tensors of GPUs, once there have been any.
pub(crate) struct Runner {
    pub(crate) comm: Metered,
    buffer: Option<Buffer>,
    device: Option<DeviceLane>,
    device_settings: DeviceSettings,
    warn: Warn,
    telemetry: Arc<Stream>,
}

impl Runner {
    pub(crate) fn new(
        comm: Box<dyn Communicator>,
        device_settings: DeviceSettings,
        warn: Warn,
        telemetry: Arc<Stream>,
    ) -> Self {
        Self { comm: Metered::new(comm), buffer: None, device: None, device_settings, warn, telemetry }
    }

    /// Runs the batch with this number with all other ranks, in the lane of its place; items without a tensor have no
    /// output.
    pub(crate) fn run(&mut self, items: Vec<Item<'_>>, batch: u64) -> Result<Vec<Option<Output>>, CommError> {
        if items.first().is_none_or(|item| item.request.place == TensorPlace::Host) {
            return self.run_on_host(items);
        }
        let mut lane = match self.device.take() {
            Some(lane) => lane,
            None => {
                let number = items.iter().find_map(|item| Some(item.tensor.as_ref()?.ready()?.gpu().number()));
                DeviceLane::open(&mut self.comm, &self.device_settings, number, &self.warn, &self.telemetry)?
            }
        };
        let bytes = items.iter().map(|item| item.request.bytes() as u64).sum();
        let outputs = lane.run(self, items, batch);
        self.comm.count(bytes);
        self.device = Some(lane);
        outputs
    }

    /// How tensors of GPUs travel and why, in words, once there have been any.
    pub(crate) fn device_way(&self) -> Option<&str> {
        self.device.as_ref().map(DeviceLane::way)
    }

    /// Whether a device works on what was queued.
    pub(crate) fn is_device_busy(&self) -> bool {
        self.device.as_ref().is_some_and(DeviceLane::is_busy)
    }

    /// Fails everything that is queued on a device, and everything that will be.
    pub(crate) fn abort(&mut self, reason: &CommError) {
        self.comm.abort(reason);
        if let Some(lane) = &mut self.device {
            lane.abort();
        }
    }

    /// Waits for the device and leaves the other ranks in good order. What is left over is memory that others may still
    /// read, until they have left, too.
    pub(crate) fn close_device(&mut self) -> Option<Box<DeviceArena>> {
        self.device.take().and_then(DeviceLane::close)
    }

    pub(crate) fn run_on_host(&mut self, mut items: Vec<Item<'_>>) -> Result<Vec<Option<Output>>, CommError> {
        if let [Item { request, rows, tensor }] = items.as_mut_slice()
            && request.compression.is_none()
        {
            return Ok(vec![self.alone(request, rows, tensor.take())?]);
        }
        self.fused(items)
    }

    /// Replaces each number by the smallest over all ranks.
    pub(crate) fn vote(&mut self, numbers: &mut [i64]) -> Result<(), CommError> {
        self.comm.all_reduce(SliceMut::from(numbers), Reduction::new(ReduceOp::Min))
    }
}

pub(crate) fn with_rows(request: &Request, rows: usize) -> Vec<usize> {
    let mut shape = request.shape.clone();
    if shape.is_empty() {
        shape.push(rows);
    }
    shape[0] = rows;
    shape
}
