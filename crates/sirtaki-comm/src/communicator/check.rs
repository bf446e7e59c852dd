//! The argument checks every back end makes before it sends anything.
//!
//! A refused call is [`CommError::Invalid`] and leaves the communicator usable, which only holds because nothing has
//! been sent yet. Comparing what different ranks called is another matter; see [`crate::signature`].

use crate::{CommError, Group, Rank, Slice, SliceMut};

fn invalid(problem: String) -> Result<(), CommError> {
    Err(CommError::Invalid { problem })
}

/// The sum of `counts`, unless it is too large to exist.
fn total(counts: &[usize]) -> Option<usize> {
    counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count))
}

fn layout(group: &Group, what: &str, counts: &[usize], buffer: &str, len: usize) -> Result<(), CommError> {
    if counts.len() != group.size() {
        return invalid(format!("{} {what} were given for a group of {} ranks", counts.len(), group.size()));
    }
    match total(counts) {
        Some(sum) if sum == len => Ok(()),
        Some(sum) => invalid(format!("{what} add up to {sum} elements, but {buffer} has {len}")),
        None => invalid(format!("{what} add up to more elements than memory can hold")),
    }
}

/// One count per rank, together as long as the buffer that holds all parts.
pub(crate) fn counts(group: &Group, counts: &[usize], all_len: usize) -> Result<(), CommError> {
    layout(group, "counts", counts, "the buffer", all_len)
}

/// One count per rank, and a buffer for the part of `rank` alone, as long as its count.
pub(crate) fn part(group: &Group, counts: &[usize], rank: Rank, len: usize) -> Result<(), CommError> {
    root(group, rank)?;
    layout(group, "counts", counts, "memory", total(counts).unwrap_or(0))?;
    if counts[rank] != len {
        let count = counts[rank];
        return invalid(format!("the count of rank {rank} is {count} elements, but its buffer has {len}"));
    }
    Ok(())
}

/// A root that is one of us.
pub(crate) fn root(group: &Group, root: Rank) -> Result<(), CommError> {
    if root >= group.size() {
        return invalid(format!("root {root} is outside the group, whose ranks are 0 to {}", group.size() - 1));
    }
    Ok(())
}

/// A partner for send or receive that is one of the others.
pub(crate) fn peer(group: &Group, rank: Rank) -> Result<(), CommError> {
    if rank >= group.size() {
        return invalid(format!("rank {rank} is outside the group, whose ranks are 0 to {}", group.size() - 1));
    }
    if rank == group.rank() {
        return invalid(format!("rank {rank} cannot send to or receive from itself"));
    }
    Ok(())
}

/// Two buffers of one type, each as long as its counts say, with the same number of elements from me to myself.
pub(crate) fn all_to_all(
    group: &Group,
    out: Slice<'_>,
    sent: &[usize],
    into: &SliceMut<'_>,
    received: &[usize],
) -> Result<(), CommError> {
    if out.dtype() != into.dtype() {
        let (out, into) = (out.dtype().name(), into.dtype().name());
        return invalid(format!("the buffer to send is {out}, the buffer to receive is {into}"));
    }
    layout(group, "sent counts", sent, "the buffer to send", out.len())?;
    layout(group, "received counts", received, "the buffer to receive", into.len())?;
    let me = group.rank();
    if sent[me] != received[me] {
        let (sent, received) = (sent[me], received[me]);
        return invalid(format!("rank {me} sends itself {sent} elements but receives {received} from itself"));
    }
    Ok(())
}

/// Where the part of each rank begins, followed by where the last one ends.
pub(crate) fn offsets(counts: &[usize]) -> Vec<usize> {
    let mut at = 0;
    let mut starts = Vec::with_capacity(counts.len() + 1);
    starts.push(0);
    starts.extend(counts.iter().map(|count| {
        at += count;
        at
    }));
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(result: Result<(), CommError>) -> String {
        match result {
            Err(CommError::Invalid { problem }) => problem,
            other => panic!("expected an invalid call, got {other:?}"),
        }
    }

    #[test]
    fn counts_cover_the_buffer() {
        let group = Group::local(1, 3);
        counts(&group, &[1, 0, 4], 5).unwrap();
        assert!(problem(counts(&group, &[1, 4], 5)).contains("2 counts were given for a group of 3"));
        assert!(problem(counts(&group, &[1, 1, 4], 5)).contains("add up to 6 elements, but the buffer has 5"));
        assert!(problem(counts(&group, &[usize::MAX, 1, 5], 5)).contains("more elements than memory"));
    }

    #[test]
    fn a_part_is_as_long_as_its_count() {
        let group = Group::local(1, 3);
        part(&group, &[1, 0, 4], 2, 4).unwrap();
        assert!(problem(part(&group, &[1, 0, 4], 1, 4)).contains("the count of rank 1 is 0 elements"));
        assert!(problem(part(&group, &[1, 4], 1, 4)).contains("group of 3"));
        assert!(problem(part(&group, &[usize::MAX, 1, 5], 1, 1)).contains("more elements than memory"));
    }

    #[test]
    fn roots_and_peers_are_members() {
        let group = Group::local(1, 3);
        root(&group, 2).unwrap();
        peer(&group, 0).unwrap();
        assert!(problem(root(&group, 3)).contains("root 3 is outside"));
        assert!(problem(peer(&group, 3)).contains("rank 3 is outside"));
        assert!(problem(peer(&group, 1)).contains("itself"));
    }

    #[test]
    fn all_to_all_needs_matching_buffers() {
        let group = Group::local(0, 2);
        let (out, mut into) = (vec![0f32; 3], vec![0f32; 5]);
        let check = |sent: &[usize], into: &mut Vec<f32>, received: &[usize]| {
            all_to_all(&group, (&out).into(), sent, &into.into(), received)
        };
        check(&[1, 2], &mut into, &[1, 4]).unwrap();
        assert!(problem(check(&[1, 1], &mut into, &[1, 4])).contains("sent counts add up to 2"));
        assert!(problem(check(&[1, 2], &mut into, &[1, 3])).contains("received counts add up to 4"));
        assert!(problem(check(&[1, 2], &mut into, &[2, 3])).contains("sends itself 1 elements but receives 2"));
        let mut other = vec![0i32; 5];
        let result = all_to_all(&group, (&out).into(), &[1, 2], &(&mut other).into(), &[1, 4]);
        assert!(problem(result).contains("to send is f32, the buffer to receive is i32"));
    }

    #[test]
    fn offsets_are_prefix_sums() {
        assert_eq!(offsets(&[]), [0]);
        assert_eq!(offsets(&[2, 0, 3]), [0, 2, 2, 5]);
    }
}
