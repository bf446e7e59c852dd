//! Where the bytes of several tensors lie when they pass through memory of a fixed size: pure arithmetic, so that all
//! ranks come to the same answer without asking each other.

/// In staging memory, tensors start at multiples of this and are cut at multiples of it, so that as much as possible
/// can be read in full rows.
const ROW: usize = 16;

/// Bytes of one item and where they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The position of the item among all items.
    pub(super) item: usize,
    /// Its first byte here.
    pub(super) from: usize,
    /// The byte after its last.
    pub(super) to: usize,
    /// Where the first byte lies.
    pub(super) offset: usize,
}

/// Cuts items of these sizes in bytes into rounds, each of at most `room` bytes, a multiple of [`ROW`]. Items without
/// bytes are in none.
pub(super) fn rounds(items: impl IntoIterator<Item = usize>, room: usize) -> Vec<Vec<Piece>> {
    assert!(room > 0 && room.is_multiple_of(ROW), "{room} bytes are no room for rows");
    let mut rounds: Vec<Vec<Piece>> = Vec::new();
    let mut used = room;
    for (item, bytes) in items.into_iter().enumerate() {
        let mut from = 0;
        while from < bytes {
            if used == room {
                rounds.push(Vec::new());
                used = 0;
            }
            let to = bytes.min(from + (room - used));
            if let Some(round) = rounds.last_mut() {
                round.push(Piece { item, from, to, offset: used });
            }
            used = room.min((used + (to - from)).next_multiple_of(ROW));
            from = to;
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_items_share_a_round_and_large_ones_take_several() {
        let piece = |item, from, to, offset| Piece { item, from, to, offset };
        assert_eq!(rounds([], 32), Vec::<Vec<Piece>>::new());
        assert_eq!(rounds([0, 0], 32), Vec::<Vec<Piece>>::new());
        assert_eq!(rounds([4, 0, 5], 32), [[piece(0, 0, 4, 0), piece(2, 0, 5, 16)]]);
        assert_eq!(rounds([4, 40], 32), [vec![piece(0, 0, 4, 0), piece(1, 0, 16, 16)], vec![piece(1, 16, 40, 0)]]);
        assert_eq!(rounds([32, 1], 32), [[piece(0, 0, 32, 0)], [piece(1, 0, 1, 0)]]);
    }

    proptest! {
        #[test]
        fn everything_is_there_once_and_nothing_overlaps(
            items in proptest::collection::vec(0usize..300, 0..12),
            rows in 1usize..10,
        ) {
            let mut next = vec![0; items.len()];
            for round in rounds(items.iter().copied(), rows * ROW) {
                let mut end = 0;
                prop_assert!(!round.is_empty());
                for piece in round {
                    prop_assert!(piece.offset >= end && piece.offset.is_multiple_of(ROW) && piece.from < piece.to);
                    prop_assert_eq!(piece.from, next[piece.item]);
                    prop_assert!(piece.from.is_multiple_of(ROW));
                    next[piece.item] = piece.to;
                    end = piece.offset + (piece.to - piece.from);
                    prop_assert!(end <= rows * ROW);
                }
            }
            prop_assert_eq!(next, items);
        }
    }
}
