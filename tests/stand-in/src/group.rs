//! NCCL's collectives. A thread may begin a group; its calls are then executed together when it ends the group.

use std::{cell::RefCell, ffi::c_int, sync::Arc};

use crate::{
    collective::{Call, Kind},
    comm::{COMMS, Comm},
    memory,
    nccl::{Failure, INVALID_ARGUMENT, INVALID_USAGE, SUCCESS},
    number::Type,
    stream::{self, Stream},
};

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

#[derive(Default)]
struct Group {
    depth: usize,
    calls: Vec<Prepared>,
    error: c_int,
}

struct Prepared {
    comm: Arc<Comm>,
    stream: Arc<Stream>,
    call: Call,
}

/// The arguments that most functions have.
struct Arguments {
    from: u64,
    to: u64,
    count: usize,
    dtype: c_int,
    comm: usize,
    stream: usize,
}

impl Arguments {
    fn submit(self, kind: impl FnOnce(&Comm, Type) -> Option<Kind>) -> c_int {
        let prepared = self.prepare(kind);
        GROUP.with_borrow_mut(|group| {
            let code = match prepared {
                Ok(prepared) => {
                    group.calls.push(prepared);
                    SUCCESS
                }
                Err(failure) => {
                    group.error = failure.report();
                    group.error
                }
            };
            if group.depth == 0 { group.launch() } else { code }
        })
    }

    fn prepare(self, kind: impl FnOnce(&Comm, Type) -> Option<Kind>) -> Result<Prepared, Failure> {
        let invalid = |problem: &str| Failure(INVALID_ARGUMENT, problem.into());
        let comm = COMMS.get(self.comm).ok_or_else(|| invalid("this is no communicator"))?;
        let stream = stream::find(self.stream).ok_or_else(|| invalid("this is no stream"))?;
        comm.check()?;
        let dtype = Type::from_code(self.dtype).ok_or_else(|| invalid("an unknown type"))?;
        let kind = kind(&comm, dtype).ok_or_else(|| invalid("an unknown operation or rank"))?;
        let part = self.count * dtype.size();
        let (read, written) = match kind {
            Kind::AllReduce(_) => (part, part),
            Kind::AllGather => (part, part * comm.size),
            Kind::ReduceScatter(_) => (part * comm.size, part),
            Kind::Broadcast(root) => (if root == comm.rank { part } else { 0 }, part),
            Kind::Reduce(_, root) => (part, if root == comm.rank { part } else { 0 }),
            Kind::Send(_) => (part, 0),
            Kind::Receive(_) => (0, part),
        };
        let fits = |address, bytes| bytes == 0 || memory::fits(address, bytes) == Some(true);
        if !fits(self.from, read) || !fits(self.to, written) {
            return Err(invalid("memory that is unknown or too short"));
        }
        let fails = comm.count()?;
        let call = Call { kind, from: self.from, to: self.to, count: self.count, dtype, fails };
        Ok(Prepared { comm, stream, call })
    }
}

impl Group {
    /// Queues what was called, communicator by communicator.
    fn launch(&mut self) -> c_int {
        let (calls, error) = (std::mem::take(&mut self.calls), std::mem::take(&mut self.error));
        if error != SUCCESS {
            return error;
        }
        let mut parts: Vec<(Arc<Comm>, Arc<Stream>, Vec<Call>)> = Vec::new();
        for Prepared { comm, stream, call } in calls {
            match parts.iter_mut().find(|(other, ..)| Arc::ptr_eq(other, &comm)) {
                Some((_, other, _)) if !Arc::ptr_eq(other, &stream) => {
                    let problem = "the stand-in knows only one stream for each communicator of a group";
                    return Failure(INVALID_USAGE, problem.into()).report();
                }
                Some((.., calls)) => calls.push(call),
                None => parts.push((comm, stream, vec![call])),
            }
        }
        let launched = parts.into_iter().try_for_each(|(comm, stream, calls)| comm.launch(&stream, calls));
        launched.map_or_else(Failure::report, |()| SUCCESS)
    }
}

#[unsafe(export_name = "ncclGroupStart")]
extern "C" fn group_start() -> c_int {
    GROUP.with_borrow_mut(|group| group.depth += 1);
    SUCCESS
}

#[unsafe(export_name = "ncclGroupEnd")]
extern "C" fn group_end() -> c_int {
    GROUP.with_borrow_mut(|group| {
        let Some(depth) = group.depth.checked_sub(1) else {
            return Failure(INVALID_USAGE, "no group has begun".into()).report();
        };
        group.depth = depth;
        if depth == 0 { group.launch() } else { SUCCESS }
    })
}

/// A rank that exists.
fn rank(comm: &Comm, number: c_int) -> Option<usize> {
    usize::try_from(number).ok().filter(|number| *number < comm.size)
}

#[unsafe(export_name = "ncclAllReduce")]
extern "C" fn all_reduce(
    from: u64,
    to: u64,
    count: usize,
    dtype: c_int,
    op: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    Arguments { from, to, count, dtype, comm, stream }
        .submit(|comm, dtype| Some(Kind::AllReduce(comm.operation(op, dtype)?)))
}

#[unsafe(export_name = "ncclBroadcast")]
extern "C" fn broadcast(
    from: u64,
    to: u64,
    count: usize,
    dtype: c_int,
    root: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    Arguments { from, to, count, dtype, comm, stream }.submit(|comm, _| Some(Kind::Broadcast(rank(comm, root)?)))
}

#[unsafe(export_name = "ncclAllGather")]
extern "C" fn all_gather(from: u64, to: u64, count: usize, dtype: c_int, comm: usize, stream: usize) -> c_int {
    Arguments { from, to, count, dtype, comm, stream }.submit(|_, _| Some(Kind::AllGather))
}

#[unsafe(export_name = "ncclReduceScatter")]
extern "C" fn reduce_scatter(
    from: u64,
    to: u64,
    count: usize,
    dtype: c_int,
    op: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    Arguments { from, to, count, dtype, comm, stream }
        .submit(|comm, dtype| Some(Kind::ReduceScatter(comm.operation(op, dtype)?)))
}

#[unsafe(export_name = "ncclReduce")]
#[allow(clippy::too_many_arguments, reason = "NCCL's function has so many")]
extern "C" fn reduce(
    from: u64,
    to: u64,
    count: usize,
    dtype: c_int,
    op: c_int,
    root: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    Arguments { from, to, count, dtype, comm, stream }
        .submit(|comm, dtype| Some(Kind::Reduce(comm.operation(op, dtype)?, rank(comm, root)?)))
}

#[unsafe(export_name = "ncclSend")]
extern "C" fn send(from: u64, count: usize, dtype: c_int, peer: c_int, comm: usize, stream: usize) -> c_int {
    Arguments { from, to: 0, count, dtype, comm, stream }.submit(|comm, _| Some(Kind::Send(rank(comm, peer)?)))
}

#[unsafe(export_name = "ncclRecv")]
extern "C" fn receive(to: u64, count: usize, dtype: c_int, peer: c_int, comm: usize, stream: usize) -> c_int {
    Arguments { from: 0, to, count, dtype, comm, stream }.submit(|comm, _| Some(Kind::Receive(rank(comm, peer)?)))
}
