//! Cutting buffers: into equal shares on element boundaries, and into the two parts that one exchange touches.

use std::ops::Range;

/// The bytes of share `index` when `length` bytes of whole elements are cut into `shares` that differ by at most one
/// element.
pub(super) fn share(length: usize, element: usize, shares: usize, index: usize) -> Range<usize> {
    let count = length / element;
    let begin = |index: usize| (count / shares * index + (count % shares).min(index)) * element;
    begin(index)..begin(index + 1)
}

/// The bytes of `rank` in a buffer with `counts` elements per rank.
pub(super) fn part(counts: &[usize], element: usize, rank: usize) -> Range<usize> {
    let begin: usize = counts[..rank].iter().sum();
    begin * element..(begin + counts[rank]) * element
}

/// One range to read and another, which must not overlap it, to write.
pub(super) fn pair(data: &mut [u8], read: Range<usize>, write: Range<usize>) -> (&[u8], &mut [u8]) {
    if read.is_empty() {
        (&[], &mut data[write])
    } else if write.is_empty() {
        (&data[read], &mut [])
    } else if read.end <= write.start {
        let (low, high) = data.split_at_mut(write.start);
        (&low[read], &mut high[..write.end - write.start])
    } else {
        let (low, high) = data.split_at_mut(read.start);
        (&high[..read.end - read.start], &mut low[write])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_and_are_even() {
        for (count, shares) in [(0, 3), (1, 3), (7, 3), (9, 3), (5, 8)] {
            let mut at = 0;
            for index in 0..shares {
                let range = share(count * 4, 4, shares, index);
                assert_eq!(range.start, at);
                assert!(range.len() / 4 == count / shares || range.len() / 4 == count / shares + 1);
                at = range.end;
            }
            assert_eq!(at, count * 4);
        }
    }

    #[test]
    fn pairs_are_the_ranges_asked_for() {
        let mut data = [0, 1, 2, 3, 4, 5];
        assert_eq!(pair(&mut data, 0..2, 3..5), (&[0, 1][..], &mut [3, 4][..]));
        assert_eq!(pair(&mut data, 4..6, 1..4), (&[4, 5][..], &mut [1, 2, 3][..]));
        assert_eq!(pair(&mut data, 2..2, 0..6).1.len(), 6);
        assert_eq!(pair(&mut data, 0..6, 3..3).0.len(), 6);
    }
}
