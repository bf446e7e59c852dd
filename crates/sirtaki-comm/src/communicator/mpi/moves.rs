//! Operations that move elements without combining them.
//!
//! MPI counts elements and offsets in 32 bits. What fits goes into one collective call; longer buffers are cut into
//! pieces that need neither offsets nor larger counts: broadcasts part by part, or messages between pairs. Gather and
//! scatter always use such messages, as the libraries themselves do when counts differ.

use std::ffi::c_int;

use super::{
    core::Core,
    members::share,
    pace::Pace,
    raw::{MpiRequest, Parts, Route, Type},
};
use crate::{CommError, DType, Rank, Slice, SliceMut, communicator::check::offsets};

/// Tag of the messages between pairs.
const TAG: c_int = 3;

/// The MPI type that carries elements of this size unchanged.
pub(super) fn carrier(dtype: DType) -> Type {
    match dtype.size() {
        1 => Type::U8,
        2 => Type::I16,
        4 => Type::I32,
        _ => Type::I64,
    }
}

/// Counts as MPI takes them; the caller has made sure that they fit.
pub(super) fn narrow(counts: &[usize]) -> Vec<c_int> {
    counts.iter().map(|&count| count as c_int).collect()
}

pub(super) fn broadcast(core: &Core, mut data: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
    let of = carrier(data.dtype());
    data.bytes_mut()
        .chunks_mut(core.limit * of.size())
        .try_for_each(|piece| core.ask("broadcast", |mpi, comm| mpi.broadcast(piece, of, root, comm)))
}

pub(super) fn all_gather(core: &Core, mut all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError> {
    let starts = offsets(counts);
    if all.len() <= core.limit {
        let (of, counts, starts) = (carrier(all.dtype()), narrow(counts), narrow(&starts));
        let parts = Parts { counts: &counts, starts: &starts };
        return core.ask("gather from all", |mpi, comm| mpi.all_gather(all.bytes_mut(), parts, of, comm));
    }
    (0..counts.len()).try_for_each(|rank| broadcast(core, all.part(starts[rank], starts[rank + 1]), rank))
}

pub(super) fn gather(core: &Core, mut data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
    if core.group.rank() != root {
        return send(core, data.as_slice(), root, TAG);
    }
    let starts = offsets(counts);
    let others = (0..counts.len()).filter(|&rank| rank != root);
    others.into_iter().try_for_each(|rank| receive(core, data.part(starts[rank], starts[rank + 1]), rank, TAG))
}

pub(super) fn scatter(core: &Core, mut data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
    if core.group.rank() != root {
        return receive(core, data, root, TAG);
    }
    let starts = offsets(counts);
    let others = (0..counts.len()).filter(|&rank| rank != root);
    others.into_iter().try_for_each(|rank| send(core, data.part(starts[rank], starts[rank + 1]).as_slice(), rank, TAG))
}

/// Blocks until the elements are on their way.
pub(super) fn send(core: &Core, data: Slice<'_>, to: Rank, tag: c_int) -> Result<(), CommError> {
    let of = carrier(data.dtype());
    data.bytes()
        .chunks(core.limit * of.size())
        .try_for_each(|piece| core.ask("send", |mpi, comm| mpi.send(piece, of, to, tag, comm)))
}

/// Blocks until the elements are there.
pub(super) fn receive(core: &Core, mut data: SliceMut<'_>, from: Rank, tag: c_int) -> Result<(), CommError> {
    let of = carrier(data.dtype());
    data.bytes_mut()
        .chunks_mut(core.limit * of.size())
        .try_for_each(|piece| core.ask("receive", |mpi, comm| mpi.receive(piece, of, from, tag, comm)))
}

/// Everything is started at once, receives first, and finished in any order.
pub(super) fn all_to_all(
    core: &Core,
    out: Slice<'_>,
    sent: &[usize],
    mut into: SliceMut<'_>,
    received: &[usize],
) -> Result<(), CommError> {
    compare_counts(core, sent, received)?;
    let (of, me, route) = (carrier(out.dtype()), core.group.rank(), Route { tag: TAG, comm: core.comm });
    let piece = core.limit * of.size();
    let (sources, targets) = (offsets(sent), offsets(received));
    let size = of.size();
    let mine = &out.bytes()[sources[me] * size..sources[me + 1] * size];
    into.bytes_mut()[targets[me] * size..targets[me + 1] * size].copy_from_slice(mine);
    let mut requests = Vec::new();
    for rank in (0..sent.len()).filter(|&rank| rank != me) {
        for part in into.part(targets[rank], targets[rank + 1]).bytes_mut().chunks_mut(piece) {
            let (start, count) = (part.as_mut_ptr(), (part.len() / size) as c_int);
            // SAFETY: `into` is borrowed until `finish` has seen the end of every request.
            requests.push(unsafe { core.session.mpi.start_receive(start, count, of, rank, route) });
        }
    }
    for rank in (0..sent.len()).filter(|&rank| rank != me) {
        for part in out.bytes()[sources[rank] * size..sources[rank + 1] * size].chunks(piece) {
            let count = (part.len() / size) as c_int;
            // SAFETY: as above, for `out`.
            requests.push(unsafe { core.session.mpi.start_send(part.as_ptr(), count, of, rank, route) });
        }
    }
    let mut started = Vec::with_capacity(requests.len());
    let mut failure = None;
    for request in requests {
        match request {
            Ok(request) => started.push(request),
            Err(code) => failure = Some(code),
        }
    }
    let finished = finish(core, started);
    failure.map_or(Ok(()), |code| core.ask("exchange with all", |_, _| Err(code)))?;
    finished
}

/// Ends every request, even if one of them fails: their buffers belong to the caller again afterwards.
fn finish(core: &Core, mut requests: Vec<MpiRequest>) -> Result<(), CommError> {
    let mut result = Ok(());
    let mut pace = Pace::new();
    while !requests.is_empty() {
        requests.retain_mut(|request| match core.ask("exchange with all", |mpi, _| mpi.test(request)) {
            Ok(done) => !done,
            Err(error) => {
                result = Err(error);
                false
            }
        });
        pace.pause();
    }
    result
}

/// Compares what every rank sends with what its receiver expects, with the same outcome on all ranks.
fn compare_counts(core: &Core, sent: &[usize], received: &[usize]) -> Result<(), CommError> {
    let (me, size) = (core.group.rank(), sent.len());
    let sent: Vec<u64> = sent.iter().map(|&count| count as u64).collect();
    let mut coming = vec![0; size];
    core.ask("compare counts", |mpi, comm| mpi.transpose(&sent, &mut coming, comm))?;
    let odd = (0..size).find(|&rank| coming[rank] != received[rank] as u64);
    let verdict = odd.map_or([u64::MAX, 0, 0], |rank| [rank as u64, coming[rank], received[rank] as u64]);
    let all = share(&core.session, core.comm, me, size, bytemuck::cast_slice(&verdict))?;
    for (to, verdict) in all.as_chunks::<24>().0.iter().enumerate() {
        let [from, sends, expects] = bytemuck::pod_read_unaligned::<[u64; 3]>(verdict);
        if from < size as u64 {
            let (one, other) = (core.group.describe(from as Rank), core.group.describe(to));
            let differences =
                format!("in all_to_all, {one} sends {sends} elements to {other}, which expects {expects}");
            return Err(CommError::Mismatch { rank: core.group.world_rank(from as Rank), differences });
        }
    }
    Ok(())
}
