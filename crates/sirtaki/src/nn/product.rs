//! Matrix products on one core.

use gemm::{Parallelism, gemm};

/// Numbers row by row, or column by column.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    /// Distance from one row to the next, and from one column to the next.
    steps: [isize; 2],
}

impl<'a> Matrix<'a> {
    /// Rows of that many numbers each.
    pub(super) fn new(values: &'a [f32], columns: usize) -> Self {
        let rows = values.len() / columns;
        assert_eq!(rows * columns, values.len(), "the last row is complete");
        Self { values, rows, columns, steps: [columns as isize, 1] }
    }

    /// The same numbers with rows as columns.
    pub(super) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, steps: [self.steps[1], self.steps[0]], ..self }
    }
}

/// Two matrices to be multiplied.
pub(super) struct Product<'a> {
    pub(super) left: Matrix<'a>,
    pub(super) right: Matrix<'a>,
}

impl Product<'_> {
    /// Replaces `target`, rows of that many numbers each.
    pub(super) fn write_to(self, target: &mut [f32], columns: usize) {
        self.multiply(target, columns, false);
    }

    /// Adds to `target`, rows of that many numbers each.
    pub(super) fn add_to(self, target: &mut [f32], columns: usize) {
        self.multiply(target, columns, true);
    }

    fn multiply(self, target: &mut [f32], columns: usize, add: bool) {
        let Self { left, right } = self;
        assert_eq!(left.columns, right.rows, "matrices fit each other");
        assert_eq!((left.rows * right.columns, right.columns), (target.len(), columns), "the product fits its target");
        // SAFETY: sizes and steps describe exactly the slices, as asserted above and when the matrices were made, and
        // nothing else refers to the target.
        unsafe {
            gemm(
                left.rows,
                right.columns,
                left.columns,
                target.as_mut_ptr(),
                1,
                columns as isize,
                add,
                left.values.as_ptr(),
                left.steps[1],
                left.steps[0],
                right.values.as_ptr(),
                right.steps[1],
                right.steps[0],
                1.0,
                1.0,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }
}
