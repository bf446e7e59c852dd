//! Ranks that NCCL connects.
//!
//! Calls return when their work is queued, but NCCL connects ranks when it first needs to, and then a call waits for
//! other ranks. So a second thread checks whether the group was stopped, and aborts it whatever the first one is doing:
//! a rank that died does not hold up others for ever. Rejected: non-blocking communicators, because NCCL then starts a
//! thread for every call (between two ranks that shared a GPU, 4 bytes took 0.26 ms instead of 0.09 ms). Rejected as well:
//! groups of some ranks by `ncclCommSplit`, which 2.18 and later have. All ranks of the whole group have to call it while
//! nothing is queued there, but a process set gets its communicator when it first has a tensor on a GPU, of which
//! other ranks know nothing. Splitting when the set is made would have all ranks wait for their GPUs, and would take
//! NCCL's memory for sets that never use one. Nor does it save anything: two groups of two out of four ranks that shared
//! a GPU took 60 to 80 ms with their first all-reduce and 64 to 72 MiB by NCCL 2.28.9, split off or connected anew; with
//! shared resources (`splitShare`), 77 to 110 ms and as much memory.

use std::{
    ffi::{c_int, c_void},
    fmt,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};

use half::{bf16, f16};

use super::{
    View,
    driver::Handle,
    gpu::{Gpu, Stream},
    nccl::{Config, Nccl, UniqueId, UniqueIdByValue, code},
    nccl_guard::{Guard, LOOK, abort},
};
use crate::{CommError, DType, Rank, ReduceOp, Reduction, Stopper};

/// How NCCL combines elements.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Op {
    Known(c_int),
    /// A sum of inputs that are multiplied by this factor.
    Scaled(f64),
}

/// One rank's part in a group.
pub struct NcclGroup {
    nccl: Arc<Nccl>,
    gpu: Arc<Gpu>,
    comm: Handle,
    rank: Rank,
    size: usize,
    guard: Guard,
}

impl fmt::Debug for NcclGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} by {:?}", self.rank, self.size, self.nccl)
    }
}

impl NcclGroup {
    /// Connects all ranks that call it with the same identity, unless `stopper` stops it.
    pub fn connect(
        nccl: Arc<Nccl>,
        gpu: Arc<Gpu>,
        id: UniqueId,
        (rank, size): (Rank, usize),
        stopper: Stopper,
    ) -> Result<Self, CommError> {
        let (sender, connected) = mpsc::channel();
        let (library, device) = (nccl.clone(), gpu.clone());
        let connect = move || {
            let mut comm = 0;
            let mut config = Config::new();
            let outcome = device.enter().and_then(|()| {
                let (size, rank) = (size as c_int, rank as c_int);
                // SAFETY: it writes one handle, and reads the configuration only during the call.
                let code = unsafe {
                    (library.functions.connect)(&raw mut comm, size, UniqueIdByValue(id), rank, &raw mut config)
                };
                library.check("connect its ranks", code)
            });
            let _ = sender.send(outcome.map(|()| comm));
        };
        // Threads that NCCL starts inherit the name.
        let started = thread::Builder::new().name("nccl-connect".into()).spawn(connect);
        started.map_err(|error| CommError::io("cannot start a thread", error))?;
        let comm = loop {
            match connected.recv_timeout(LOOK) {
                Ok(outcome) => break outcome?,
                // The thread stays until the process ends: NCCL offers no other way.
                Err(RecvTimeoutError::Timeout) => stopper.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CommError::Device { problem: "the thread that connects NCCL has panicked".into() });
                }
            }
        };
        let guard = Guard::new(nccl.clone(), gpu.clone(), comm, stopper)?;
        Ok(Self { nccl, gpu, comm, rank, size, guard })
    }

    /// Whether NCCL can do this reduction.
    pub fn can(dtype: DType, reduction: Reduction) -> bool {
        operation(dtype, reduction, 1).is_some()
    }

    /// The library that connects it.
    pub fn nccl(&self) -> &Arc<Nccl> {
        &self.nccl
    }

    /// Replaces the elements of each tensor by the reduction over all ranks.
    pub fn all_reduce(&mut self, views: &[View], reduction: Reduction, stream: &Stream) -> Result<(), CommError> {
        self.together("all_reduce", |group| {
            for view in views.iter().filter(|view| !view.is_empty()) {
                group.with_operation(view.dtype(), reduction, |group, op| {
                    let (at, count, dtype) = (view.address(), view.len(), code(view.dtype()));
                    // SAFETY: a view is memory that may be read and written.
                    unsafe { (group.nccl.functions.all_reduce)(at, at, count, dtype, op, group.comm, stream.handle()) }
                })?;
            }
            Ok(())
        })
    }

    /// Replaces elements by those of `root`.
    pub fn broadcast(&mut self, views: &[View], root: Rank, stream: &Stream) -> Result<(), CommError> {
        self.together("broadcast", |group| views.iter().try_for_each(|view| group.spread(*view, root, stream)))
    }

    fn spread(&mut self, view: View, root: Rank, stream: &Stream) -> Result<(), CommError> {
        if view.is_empty() {
            return Ok(());
        }
        let (at, count, dtype) = (view.address(), view.bytes(), code(DType::U8));
        // SAFETY: a view is memory that may be read and written.
        let result =
            unsafe { (self.nccl.functions.broadcast)(at, at, count, dtype, root as c_int, self.comm, stream.handle()) };
        self.nccl.check("broadcast", result)
    }

    /// Collects all ranks' parts: each view holds the parts one after another in rank order, with as many elements as
    /// the counts beside it say; before the call only my own part has to be filled.
    pub fn all_gather(&mut self, views: &[(View, Vec<usize>)], stream: &Stream) -> Result<(), CommError> {
        self.together("all_gather", |group| {
            for (view, counts) in views {
                let equal = counts.iter().all(|count| *count == counts[0]);
                if equal && counts[0] > 0 {
                    let own = view.part(group.rank * counts[0], (group.rank + 1) * counts[0]);
                    let (from, to, count) = (own.address(), view.address(), own.bytes());
                    // SAFETY: a view is memory that may be read and written.
                    let result = unsafe {
                        (group.nccl.functions.all_gather)(from, to, count, code(DType::U8), group.comm, stream.handle())
                    };
                    group.nccl.check("all_gather", result)?;
                    continue;
                }
                for (root, part) in parts(*view, counts).enumerate() {
                    group.spread(part, root, stream)?;
                }
            }
            Ok(())
        })
    }

    /// Reduces parts: views as in [`NcclGroup::all_gather`], filled everywhere; afterwards my own part holds the reduction.
    pub fn reduce_scatter(
        &mut self,
        views: &[(View, Vec<usize>)],
        reduction: Reduction,
        stream: &Stream,
    ) -> Result<(), CommError> {
        self.together("reduce_scatter", |group| {
            for (view, counts) in views {
                let (dtype, comm, queue) = (code(view.dtype()), group.comm, stream.handle());
                let equal = counts.iter().all(|count| *count == counts[0]);
                if equal && counts[0] > 0 {
                    let own = view.part(group.rank * counts[0], (group.rank + 1) * counts[0]);
                    let (from, to, count) = (view.address(), own.address(), own.len());
                    group.with_operation(view.dtype(), reduction, |group, op| {
                        // SAFETY: a view is memory that may be read and written.
                        unsafe { (group.nccl.functions.reduce_scatter)(from, to, count, dtype, op, comm, queue) }
                    })?;
                    continue;
                }
                for (root, part) in parts(*view, counts).enumerate().filter(|(_, part)| !part.is_empty()) {
                    let (at, count) = (part.address(), part.len());
                    group.with_operation(view.dtype(), reduction, |group, op| {
                        // SAFETY: a view is memory that may be read and written.
                        unsafe { (group.nccl.functions.reduce)(at, at, count, dtype, op, root as c_int, comm, queue) }
                    })?;
                }
            }
            Ok(())
        })
    }

    /// Sends `sent[r]` elements of `out` to each rank and fills `into` with `received[r]` elements from each.
    pub fn all_to_all(
        &mut self,
        (out, sent): (View, &[usize]),
        (into, received): (View, &[usize]),
        stream: &Stream,
    ) -> Result<(), CommError> {
        self.together("all_to_all", |group| {
            let (dtype, comm, queue) = (code(DType::U8), group.comm, stream.handle());
            for (rank, (to, from)) in parts(out, sent).zip(parts(into, received)).enumerate() {
                let peer = rank as c_int;
                if !to.is_empty() {
                    // SAFETY: a view is memory that may be read.
                    let result =
                        unsafe { (group.nccl.functions.send)(to.address(), to.bytes(), dtype, peer, comm, queue) };
                    group.nccl.check("send", result)?;
                }
                if !from.is_empty() {
                    // SAFETY: a view is memory that may be written.
                    let result = unsafe {
                        (group.nccl.functions.receive)(from.address(), from.bytes(), dtype, peer, comm, queue)
                    };
                    group.nccl.check("receive", result)?;
                }
            }
            Ok(())
        })
    }

    /// Queues several calls as one.
    fn together(
        &mut self,
        what: &str,
        calls: impl FnOnce(&mut Self) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        self.guard.entrance().pass(|| {
            self.gpu.enter()?;
            // SAFETY: a group that is begun is ended below, whatever happens in between.
            self.nccl.check("begin a group", unsafe { (self.nccl.functions.group_start)() })?;
            let called = calls(self);
            // SAFETY: as above.
            let ended = unsafe { (self.nccl.functions.group_end)() };
            called?;
            self.nccl.check(what, ended)
        })
    }

    /// Makes a call with NCCL's code for this reduction.
    fn with_operation(
        &mut self,
        dtype: DType,
        reduction: Reduction,
        call: impl FnOnce(&mut Self, c_int) -> c_int,
    ) -> Result<(), CommError> {
        let unknown = || CommError::Invalid { problem: format!("NCCL has no {reduction:?} of {}", dtype.name()) };
        let (op, own) = match operation(dtype, reduction, self.size).ok_or_else(unknown)? {
            Op::Known(op) => (op, None),
            Op::Scaled(factor) => {
                let op = self.scaled_sum(dtype, factor)?;
                (op, Some(op))
            }
        };
        let result = call(self, op);
        if let Some(op) = own {
            // SAFETY: it was made above; calls that use it continue.
            unsafe { (self.nccl.functions.drop_scaled_sum)(op, self.comm) };
        }
        self.nccl.check(reduction.op.name(), result)
    }

    fn scaled_sum(&self, dtype: DType, factor: f64) -> Result<c_int, CommError> {
        let mut bytes = [0_u8; 8];
        match dtype {
            DType::F16 => bytes[..2].copy_from_slice(&f16::from_f64(factor).to_ne_bytes()),
            DType::BF16 => bytes[..2].copy_from_slice(&bf16::from_f64(factor).to_ne_bytes()),
            DType::F32 => bytes[..4].copy_from_slice(&(factor as f32).to_ne_bytes()),
            _ => bytes = factor.to_ne_bytes(),
        }
        /// The number is in the host's memory and read during the call.
        const AT_ONCE: c_int = 1;
        let mut op = 0;
        let number = bytes.as_ptr().cast::<c_void>();
        // SAFETY: the number has the type named, and one operation is written.
        let result = unsafe { (self.nccl.functions.scaled_sum)(&raw mut op, number, code(dtype), AT_ONCE, self.comm) };
        self.nccl.check("make an operation", result)?;
        Ok(op)
    }

    /// What has gone wrong since, if anything: a rank that died, or a network that failed.
    pub fn check(&self) -> Result<(), CommError> {
        self.guard.entrance().pass(|| {
            let mut state = 0;
            // SAFETY: the communicator lives, and one number is written.
            let result = unsafe { (self.nccl.functions.state)(self.comm, &raw mut state) };
            self.nccl.check("say how it is", result)?;
            self.nccl.check("go on", state)
        })
    }

    /// Ends at once what the device does for this group, whatever other ranks are doing.
    pub fn abort(&mut self) {
        if self.guard.take() {
            abort(&self.nccl, &self.gpu, self.comm);
        }
    }

    /// Leaves in good order. The device must have finished everything.
    pub fn leave(mut self) {
        if self.guard.take() && self.gpu.enter().is_ok() {
            // SAFETY: it lives, and nobody uses it afterwards.
            unsafe { (self.nccl.functions.destroy)(self.comm) };
        }
    }
}

impl Drop for NcclGroup {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Parts of these numbers of elements, one after another.
fn parts(view: View, counts: &[usize]) -> impl Iterator<Item = View> {
    let mut end = 0;
    counts.iter().map(move |count| {
        let begin = end;
        end += count;
        view.part(begin, end)
    })
}

/// NCCL's form of a reduction over this many ranks; `None` if it has none.
fn operation(dtype: DType, reduction: Reduction, ranks: usize) -> Option<Op> {
    let [sum, product, max, min, average] = [0, 1, 2, 3, 4].map(Op::Known);
    if dtype == DType::Bool {
        return Some(match reduction.op {
            ReduceOp::Sum | ReduceOp::Average | ReduceOp::Max => max,
            ReduceOp::Min | ReduceOp::Product => min,
        });
    }
    let factor = reduction.before * reduction.after;
    let plain = reduction.before == 1.0 && reduction.after == 1.0;
    match reduction.op {
        ReduceOp::Sum if plain => Some(sum),
        ReduceOp::Average if plain && dtype.is_float() => Some(average),
        ReduceOp::Sum if dtype.is_float() => Some(Op::Scaled(factor)),
        ReduceOp::Average if dtype.is_float() => Some(Op::Scaled(factor / ranks as f64)),
        ReduceOp::Min if plain => Some(min),
        ReduceOp::Max if plain => Some(max),
        ReduceOp::Product if plain => Some(product),
        _ => None,
    }
}
