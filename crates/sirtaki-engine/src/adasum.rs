//! The adaptive sum of Maleki et al., "Scaling Distributed Training with Adaptive Summation" (2020).
//!
//! Two gradients that point the same way are averaged, orthogonal ones are added, with everything in between:
//!
//! `adasum(a, b) = (1 − a·b / 2‖a‖²) a + (1 − a·b / 2‖b‖²) b`
//!
//! More than two are combined pairwise along a binary tree over the ranks, neighbours first, so their number has to be
//! a power of two. Every rank gathers all tensors and computes the same tree: `n` times the memory of one tensor, but
//! the same bits everywhere and one collective. Products are summed in `f64`.

use sirtaki_comm::{CommError, Communicator, DType};

use crate::memory::Tensor;

/// Replaces `tensor`, of `f32` or `f64`, by the adaptive sum over all ranks.
pub(crate) fn all_reduce(comm: &mut dyn Communicator, tensor: &mut Tensor) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let count = tensor.len();
    let bytes = tensor.bytes().len();
    let mut all = Tensor::zeros(tensor.dtype(), count * size);
    all.bytes_mut()[rank * bytes..(rank + 1) * bytes].copy_from_slice(tensor.bytes());
    comm.all_gather(all.slice_mut()?, &vec![count; size])?;
    match tensor.dtype() {
        DType::F64 => tree::<f64>(bytemuck::cast_slice_mut(all.bytes_mut()), size),
        _ => tree::<f32>(bytemuck::cast_slice_mut(all.bytes_mut()), size),
    }
    tensor.bytes_mut().copy_from_slice(&all.bytes()[..bytes]);
    Ok(())
}

/// A floating-point number.
trait Real: Copy {
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

/// Combines `parts` vectors that lie one after another; the result is in the place of the first.
fn tree<R: Real>(all: &mut [R], parts: usize) {
    let length = all.len() / parts.max(1);
    let mut distance = 1;
    while distance < parts {
        for left in (0..parts).step_by(2 * distance) {
            let (before, after) = all.split_at_mut((left + distance) * length);
            pair(&mut before[left * length..left * length + length], &after[..length]);
        }
        distance *= 2;
    }
}

/// `a = adasum(a, b)`.
fn pair<R: Real>(a: &mut [R], b: &[R]) {
    let (mut dot, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x.wide(), y.wide());
        dot += x * y;
        of_a += x * x;
        of_b += y * y;
    }
    // A vector of zeros has no direction and leaves the other as it is.
    let factor = |norm: f64| if norm == 0.0 { 1.0 } else { 1.0 - dot / (2.0 * norm) };
    let (for_a, for_b) = (factor(of_a), factor(of_b));
    for (x, y) in a.iter_mut().zip(b) {
        *x = R::narrow(for_a * x.wide() + for_b * y.wide());
    }
}

#[cfg(test)]
mod tests {
    use super::tree;

    fn adasum(vectors: &[&[f64]]) -> Vec<f64> {
        let mut all = vectors.concat();
        tree(&mut all, vectors.len());
        all[..vectors[0].len()].to_vec()
    }

    #[test]
    fn the_definition_holds_at_its_ends() {
        assert_eq!(adasum(&[&[3.0, 4.0], &[3.0, 4.0]]), [3.0, 4.0], "parallel vectors are averaged");
        assert_eq!(adasum(&[&[3.0, 0.0], &[0.0, 4.0]]), [3.0, 4.0], "orthogonal ones are added");
        assert_eq!(adasum(&[&[0.0, 0.0], &[1.0, 2.0]]), [1.0, 2.0], "nothing changes nothing");
        // a·b = 2, |a|² = 4, |b|² = 2: 3/4 a + 1/2 b.
        assert_eq!(adasum(&[&[2.0, 0.0], &[1.0, 1.0]]), [2.0, 0.5]);
    }

    #[test]
    fn neighbours_are_combined_first() {
        let vectors: [&[f64]; 4] = [&[1.0, 0.5], &[0.25, 2.0], &[-1.0, 1.0], &[0.5, 0.5]];
        let left = adasum(&vectors[..2]);
        let right = adasum(&vectors[2..]);
        assert_eq!(adasum(&vectors), adasum(&[&left, &right]));
    }
}
