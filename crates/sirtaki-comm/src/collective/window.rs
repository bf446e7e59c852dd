//! Working through long buffers with little memory: windows and their even division among ranks.

use std::ops::Range;

/// Most bytes of scratch memory for one call on one rank.
pub(super) const SCRATCH: usize = 8 << 20;

/// `0..count` in pieces of at most `length`.
pub(super) fn windows(count: usize, length: usize) -> impl Iterator<Item = Range<usize>> {
    let length = length.max(1);
    (0..count).step_by(length).map(move |start| start..count.min(start.saturating_add(length)))
}

/// `count` elements divided among `size` ranks as evenly as possible.
pub(super) fn even(count: usize, size: usize) -> Vec<usize> {
    (0..size).map(|rank| count / size + usize::from(rank < count % size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_everything_once() {
        assert_eq!(windows(0, 4).count(), 0);
        assert_eq!(windows(9, 4).collect::<Vec<_>>(), [0..4, 4..8, 8..9]);
        assert_eq!(windows(3, 0).count(), 3);
        assert!(windows(3, usize::MAX).eq(std::iter::once(0..3)));
    }

    #[test]
    fn even_cuts_differ_by_one_at_most() {
        assert_eq!(even(7, 3), [3, 2, 2]);
        assert_eq!(even(2, 3), [1, 1, 0]);
    }
}
