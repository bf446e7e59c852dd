//! Minimum and maximum of floats as minimum and maximum of integers.
//!
//! MPI does not specify what `MPI_MIN` does with NaN, and with some libraries the result differs from rank to rank.
//! Here the bits of every float are first mapped to an integer of the same width with the same order, and NaN to the
//! integer that wins; integers have one minimum, so all ranks get the same bits, and a NaN anywhere gives NaN.

use bytemuck::cast_slice_mut;

use super::raw::{MpiOp, Type};
use crate::DType;

macro_rules! coder {
    ($name:ident, $integer:ty, $infinity:literal) => {
        mod $name {
            /// Negative floats are ordered opposite to the rest of their bits, so those are inverted. Its own inverse.
            pub(super) fn flip(word: $integer) -> $integer {
                word ^ ((word >> (<$integer>::BITS - 1)) & <$integer>::MAX)
            }

            pub(super) fn encode(words: &mut [$integer], winner: $integer) {
                for word in words {
                    let is_nan = (*word & <$integer>::MAX) > $infinity;
                    *word = if is_nan { winner } else { flip(*word) };
                }
            }

            /// Both winners are turned back into NaN.
            pub(super) fn decode(words: &mut [$integer]) {
                words.iter_mut().for_each(|word| *word = flip(*word));
            }
        }
    };
}

coder!(half, i16, 0x7c00);
coder!(brain, i16, 0x7f80);
coder!(single, i32, 0x7f80_0000);
coder!(double, i64, 0x7ff0_0000_0000_0000);

/// The integer type that stands for this float type; `None` for types that are not floats.
pub(super) fn stand_in(dtype: DType) -> Option<Type> {
    match dtype {
        DType::F16 | DType::BF16 => Some(Type::I16),
        DType::F32 => Some(Type::I32),
        DType::F64 => Some(Type::I64),
        _ => None,
    }
}

/// Floats to integers, before `op`, which is `Min` or `Max`.
pub(super) fn encode(dtype: DType, data: &mut [u8], op: MpiOp) {
    let low = op == MpiOp::Min;
    match dtype {
        DType::F16 => half::encode(cast_slice_mut(data), if low { i16::MIN } else { i16::MAX }),
        DType::BF16 => brain::encode(cast_slice_mut(data), if low { i16::MIN } else { i16::MAX }),
        DType::F32 => single::encode(cast_slice_mut(data), if low { i32::MIN } else { i32::MAX }),
        DType::F64 => double::encode(cast_slice_mut(data), if low { i64::MIN } else { i64::MAX }),
        _ => {}
    }
}

/// Back to floats.
pub(super) fn decode(dtype: DType, data: &mut [u8]) {
    match dtype {
        DType::F16 => half::decode(cast_slice_mut(data)),
        DType::BF16 => brain::decode(cast_slice_mut(data)),
        DType::F32 => single::decode(cast_slice_mut(data)),
        DType::F64 => double::decode(cast_slice_mut(data)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::{cast_slice, cast_slice_mut};

    use super::{MpiOp, decode, encode};
    use crate::DType;

    #[test]
    fn order_and_values_survive() {
        let sorted = [f32::NEG_INFINITY, -3.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, f32::MAX, f32::INFINITY];
        let mut data = sorted;
        encode(DType::F32, cast_slice_mut(&mut data), MpiOp::Min);
        assert!(cast_slice::<f32, i32>(&data).is_sorted());
        decode(DType::F32, cast_slice_mut(&mut data));
        assert_eq!(data.map(f32::to_bits), sorted.map(f32::to_bits));
    }

    #[test]
    fn nan_wins_both_ways_in_every_width() {
        for op in [MpiOp::Min, MpiOp::Max] {
            let win = |words: &[i64]| if op == MpiOp::Min { words.iter().min() } else { words.iter().max() }.copied();
            for nan in [f64::NAN, -f64::NAN] {
                let mut data = [f64::NEG_INFINITY, nan, f64::INFINITY];
                encode(DType::F64, cast_slice_mut(&mut data), op);
                let mut winner = [win(cast_slice(&data)).unwrap()];
                decode(DType::F64, cast_slice_mut(&mut winner));
                assert!(f64::from_bits(winner[0] as u64).is_nan());
            }
            for (dtype, bits) in [(DType::F16, 0xfe00u16), (DType::BF16, 0x7fc1)] {
                let mut data = [bits];
                encode(dtype, cast_slice_mut(&mut data), op);
                assert_eq!(data[0] as i16, if op == MpiOp::Min { i16::MIN } else { i16::MAX });
                decode(dtype, cast_slice_mut(&mut data));
                assert!(half::f16::from_bits(data[0]).is_nan());
            }
        }
    }
}
