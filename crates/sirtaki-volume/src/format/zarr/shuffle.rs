//! What Blosc does before it compresses: bytes or bits of the same weight become neighbours.

/// First bytes of all elements, then second ones, and so on. What is left over behind the last element stays.
pub(crate) fn shuffle(bytes: &[u8], width: usize) -> Vec<u8> {
    let count = bytes.len() / width;
    let mut out = Vec::with_capacity(bytes.len());
    for byte in 0..width {
        out.extend((0..count).map(|element| bytes[element * width + byte]));
    }
    out.extend_from_slice(&bytes[count * width..]);
    out
}

/// Undoes [`shuffle`].
pub(crate) fn unshuffle(bytes: &[u8], width: usize, out: &mut [u8]) {
    let count = bytes.len() / width;
    for byte in 0..width {
        let row = &bytes[byte * count..(byte + 1) * count];
        for (element, value) in row.iter().enumerate() {
            out[element * width + byte] = *value;
        }
    }
    out[count * width..].copy_from_slice(&bytes[count * width..]);
}

/// The lowest bits of all elements, then the second ones, and so on. Blosc does so for multiples of eight elements
/// and else leaves all as it is.
pub(crate) fn bit_shuffle(bytes: &[u8], width: usize) -> Vec<u8> {
    let count = bytes.len() / width;
    let mut out = bytes.to_vec();
    if count.is_multiple_of(8) {
        let row = count / 8;
        for (group, byte) in places(row, width) {
            let eight = std::array::from_fn(|element| bytes[(group * 8 + element) * width + byte]);
            for (bit, value) in turn(eight).into_iter().enumerate() {
                out[(byte * 8 + bit) * row + group] = value;
            }
        }
    }
    out
}

/// Undoes [`bit_shuffle`].
pub(crate) fn bit_unshuffle(bytes: &[u8], width: usize, out: &mut [u8]) {
    let count = bytes.len() / width;
    out.copy_from_slice(bytes);
    if count.is_multiple_of(8) {
        let row = count / 8;
        for (group, byte) in places(row, width) {
            let eight = std::array::from_fn(|bit| bytes[(byte * 8 + bit) * row + group]);
            for (element, value) in turn(eight).into_iter().enumerate() {
                out[(group * 8 + element) * width + byte] = value;
            }
        }
    }
}

/// Every byte of every group of eight elements.
fn places(groups: usize, width: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..groups).flat_map(move |group| (0..width).map(move |byte| (group, byte)))
}

/// Rows become columns in a square of eight times eight bits.
fn turn(rows: [u8; 8]) -> [u8; 8] {
    let mut square = u64::from_le_bytes(rows);
    // Squares of one, two and four bits change places across the diagonal.
    for (mask, distance) in [(0x00AA_00AA_00AA_00AA_u64, 7), (0x0000_CCCC_0000_CCCC, 14), (0x0000_0000_F0F0_F0F0, 28)] {
        let change = (square ^ (square >> distance)) & mask;
        square ^= change ^ (change << distance);
    }
    square.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bits_stand_where_the_format_says() {
        // Bit n of element n is set, so that rows and columns are the same; one more bit shows which is which.
        let diagonal = [1, 2, 4, 8, 16, 32, 64, 128];
        assert_eq!(bit_shuffle(&diagonal, 1), diagonal);
        assert_eq!(bit_shuffle(&[0, 0, 1, 0, 0, 0, 0, 0], 1), [4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(shuffle(&[1, 2, 3, 4, 5], 2), [1, 3, 2, 4, 5]);
    }

    proptest! {
        #[test]
        fn everything_returns(bytes in prop::collection::vec(any::<u8>(), 0..300), width in 1_usize..9) {
            let mut out = vec![0; bytes.len()];
            unshuffle(&shuffle(&bytes, width), width, &mut out);
            prop_assert_eq!(&out, &bytes);
            bit_unshuffle(&bit_shuffle(&bytes, width), width, &mut out);
            prop_assert_eq!(&out, &bytes);
        }
    }
}
