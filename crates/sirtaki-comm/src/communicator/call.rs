//! A call's arguments, checked and described: the same for every back end, before anything is sent.

use super::check;
use crate::{
    CommError, Group, Rank, Reduction, Slice, SliceMut,
    signature::{Kind, Signature},
};

#[inline]
pub(crate) fn all_reduce(data: &SliceMut<'_>, reduction: Reduction) -> Signature {
    Signature::new(Kind::AllReduce, data.dtype(), data.len()).reduction(reduction)
}

pub(crate) fn broadcast(group: &Group, data: &SliceMut<'_>, root: Rank) -> Result<Signature, CommError> {
    check::root(group, root)?;
    Ok(Signature::new(Kind::Broadcast, data.dtype(), data.len()).root(root))
}

pub(crate) fn all_gather(group: &Group, all: &SliceMut<'_>, counts: &[usize]) -> Result<Signature, CommError> {
    check::counts(group, counts, all.len())?;
    Ok(Signature::new(Kind::AllGather, all.dtype(), all.len()).counts(counts))
}

pub(crate) fn reduce_scatter(
    group: &Group,
    all: &SliceMut<'_>,
    counts: &[usize],
    reduction: Reduction,
) -> Result<Signature, CommError> {
    check::counts(group, counts, all.len())?;
    Ok(Signature::new(Kind::ReduceScatter, all.dtype(), all.len()).reduction(reduction).counts(counts))
}

/// What is sent differs from rank to rank, so counts are not part of it; each back end compares them in pairs.
pub(crate) fn all_to_all(
    group: &Group,
    out: Slice<'_>,
    sent: &[usize],
    into: &SliceMut<'_>,
    received: &[usize],
) -> Result<Signature, CommError> {
    check::all_to_all(group, out, sent, into, received)?;
    Ok(Signature::new(Kind::AllToAll, out.dtype(), 0))
}

pub(crate) fn reduce(
    group: &Group,
    data: &SliceMut<'_>,
    reduction: Reduction,
    root: Rank,
) -> Result<Signature, CommError> {
    check::root(group, root)?;
    Ok(Signature::new(Kind::Reduce, data.dtype(), data.len()).reduction(reduction).root(root))
}

/// A gather or a scatter.
pub(crate) fn rooted(
    kind: Kind,
    group: &Group,
    data: &SliceMut<'_>,
    counts: &[usize],
    root: Rank,
) -> Result<Signature, CommError> {
    check::root(group, root)?;
    if group.rank() == root {
        check::counts(group, counts, data.len())?;
    } else {
        check::part(group, counts, group.rank(), data.len())?;
    }
    Ok(Signature::new(kind, data.dtype(), counts.iter().sum()).root(root).counts(counts))
}
