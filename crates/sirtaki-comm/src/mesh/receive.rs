//! What happens to arriving bytes: they fill a buffer, or they are folded into one while later bytes still travel.

use crate::{Plan, kernel};

use super::scratch::Scratch;

/// Where a payload goes.
#[derive(Debug)]
pub enum Receive<'a> {
    /// Into this buffer, which it fills exactly.
    Fill(&'a mut [u8]),
    /// Combined with this buffer, element by element: `mine = mine op theirs`. The factors of the plan are not applied.
    Fold(&'a Plan, &'a mut [u8]),
}

impl Receive<'_> {
    /// Bytes expected.
    pub fn len(&self) -> usize {
        match self {
            Receive::Fill(into) | Receive::Fold(_, into) => into.len(),
        }
    }

    /// Whether nothing but a header is expected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Misaligned bytes go through an aligned buffer of this size, which stays in the nearest cache.
const STAGE: usize = 16 << 10;

/// One element that came in two pieces.
#[derive(Debug, Default)]
#[repr(align(8))]
struct Broken([u8; 8]);

/// A payload on its way in.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    receive: Receive<'a>,
    at: usize,
    broken: Broken,
    held: usize,
}

impl<'a> Arrival<'a> {
    pub(super) fn new(receive: Receive<'a>) -> Self {
        Self { receive, at: 0, broken: Broken::default(), held: 0 }
    }

    /// Bytes expected in all.
    pub(super) fn length(&self) -> usize {
        self.receive.len()
    }

    /// Bytes still to come.
    pub(super) fn left(&self) -> usize {
        self.receive.len() - self.at - self.held
    }

    /// Where the next bytes can be written directly, if nothing has to be computed with them.
    pub(super) fn direct(&mut self) -> Option<&mut [u8]> {
        match &mut self.receive {
            Receive::Fill(into) => Some(&mut into[self.at..]),
            Receive::Fold(..) => None,
        }
    }

    /// Notes bytes written to [`Arrival::direct`].
    pub(super) fn advance(&mut self, count: usize) {
        self.at += count;
    }

    /// The last bytes written directly, at most `limit`; nothing when folding.
    pub(super) fn recent(&self, limit: usize) -> &[u8] {
        match &self.receive {
            Receive::Fill(into) => &into[self.at.saturating_sub(limit)..self.at],
            Receive::Fold(..) => &[],
        }
    }

    /// Takes a piece, which must not be longer than [`Arrival::left`].
    pub(super) fn take(&mut self, piece: &[u8], stage: &mut Scratch) {
        match &mut self.receive {
            Receive::Fill(into) => {
                into[self.at..self.at + piece.len()].copy_from_slice(piece);
                self.at += piece.len();
            }
            Receive::Fold(..) => self.fold(piece, stage),
        }
    }

    /// Folds whole elements and keeps a broken one at the end for the next piece.
    fn fold(&mut self, mut piece: &[u8], stage: &mut Scratch) {
        let Receive::Fold(plan, into) = &mut self.receive else { return };
        let size = plan.dtype.size();
        if self.held > 0 {
            let (missing, rest) = piece.split_at(piece.len().min(size - self.held));
            self.broken.0[self.held..self.held + missing.len()].copy_from_slice(missing);
            self.held += missing.len();
            piece = rest;
            if self.held < size {
                return;
            }
            kernel::fold(plan, &mut into[self.at..self.at + size], &self.broken.0[..size]);
            self.at += size;
            self.held = 0;
        }
        let (whole, rest) = piece.split_at(piece.len() - piece.len() % size);
        let target = &mut into[self.at..self.at + whole.len()];
        if (whole.as_ptr() as usize).is_multiple_of(size) {
            kernel::fold(plan, target, whole);
        } else {
            for (target, whole) in target.chunks_mut(STAGE).zip(whole.chunks(STAGE)) {
                let aligned = &mut stage.bytes(STAGE)[..whole.len()];
                aligned.copy_from_slice(whole);
                kernel::fold(plan, target, aligned);
            }
        }
        self.at += whole.len();
        self.broken.0[..rest.len()].copy_from_slice(rest);
        self.held = rest.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Reduction};

    #[test]
    fn folding_does_not_depend_on_how_the_bytes_are_cut() {
        let theirs: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&theirs);
        let plan = Plan::new(DType::F32, Reduction::SUM, 2);
        for cut in [1, 2, 3, 4, 5, 7, 64, 1001, 3999] {
            let mut mine = vec![1.0_f32; 1000];
            let mut arrival = Arrival::new(Receive::Fold(&plan, bytemuck::cast_slice_mut(&mut mine)));
            let mut stage = Scratch::default();
            for piece in bytes.chunks(cut) {
                assert!(arrival.left() >= piece.len());
                arrival.take(piece, &mut stage);
            }
            assert_eq!(arrival.left(), 0);
            assert!(mine.iter().enumerate().all(|(i, &x)| x == i as f32 + 1.0), "cut into {cut}");
        }
    }
}
