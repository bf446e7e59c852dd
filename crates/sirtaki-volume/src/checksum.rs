//! A fast checksum of bytes, to notice damage: XXH64, so that other tools can compute it too.
//!
//! It is no protection against forgery.

const PRIMES: [u64; 5] =
    [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63, 0x27d4_eb2f_1656_67c5];

/// The checksum of these bytes.
pub fn of(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut hash = if blocks.is_empty() { PRIMES[4] } else { over_blocks(blocks) };
    hash = hash.wrapping_add(bytes.len() as u64);
    let (eights, rest) = rest.as_chunks::<8>();
    for eight in eights {
        hash ^= round(0, u64::from_le_bytes(*eight));
        hash = hash.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    }
    let (fours, rest) = rest.as_chunks::<4>();
    for four in fours {
        hash ^= u64::from(u32::from_le_bytes(*four)).wrapping_mul(PRIMES[0]);
        hash = hash.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIMES[4]);
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 32)
}

/// Four sums that do not wait for each other.
fn over_blocks(blocks: &[[u8; 32]]) -> u64 {
    let mut lanes = [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, 0_u64.wrapping_sub(PRIMES[0])];
    for block in blocks {
        for (lane, eight) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
            *lane = round(*lane, u64::from_le_bytes(*eight));
        }
    }
    let [a, b, c, d] = lanes;
    let sum =
        a.rotate_left(1).wrapping_add(b.rotate_left(7)).wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
    lanes.iter().fold(sum, |hash, lane| (hash ^ round(0, *lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]))
}

fn round(sum: u64, value: u64) -> u64 {
    sum.wrapping_add(value.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn as_other_tools_compute_it() {
        assert_eq!(of(b""), 0xef46_db37_51d8_e999);
        assert_eq!(of(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(of(b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(of(b"Nobody inspects the spammish repetition"), 0xfbce_a83c_8a37_8bf1);
    }
}
