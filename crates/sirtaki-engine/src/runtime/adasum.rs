//! The adaptive sum of Maleki et al., "Scaling Distributed Training with Adaptive Summation" (2020).
//!
//! Two gradients that point the same way are averaged, orthogonal ones are added, with a smooth transition between:
//!
//! `adasum(a, b) = (1 − a·b / 2‖a‖²) a + (1 − a·b / 2‖b‖²) b`
//!
//! More than two are combined pairwise along a binary tree over the ranks, neighbours first, so their number has to be
//! a power of two. At every level of the tree, ranks exchange halves of what they hold with a partner, so that all
//! ranks below a node hold one piece of its vector each; the products of whole vectors are the sums of the products of
//! their pieces. Every element is computed in one place, and every factor is computed from the same numbers in the same
//! order, so all ranks end with the same bits. Products are summed in `f64`.
//!
//! Cost for `n` ranks and `S` bytes: `2 log₂ n + 1` collectives, `2S` bytes sent by every rank, `S` bytes of memory
//! beyond the tensor.

use std::ops::Range;

use sirtaki_comm::{CommError, Communicator, DType, Element, Rank, Slice, SliceMut};

use crate::runtime::memory::Tensor;

/// Replaces `tensor`, of `f32` or `f64`, by the adaptive sum over all ranks.
pub(crate) fn all_reduce(comm: &mut dyn Communicator, tensor: &mut Tensor) -> Result<(), CommError> {
    match tensor.dtype() {
        DType::F64 => reduce::<f64>(comm, bytemuck::cast_slice_mut(tensor.bytes_mut())),
        _ => reduce::<f32>(comm, bytemuck::cast_slice_mut(tensor.bytes_mut())),
    }
}

/// A floating-point number.
trait Real: Element {
    fn wide(self) -> f64;
    fn narrow(value: f64) -> Self;
}

impl Real for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn narrow(value: f64) -> f32 {
        value as f32
    }
}

impl Real for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn narrow(value: f64) -> f64 {
        value
    }
}

fn reduce<R: Real>(comm: &mut dyn Communicator, data: &mut [R]) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut received = vec![R::narrow(0.0); data.len().div_ceil(2)];
    let mut distance = 1;
    while distance < size {
        let (mine, given) = (piece(data.len(), rank, 2 * distance), piece(data.len(), rank ^ distance, 2 * distance));
        let theirs = &mut received[..mine.len()];
        let only_partner = |count: usize| (0..size).map(|to| if to == rank ^ distance { count } else { 0 }).collect();
        let (out, counts): (_, [Vec<usize>; 2]) = (&data[given.clone()], [given.len(), mine.len()].map(only_partner));
        comm.all_to_all(Slice::from(out), &counts[0], SliceMut::from(&mut *theirs), &counts[1])?;
        let mine = &mut data[mine];
        // The vector of the lower ranks is always the first of the two.
        let lower = rank & distance == 0;
        let mut products = vec![0.0; 3 * size];
        let own = if lower { multiply(mine, theirs) } else { multiply(theirs, mine) };
        products[3 * rank..3 * rank + 3].copy_from_slice(&own);
        comm.all_gather(SliceMut::from(&mut products[..]), &vec![3; size])?;
        let first = rank & !(2 * distance - 1);
        let (for_a, for_b) = factors(&products[3 * first..3 * (first + 2 * distance)]);
        if lower {
            add(mine, theirs, for_a, for_b)
        } else {
            add(mine, theirs, for_b, for_a)
        };
        distance *= 2;
    }
    drop(received);
    collect(comm, data)
}

/// The piece of `length` elements that `rank` holds when a node of the tree has `ranks` ranks below it: bits of the rank
/// choose halves, the lowest first.
fn piece(length: usize, rank: Rank, ranks: usize) -> Range<usize> {
    let mut piece = 0..length;
    for level in 0..ranks.trailing_zeros() {
        let middle = piece.start + piece.len().div_ceil(2);
        piece = if rank >> level & 1 == 0 { piece.start..middle } else { middle..piece.end };
    }
    piece
}

/// `a·b`, `‖a‖²` and `‖b‖²`.
fn multiply<R: Real>(a: &[R], b: &[R]) -> [f64; 3] {
    let mut products = [0.0; 3];
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x.wide(), y.wide());
        products[0] += x * y;
        products[1] += x * x;
        products[2] += y * y;
    }
    products
}

/// What the two vectors are multiplied by, from the products of their pieces.
fn factors(products: &[f64]) -> (f64, f64) {
    let sum = |at: usize| products.iter().skip(at).step_by(3).sum::<f64>();
    let (dot, of_a, of_b) = (sum(0), sum(1), sum(2));
    // A vector of zeros has no direction and leaves the other as it is.
    let factor = |norm: f64| if norm == 0.0 { 1.0 } else { 1.0 - dot / (2.0 * norm) };
    (factor(of_a), factor(of_b))
}

fn add<R: Real>(mine: &mut [R], theirs: &[R], for_mine: f64, for_theirs: f64) {
    for (x, y) in mine.iter_mut().zip(theirs) {
        *x = R::narrow(for_mine * x.wide() + for_theirs * y.wide());
    }
}

/// Sends every rank's piece of the result to all ranks.
fn collect<R: Real>(comm: &mut dyn Communicator, data: &mut [R]) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let pieces: Vec<Range<usize>> = (0..size).map(|rank| piece(data.len(), rank, size)).collect();
    let counts: Vec<usize> = pieces.iter().map(Range::len).collect();
    let mut all = vec![R::narrow(0.0); data.len()];
    let begin: usize = counts[..rank].iter().sum();
    all[begin..begin + counts[rank]].copy_from_slice(&data[pieces[rank].clone()]);
    comm.all_gather(SliceMut::from(&mut all[..]), &counts)?;
    let mut rest = &all[..];
    for piece in pieces {
        let (part, after) = rest.split_at(piece.len());
        data[piece].copy_from_slice(part);
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adasum(a: &[f64], b: &[f64]) -> Vec<f64> {
        let (for_a, for_b) = factors(&multiply(a, b));
        let mut result = a.to_vec();
        add(&mut result, b, for_a, for_b);
        result
    }

    #[test]
    fn the_definition_holds_at_its_ends() {
        assert_eq!(adasum(&[3.0, 4.0], &[3.0, 4.0]), [3.0, 4.0], "parallel vectors are averaged");
        assert_eq!(adasum(&[3.0, 0.0], &[0.0, 4.0]), [3.0, 4.0], "orthogonal ones are added");
        assert_eq!(adasum(&[0.0, 0.0], &[1.0, 2.0]), [1.0, 2.0], "nothing changes nothing");
        // a·b = 2, |a|² = 4, |b|² = 2: 3/4 a + 1/2 b.
        assert_eq!(adasum(&[2.0, 0.0], &[1.0, 1.0]), [2.0, 0.5]);
        assert_eq!(factors(&[1.0, 3.0, 0.5, 1.0, 1.0, 1.5]), (0.75, 0.5), "products of pieces add up");
    }

    #[test]
    fn pieces_cover_everything_once() {
        for (length, ranks) in [(0, 4), (1, 8), (7, 2), (100, 8), (5, 1)] {
            let mut owners = vec![0; length];
            (0..ranks).for_each(|rank| piece(length, rank, ranks).for_each(|at| owners[at] += 1));
            assert_eq!(owners, vec![1; length], "{length} elements, {ranks} ranks");
        }
        assert_eq!([0, 1, 2, 3].map(|rank| piece(10, rank, 4)), [0..3, 5..8, 3..5, 8..10]);
    }
}
