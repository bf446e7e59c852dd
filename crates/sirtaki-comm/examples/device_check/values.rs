//! Numbers to reduce, and when two results are the same.

use half::{bf16, f16};
use sirtaki_comm::DType;

/// Numbers that look random and are the same everywhere.
pub(crate) struct Values(u64);

impl Values {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Elements of a type: any bits, or numbers between -8 and 8.
    pub(crate) fn elements(&mut self, dtype: DType, count: usize, any: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count * dtype.size());
        for _ in 0..count {
            let bits = self.next();
            let small = (bits >> 11) as f64 / (1_u64 << 49) as f64 - 8.0;
            match dtype {
                DType::F16 if !any => bytes.extend(f16::from_f64(small).to_le_bytes()),
                DType::BF16 if !any => bytes.extend(bf16::from_f64(small).to_le_bytes()),
                DType::F32 if !any => bytes.extend((small as f32).to_le_bytes()),
                DType::F64 if !any => bytes.extend(small.to_le_bytes()),
                DType::I32 if !any => bytes.extend((small as i32).to_le_bytes()),
                DType::I64 if !any => bytes.extend((small as i64).to_le_bytes()),
                DType::I8 | DType::U8 if !any => bytes.push(small as i8 as u8),
                DType::Bool if !any => bytes.push(u8::from(small > 0.0)),
                _ => bytes.extend(&bits.to_le_bytes()[8 - dtype.size()..]),
            }
        }
        bytes
    }
}

/// The first element in which two results differ, NaNs being all alike.
pub(crate) fn difference(dtype: DType, a: &[u8], b: &[u8]) -> Option<String> {
    let size = dtype.size();
    let is_nan = |bytes: &[u8]| match dtype {
        DType::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
        DType::BF16 => bf16::from_le_bytes([bytes[0], bytes[1]]).is_nan(),
        DType::F32 => bytes.try_into().is_ok_and(|bytes| f32::from_le_bytes(bytes).is_nan()),
        DType::F64 => bytes.try_into().is_ok_and(|bytes| f64::from_le_bytes(bytes).is_nan()),
        _ => false,
    };
    let pairs = a.chunks(size).zip(b.chunks(size)).enumerate();
    let mut different = pairs.filter(|(_, (a, b))| a != b && !(is_nan(a) && is_nan(b)));
    let (index, (a, b)) = different.next()?;
    Some(format!("element {index}: {a:02x?} instead of {b:02x?}, and {} more", different.count()))
}
