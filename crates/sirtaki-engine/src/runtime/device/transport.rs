//! What carries tensors between devices, behind one interface.

use std::sync::Arc;

use sirtaki_comm::{
    CommError, Communicator, DType, Rank, ReduceOp, Reduction, SliceMut,
    device::{DeviceArena, Gpu, Kernels, Nccl, NcclGroup, Stream, UniqueId, View},
};

use super::{gate::Gate, pack::Packer};

/// Why a rank that has kernels cannot use them.
const KERNELS: &str = "another rank has no kernels for its GPU";

/// How tensors travel from here.
pub(super) enum Transport {
    Nccl(Box<Connected>),
    Shared(Box<DeviceArena>),
    /// Nothing is carried on the device.
    Staged,
}

/// Ranks that NCCL connects, and what is needed to use it.
pub(super) struct Connected {
    group: NcclGroup,
    gate: Gate,
    /// Packs small tensors, if all ranks can.
    packer: Option<Packer>,
}

impl Connected {
    fn all_reduce(
        &mut self,
        comm: &mut dyn Communicator,
        views: &[View],
        reduction: Reduction,
        stream: &Stream,
    ) -> Result<(), CommError> {
        let Self { group, gate, packer } = self;
        match packer {
            Some(packer) if views.len() > 1 => {
                packer.pass(views, stream, |all| gate.pass(comm, || group.all_reduce(&[all], reduction, stream)))
            }
            _ => gate.pass(comm, || group.all_reduce(views, reduction, stream)),
        }
    }
}

/// Parts of a tensor, one after another in rank order, and how many elements each has.
pub(super) type Parts = (View, Vec<usize>);

impl Transport {
    /// Whether the device can do this reduction.
    pub(super) fn reduces(&self, dtype: DType, reduction: Reduction) -> bool {
        match self {
            Transport::Nccl(_) => NcclGroup::can(dtype, reduction),
            Transport::Shared(_) => true,
            Transport::Staged => false,
        }
    }

    /// Whether the device can move elements.
    pub(super) fn moves(&self) -> bool {
        !matches!(self, Transport::Staged)
    }

    pub(super) fn all_reduce(
        &mut self,
        comm: &mut dyn Communicator,
        views: &[View],
        reduction: Reduction,
        stream: &Stream,
    ) -> Result<(), CommError> {
        match self {
            Transport::Nccl(nccl) => nccl.all_reduce(comm, views, reduction, stream),
            Transport::Shared(arena) => arena.all_reduce(comm, views, reduction, stream),
            Transport::Staged => Err(nothing()),
        }
    }

    pub(super) fn broadcast(
        &mut self,
        comm: &mut dyn Communicator,
        views: &[View],
        root: Rank,
        stream: &Stream,
    ) -> Result<(), CommError> {
        match self {
            Transport::Nccl(nccl) => nccl.gate.pass(comm, || nccl.group.broadcast(views, root, stream)),
            Transport::Shared(arena) => arena.broadcast(comm, views, root, stream),
            Transport::Staged => Err(nothing()),
        }
    }

    pub(super) fn all_gather(
        &mut self,
        comm: &mut dyn Communicator,
        parts: &[Parts],
        stream: &Stream,
    ) -> Result<(), CommError> {
        match self {
            Transport::Nccl(nccl) => nccl.gate.pass(comm, || nccl.group.all_gather(parts, stream)),
            Transport::Shared(arena) => arena.all_gather(comm, parts, stream),
            Transport::Staged => Err(nothing()),
        }
    }

    pub(super) fn reduce_scatter(
        &mut self,
        comm: &mut dyn Communicator,
        parts: &[Parts],
        reduction: Reduction,
        stream: &Stream,
    ) -> Result<(), CommError> {
        match self {
            Transport::Nccl(nccl) => nccl.gate.pass(comm, || nccl.group.reduce_scatter(parts, reduction, stream)),
            Transport::Shared(arena) => arena.reduce_scatter(comm, parts, reduction, stream),
            Transport::Staged => Err(nothing()),
        }
    }

    pub(super) fn all_to_all(
        &mut self,
        comm: &mut dyn Communicator,
        sent: (View, &[usize]),
        received: (View, &[usize]),
        stream: &Stream,
    ) -> Result<(), CommError> {
        match self {
            Transport::Nccl(nccl) => nccl.gate.pass(comm, || nccl.group.all_to_all(sent, received, stream)),
            Transport::Shared(arena) => arena.all_to_all(comm, sent, received, stream),
            Transport::Staged => Err(nothing()),
        }
    }

    /// Ends everything that the device does for other ranks.
    pub(super) fn abort(&mut self) {
        if let Transport::Nccl(nccl) = self {
            nccl.group.abort();
        }
    }

    /// Leaves in good order. The device must have finished everything. Memory that others may still read is left over.
    pub(super) fn leave(self) -> Option<Box<DeviceArena>> {
        match self {
            Transport::Nccl(nccl) => nccl.group.leave(),
            Transport::Shared(arena) => return Some(arena),
            Transport::Staged => {}
        }
        None
    }

    /// How tensors travel and why, in words that follow "travel".
    pub(super) fn describe(&self, reason: &str) -> String {
        match self {
            Transport::Nccl(connected) => {
                let nccl = connected.group.nccl();
                format!("by NCCL {} ({}), because {reason}", nccl.version(), nccl.path().display())
            }
            Transport::Shared(_) => format!("in the memory of their GPUs, because {reason}"),
            Transport::Staged => format!("through the host's memory, because {reason}"),
        }
    }
}

fn nothing() -> CommError {
    CommError::Invalid { problem: "nothing carries tensors between devices here".into() }
}

/// Connects ranks by NCCL, all together. An error on one is an error on all.
pub(super) fn connect_nccl(
    comm: &mut dyn Communicator,
    nccl: Result<Arc<Nccl>, CommError>,
    gpu: &Arc<Gpu>,
    gate: Gate,
) -> Result<Box<Connected>, CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut id: UniqueId = [0; 128];
    if rank == 0 {
        id = nccl.clone().and_then(|nccl| nccl.unique_id()).unwrap_or(id);
    }
    comm.broadcast(SliceMut::from(id.as_mut_slice()), 0)?;
    let group = nccl.and_then(|nccl| {
        if id == [0; 128] {
            return Err(CommError::Device { problem: "NCCL cannot start on rank 0".into() });
        }
        NcclGroup::connect(nccl, gpu.clone(), id, (rank, size), comm.stopper())
    });
    let group = together(comm, group, "NCCL cannot connect another rank")?;
    let packer = together(comm, Kernels::load(gpu), KERNELS).ok().map(Packer::new);
    comm.stopper().check()?;
    Ok(Box::new(Connected { group, gate, packer }))
}

/// Connects ranks in the memory of their GPUs, all together. An error on one is an error on all.
pub(super) fn connect_shared(comm: &mut dyn Communicator, gpu: &Arc<Gpu>) -> Result<Box<DeviceArena>, CommError> {
    let kernels = together(comm, Kernels::load(gpu), KERNELS)?;
    Ok(Box::new(DeviceArena::connect(comm, Arc::new(kernels))?))
}

/// This rank's value, if all ranks have one.
fn together<T>(comm: &mut dyn Communicator, mine: Result<T, CommError>, other: &str) -> Result<T, CommError> {
    let mut all = [i64::from(mine.is_ok())];
    comm.all_reduce(SliceMut::from(all.as_mut_slice()), Reduction::new(ReduceOp::Min))?;
    match mine {
        Ok(_) if all[0] == 0 => Err(CommError::Device { problem: other.into() }),
        mine => mine,
    }
}
