//! Symmetric positive definite systems of up to a few hundred unknowns.
//!
//! Only the lower triangle is stored, row by row in a square, and everything is built from one operation: the inner
//! products of four rows with a fifth. Rows are contiguous, four of them stay in the first-level cache while the
//! fifth streams past, and the fixed order of additions lets the compiler use vector registers without changing a bit
//! of the result. Working row by row also makes the factor extensible: new points only add rows.

/// The lower factor of a Cholesky decomposition, which rows can be added to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cholesky {
    /// Row by row, `stride` apart; what lies above the diagonal is never read.
    rows: Vec<f64>,
    stride: usize,
    size: usize,
}

const LANES: usize = 4;

/// Inner products of four rows with a fifth, all of its length.
#[inline]
fn dot4(rows: [&[f64]; 4], with: &[f64]) -> [f64; 4] {
    let (chunks, rest) = with.as_chunks::<LANES>();
    let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = rows.map(|row| row[..with.len()].as_chunks::<LANES>());
    let mut sums = [[0.0; LANES]; 4];
    for ((((with, a), b), c), d) in chunks.iter().zip(a).zip(b).zip(c).zip(d) {
        for (sum, row) in sums.iter_mut().zip([a, b, c, d]) {
            add_products(sum, row, with);
        }
    }
    let rests = [a_rest, b_rest, c_rest, d_rest];
    std::array::from_fn(|k| total(sums[k], rests[k], rest))
}

/// The inner product of two rows, as long as the second; the same bits as [`dot4`] gives.
#[inline]
pub(crate) fn dot(row: &[f64], with: &[f64]) -> f64 {
    let (chunks, rest) = with.as_chunks::<LANES>();
    let (row, row_rest) = row[..with.len()].as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (row, with) in row.iter().zip(chunks) {
        add_products(&mut sums, row, with);
    }
    total(sums, row_rest, rest)
}

#[inline]
fn add_products(sums: &mut [f64; LANES], a: &[f64; LANES], b: &[f64; LANES]) {
    for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
        *sum += a * b;
    }
}

/// The sum of all lanes and of what did not fill them.
#[inline]
fn total(sums: [f64; LANES], a: &[f64], b: &[f64]) -> f64 {
    let lanes = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    a.iter().zip(b).fold(lanes, |sum, (a, b)| sum + a * b)
}

impl Cholesky {
    /// The factor of a matrix whose lower triangle is given row by row in a square; `None` when it is not positive
    /// definite as far as this precision can tell.
    pub(crate) fn new(matrix: Vec<f64>, size: usize) -> Option<Self> {
        debug_assert_eq!(matrix.len(), size * size);
        let mut factor = Self { rows: matrix, stride: size, size: 0 };
        factor.decompose(size).then_some(factor)
    }

    /// Adds a row to the matrix, given up to and including the diagonal, unless it would not be positive definite then.
    pub(crate) fn extend(&mut self, row: &[f64]) -> bool {
        let i = self.size;
        if i == self.stride {
            let stride = i + i / 4 + 1;
            let mut rows = vec![0.0; stride * stride];
            for k in 0..i {
                rows[k * stride..=k * stride + k].copy_from_slice(self.row(k));
            }
            (self.rows, self.stride) = (rows, stride);
        }
        self.rows[i * self.stride..=i * self.stride + i].copy_from_slice(row);
        self.decompose(i + 1)
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.rows[i * self.stride..=i * self.stride + i]
    }

    /// Decomposes the rows from `self.size` on, four at a time.
    fn decompose(&mut self, total: usize) -> bool {
        let stride = self.stride;
        while self.size < total {
            let first = self.size;
            let count = (total - first).min(4);
            let (done, rest) = self.rows.split_at_mut(first * stride);
            if count == 4 {
                for j in 0..first {
                    let pivot = &done[j * stride..=j * stride + j];
                    let [a, b, c, d] = std::array::from_fn(|k| &rest[k * stride..k * stride + j]);
                    let sums = dot4([a, b, c, d], &pivot[..j]);
                    for (k, sum) in sums.into_iter().enumerate() {
                        let element = &mut rest[k * stride + j];
                        *element = (*element - sum) / pivot[j];
                    }
                }
            } else {
                for k in 0..count {
                    let row = &mut rest[k * stride..k * stride + first];
                    for j in 0..first {
                        let pivot = &done[j * stride..=j * stride + j];
                        row[j] = (row[j] - dot(&row[..j], &pivot[..j])) / pivot[j];
                    }
                }
            }
            for k in 0..count {
                if !finish_row(rest, stride, first, k) {
                    return false;
                }
            }
            self.size += count;
        }
        true
    }

    /// Solves `L v = b` in place.
    pub(crate) fn forward(&self, b: &mut [f64]) {
        for i in 0..self.size {
            let row = self.row(i);
            b[i] = (b[i] - dot(&row[..i], &b[..i])) / row[i];
        }
    }

    /// Solves `L v = b` in place for four right-hand sides.
    pub(crate) fn forward4(&self, b: &mut [Vec<f64>; 4]) {
        for i in 0..self.size {
            let row = self.row(i);
            let sums = dot4(std::array::from_fn(|k| &b[k][..i]), &row[..i]);
            for (v, sum) in b.iter_mut().zip(sums) {
                v[i] = (v[i] - sum) / row[i];
            }
        }
    }

    /// Solves `Lᵀ v = b` in place.
    pub(crate) fn backward(&self, b: &mut [f64]) {
        for i in (0..self.size).rev() {
            let row = self.row(i);
            b[i] /= row[i];
            let value = b[i];
            for (b, l) in b[..i].iter_mut().zip(row) {
                *b -= l * value;
            }
        }
    }

    /// The logarithm of the determinant of the matrix.
    pub(crate) fn log_determinant(&self) -> f64 {
        2.0 * (0..self.size).map(|i| self.row(i)[i].ln()).sum::<f64>()
    }

    /// The lower triangle of the inverse of the matrix, row by row in a square.
    pub(crate) fn inverse(&self) -> Vec<f64> {
        let n = self.size;
        // Row c is column c of the inverse of the factor, which is zero before c.
        let padded = n.next_multiple_of(4);
        let mut columns = vec![0.0; padded * n];
        for first in (0..n).step_by(4) {
            for k in 0..4.min(n - first) {
                columns[(first + k) * n + first + k] = 1.0;
            }
            let mut block: Vec<&mut [f64]> = columns[first * n..(first + 4) * n].chunks_exact_mut(n).collect();
            for i in first..n {
                let row = self.row(i);
                let sums = dot4(std::array::from_fn(|k| &block[k][first..i]), &row[first..i]);
                for (column, sum) in block.iter_mut().zip(sums) {
                    column[i] = (column[i] - sum) / row[i];
                }
            }
        }
        let mut inverse = vec![0.0; n * n];
        for j in 0..n {
            // Four rows i of the result at a time; both columns are zero before the later of them.
            for first in (j / 4 * 4..n).step_by(4) {
                let rows = std::array::from_fn(|k| &columns[(first + k) * n + first..(first + k + 1) * n]);
                let sums = dot4(rows, &columns[j * n + first..(j + 1) * n]);
                for (k, sum) in sums.into_iter().enumerate().take(n - first) {
                    inverse[(first + k) * n + j] = sum;
                }
            }
        }
        inverse
    }
}

/// The last elements of a row: those whose pivots are in the same block, and the diagonal.
fn finish_row(block: &mut [f64], stride: usize, first: usize, k: usize) -> bool {
    let (above, row) = block.split_at_mut(k * stride);
    for j in first..first + k {
        let pivot = &above[(j - first) * stride..=(j - first) * stride + j];
        row[j] = (row[j] - dot(&row[..j], &pivot[..j])) / pivot[j];
    }
    let i = first + k;
    let rest = row[i] - dot(&row[..i], &row[..i]);
    // What is left of a diagonal element after cancellation must be more than its rounding errors.
    let limit = row[i].abs() * 1e-15;
    row[i] = rest.max(0.0).sqrt();
    rest > limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A positive definite matrix, whole.
    fn matrix(size: usize) -> Vec<f64> {
        let mut random = Random::new(7, &[size as u64]);
        let root: Vec<f64> = (0..size * size).map(|_| random.normal()).collect();
        let element = |i: usize, j: usize| {
            dot(&root[i * size..(i + 1) * size], &root[j * size..(j + 1) * size]) + if i == j { 1.0 } else { 0.0 }
        };
        (0..size * size).map(|at| element(at / size, at % size)).collect()
    }

    fn multiply(matrix: &[f64], vector: &[f64]) -> Vec<f64> {
        matrix.chunks_exact(vector.len()).map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
    }

    fn near(a: &[f64], b: &[f64]) {
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} instead of {b}");
        }
    }

    #[test]
    fn solutions_solve() {
        for size in [1, 2, 3, 4, 5, 8, 13, 31, 50] {
            let matrix = matrix(size);
            let factor = Cholesky::new(matrix.clone(), size).unwrap();
            let wanted: Vec<f64> = (0..size).map(|i| (i as f64).sin()).collect();
            let mut solution = multiply(&matrix, &wanted);
            let mut four = std::array::from_fn(|_| solution.clone());
            factor.forward(&mut solution);
            factor.forward4(&mut four);
            assert!(four.iter().all(|column| *column == solution), "four at a time give the same bits");
            factor.backward(&mut solution);
            near(&solution, &wanted);
        }
    }

    #[test]
    fn the_inverse_is_one_and_the_determinant_is_that_of_the_factor() {
        for size in [1, 4, 6, 23] {
            let matrix = matrix(size);
            let factor = Cholesky::new(matrix.clone(), size).unwrap();
            let lower = factor.inverse();
            for column in 0..size {
                let inverse: Vec<f64> = (0..size).map(|i| lower[i.max(column) * size + i.min(column)]).collect();
                let unit: Vec<f64> = (0..size).map(|i| f64::from(u8::from(i == column))).collect();
                near(&multiply(&matrix, &inverse), &unit);
            }
        }
        let factor = Cholesky::new(vec![4.0, 0.0, 2.0, 5.0], 2).unwrap();
        near(&[factor.log_determinant()], &[16f64.ln()]);
    }

    #[test]
    fn rows_can_be_added() {
        let (size, first) = (23, 10);
        let matrix = matrix(size);
        let whole = Cholesky::new(matrix.clone(), size).unwrap();
        let corner = (0..first * first).map(|at| matrix[at / first * size + at % first]).collect();
        let mut grown = Cholesky::new(corner, first).unwrap();
        for i in first..size {
            assert!(grown.extend(&matrix[i * size..=i * size + i]));
        }
        // The same row once more adds nothing.
        let mut again = matrix[(size - 1) * size..].to_vec();
        again.push(again[size - 1]);
        assert!(!grown.extend(&again));
        for i in 0..size {
            near(grown.row(i), whole.row(i));
        }
    }

    #[test]
    fn what_is_not_positive_definite_is_refused() {
        assert!(Cholesky::new(vec![1.0, 0.0, 1.0, 1.0], 2).is_none());
        assert!(Cholesky::new(vec![-1.0], 1).is_none());
        assert!(Cholesky::new(vec![f64::NAN], 1).is_none());
    }
}
