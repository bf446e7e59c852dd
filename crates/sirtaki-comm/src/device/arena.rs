//! Collectives of ranks that reach each other's device memory: those of one host that use one GPU, or GPUs with access to
//! each other. NCCL refuses the former.
//!
//! Every rank copies what it contributes into memory that all can read, and takes what it needs from the memory of the
//! others, straight to where it belongs (see `staging`). Tensors of a call share rounds, so a call with many small ones
//! costs as much as one. Reductions go from rank 0 upwards on every rank, so the bits are the same everywhere, and the
//! same as those of the host's kernels.
//!
//! As with NCCL, calls queue work and return; unlike with NCCL, ranks meet on the host in every round, which is why
//! calls take a communicator.

use std::{fmt, sync::Arc};

use super::{
    View,
    gpu::Stream,
    kernels::Kernels,
    layout::{Piece, rounds},
    staging::{HALF, Staging},
};
use crate::{CommError, Communicator, DType, Plan, Rank, Reduction, SliceMut, Stopper, communicator::check};

/// One rank's part in a group.
pub struct DeviceArena {
    kernels: Arc<Kernels>,
    staging: Staging,
    /// Bytes of a half that a round uses.
    room: usize,
}

impl fmt::Debug for DeviceArena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} in memory of {:?}", self.staging.rank(), self.staging.size(), self.kernels.gpu())
    }
}

impl DeviceArena {
    /// Most ranks of a group.
    pub const MOST_RANKS: usize = Kernels::MOST_INPUTS;

    /// Shares memory of the GPU of these kernels with all ranks of the communicator, which call this together. If that
    /// is not possible, all ranks get the same [`CommError::Unavailable`], and the communicator stays usable.
    pub fn connect(comm: &mut dyn Communicator, kernels: Arc<Kernels>) -> Result<Self, CommError> {
        let size = comm.group().size();
        if size > Self::MOST_RANKS {
            let reason = format!("there are {size} ranks, and at most {} can", Self::MOST_RANKS);
            return Err(CommError::Unavailable { what: "device memory that ranks share".into(), reason });
        }
        let staging = Staging::connect(comm, kernels.gpu())?;
        Ok(Self { kernels, staging, room: HALF })
    }

    /// Works through large tensors in pieces of at most this many bytes from now on. All ranks call it.
    pub fn set_piece(&mut self, bytes: usize) {
        self.room = bytes.clamp(1 << 10, HALF).next_multiple_of(1 << 10);
    }

    /// Replaces the elements of each tensor by the reduction over all ranks.
    pub fn all_reduce(
        &mut self,
        comm: &mut dyn Communicator,
        views: &[View],
        reduction: Reduction,
        stream: &Stream,
    ) -> Result<(), CommError> {
        let kernels = self.kernels.clone();
        if self.staging.size() == 1 {
            return views.iter().try_for_each(|view| alone(&kernels, *view, reduction, stream));
        }
        for pieces in rounds(views.iter().map(View::bytes), self.room) {
            let parts = placed(&pieces, |item| views[item]);
            self.staging.round(
                comm,
                stream,
                |half| put(&kernels, half, &parts, stream),
                |halves| reduce(&kernels, halves, &parts, reduction, stream),
            )?;
        }
        Ok(())
    }

    /// Replaces elements by those of `root`.
    pub fn broadcast(
        &mut self,
        comm: &mut dyn Communicator,
        views: &[View],
        root: Rank,
        stream: &Stream,
    ) -> Result<(), CommError> {
        check::root(comm.group(), root)?;
        let (kernels, is_root) = (self.kernels.clone(), self.staging.rank() == root);
        if self.staging.size() == 1 {
            return Ok(());
        }
        for pieces in rounds(views.iter().map(View::bytes), self.room) {
            let parts = placed(&pieces, |item| views[item]);
            self.staging.round(
                comm,
                stream,
                |half| if is_root { put(&kernels, half, &parts, stream) } else { Ok(()) },
                |halves| if is_root { Ok(()) } else { get(&kernels, [(halves[root], parts.as_slice())], stream) },
            )?;
        }
        Ok(())
    }

    /// Collects all ranks' parts: each view holds the parts one after another in rank order, with as many elements as
    /// the counts beside it say; before the call only my own part has to be filled.
    pub fn all_gather(
        &mut self,
        comm: &mut dyn Communicator,
        views: &[(View, Vec<usize>)],
        stream: &Stream,
    ) -> Result<(), CommError> {
        views.iter().try_for_each(|(view, counts)| check::counts(comm.group(), counts, view.len()))?;
        let (kernels, own, size) = (self.kernels.clone(), self.staging.rank(), self.staging.size());
        if size == 1 {
            return Ok(());
        }
        let part = |rank: Rank, item: usize| part(&views[item], rank);
        let plans: Vec<_> =
            (0..size).map(|rank| rounds((0..views.len()).map(|item| part(rank, item).bytes()), self.room)).collect();
        for round in 0..plans.iter().map(Vec::len).max().unwrap_or(0) {
            let parts: Vec<Vec<(View, usize)>> = (0..size)
                .map(|rank| placed(plans[rank].get(round).map_or(&[], Vec::as_slice), |item| part(rank, item)))
                .collect();
            self.staging.round(
                comm,
                stream,
                |half| put(&kernels, half, &parts[own], stream),
                |halves| {
                    let others = (0..size).filter(|rank| *rank != own);
                    get(&kernels, others.map(|rank| (halves[rank], parts[rank].as_slice())), stream)
                },
            )?;
        }
        Ok(())
    }

    /// Reduces parts: views as in [`DeviceArena::all_gather`], filled everywhere; afterwards my own part holds the
    /// reduction.
    pub fn reduce_scatter(
        &mut self,
        comm: &mut dyn Communicator,
        views: &[(View, Vec<usize>)],
        reduction: Reduction,
        stream: &Stream,
    ) -> Result<(), CommError> {
        views.iter().try_for_each(|(view, counts)| check::counts(comm.group(), counts, view.len()))?;
        let (kernels, own, size) = (self.kernels.clone(), self.staging.rank(), self.staging.size());
        if size == 1 {
            return views.iter().try_for_each(|(view, _)| alone(&kernels, *view, reduction, stream));
        }
        // One item for every view and the rank that its elements are for.
        let item = |item: usize| part(&views[item / size], item % size);
        for pieces in rounds((0..views.len() * size).map(|index| item(index).bytes()), self.room) {
            let parts = placed(&pieces, item);
            let mine: Vec<Piece> = pieces.iter().copied().filter(|piece| piece.item % size == own).collect();
            let mine = placed(&mine, item);
            self.staging.round(
                comm,
                stream,
                |half| put(&kernels, half, &parts, stream),
                |halves| reduce(&kernels, halves, &mine, reduction, stream),
            )?;
        }
        Ok(())
    }

    /// Sends `sent[r]` elements of `out` to each rank and fills `into` with `received[r]` elements from each. The two must
    /// not overlap.
    pub fn all_to_all(
        &mut self,
        comm: &mut dyn Communicator,
        (out, sent): (View, &[usize]),
        (into, received): (View, &[usize]),
        stream: &Stream,
    ) -> Result<(), CommError> {
        check::counts(comm.group(), sent, out.len())?;
        check::counts(comm.group(), received, into.len())?;
        let (kernels, own, size) = (self.kernels.clone(), self.staging.rank(), self.staging.size());
        let table = self.counts(comm, sent, received)?;
        let (out, into) = ((out, sent.to_vec()), (into, received.to_vec()));
        let element = out.0.dtype().size();
        // What stays on a rank goes there directly.
        kernels.copy(&[(part(&into, own), part(&out, own))], stream)?;
        let plans: Vec<_> = (0..size)
            .map(|from| {
                let bytes = |to: Rank| if to == from { 0 } else { table[from][to] * element };
                rounds((0..size).map(bytes), self.room)
            })
            .collect();
        for round in 0..plans.iter().map(Vec::len).max().unwrap_or(0) {
            let pieces = |rank: Rank| plans[rank].get(round).map_or(&[][..], Vec::as_slice);
            let sent = placed(pieces(own), |to| part(&out, to));
            let received: Vec<Vec<(View, usize)>> = (0..size)
                .map(|from| {
                    let mine: Vec<Piece> = pieces(from).iter().copied().filter(|piece| piece.item == own).collect();
                    placed(&mine, |_| part(&into, from))
                })
                .collect();
            self.staging.round(
                comm,
                stream,
                |half| put(&kernels, half, &sent, stream),
                |halves| get(&kernels, (0..size).map(|from| (halves[from], received[from].as_slice())), stream),
            )?;
        }
        Ok(())
    }

    /// How many elements each rank sends to each, as reported by all ranks, provided that receivers expect as many.
    fn counts(
        &self,
        comm: &mut dyn Communicator,
        sent: &[usize],
        received: &[usize],
    ) -> Result<Vec<Vec<usize>>, CommError> {
        let (own, size) = (self.staging.rank(), self.staging.size());
        let mut all = vec![0_i64; size * 2 * size];
        let mine = all[own * 2 * size..].iter_mut();
        mine.zip(sent.iter().chain(received)).for_each(|(to, count)| *to = *count as i64);
        comm.all_gather(SliceMut::from(&mut all), &vec![2 * size; size])?;
        let said = |rank: Rank, index: usize| all[rank * 2 * size + index] as usize;
        for (from, to) in (0..size).flat_map(|from| (0..size).map(move |to| (from, to))) {
            let (sends, expects) = (said(from, to), said(to, size + from));
            if sends != expects {
                let (sender, receiver) = (comm.group().describe(from), comm.group().describe(to));
                let differences = format!("{sender} sends {sends} elements to {receiver}, which expects {expects}");
                return Err(CommError::Mismatch { rank: comm.group().world_rank(from), differences });
            }
        }
        Ok((0..size).map(|from| (0..size).map(|to| said(from, to)).collect()).collect())
    }

    /// Leaves in good order, once everything queued is done, and gives the memory that this rank shares back if the
    /// others leave within moments; says whether they did. Without this call, for instance after a failure, or if others
    /// stay, that memory is reserved until the process ends, since they may still read it.
    pub fn leave(self, stopper: &Stopper) -> Result<bool, CommError> {
        self.staging.leave(stopper)
    }
}

/// The elements of one rank in a view that holds those of all.
fn part((view, counts): &(View, Vec<usize>), rank: Rank) -> View {
    let from: usize = counts[..rank].iter().sum();
    view.part(from, from + counts[rank])
}

/// The elements of each piece, with their offset in a half.
fn placed(pieces: &[Piece], item: impl Fn(usize) -> View) -> Vec<(View, usize)> {
    let place = |piece: &Piece| {
        let (view, size) = (item(piece.item), item(piece.item).dtype().size());
        (view.part(piece.from / size, piece.to / size), piece.offset)
    };
    pieces.iter().map(place).collect()
}

/// The bytes of a half that hold these elements.
fn bytes_of(half: View, (view, offset): &(View, usize)) -> View {
    half.part(*offset, offset + view.bytes())
}

/// Copies elements to a half.
fn put(kernels: &Kernels, half: View, parts: &[(View, usize)], stream: &Stream) -> Result<(), CommError> {
    let pairs: Vec<_> = parts.iter().map(|part| (bytes_of(half, part), part.0)).collect();
    kernels.copy(&pairs, stream)
}

/// Copies elements from halves.
fn get<'a>(
    kernels: &Kernels,
    from: impl IntoIterator<Item = (View, &'a [(View, usize)])>,
    stream: &Stream,
) -> Result<(), CommError> {
    let pairs = from.into_iter().flat_map(|(half, parts)| parts.iter().map(move |part| (part.0, bytes_of(half, part))));
    kernels.copy(&pairs.collect::<Vec<_>>(), stream)
}

/// Reduces elements of all halves, those of one type together.
fn reduce(
    kernels: &Kernels,
    halves: &[View],
    parts: &[(View, usize)],
    reduction: Reduction,
    stream: &Stream,
) -> Result<(), CommError> {
    for dtype in DType::ALL {
        let same: Vec<_> = parts.iter().copied().filter(|(view, _)| view.dtype() == dtype).collect();
        kernels.combine(&Plan::new(dtype, reduction, halves.len()), halves, &same, stream)?;
    }
    Ok(())
}

/// What a reduction over a single rank does.
fn alone(kernels: &Kernels, view: View, reduction: Reduction, stream: &Stream) -> Result<(), CommError> {
    kernels.alone(&Plan::new(view.dtype(), reduction, 1), view, stream)
}
