//! Voxels as numbers.

use half::f16;

use super::dtype::Dtype;

/// The number in the bytes of a voxel.
pub(crate) fn value(bytes: &[u8], dtype: Dtype) -> f64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let [a, b, c, d, ..] = wide;
    match dtype {
        Dtype::Bool | Dtype::UInt8 => f64::from(a),
        Dtype::Int8 => f64::from(a as i8),
        Dtype::Int16 => f64::from(i16::from_ne_bytes([a, b])),
        Dtype::Int32 => f64::from(i32::from_ne_bytes([a, b, c, d])),
        Dtype::Int64 => i64::from_ne_bytes(wide) as f64,
        Dtype::UInt16 => f64::from(u16::from_ne_bytes([a, b])),
        Dtype::UInt32 => f64::from(u32::from_ne_bytes([a, b, c, d])),
        Dtype::UInt64 => u64::from_ne_bytes(wide) as f64,
        Dtype::Float16 => f16::from_ne_bytes([a, b]).to_f64(),
        Dtype::Float32 => f64::from(f32::from_ne_bytes([a, b, c, d])),
        Dtype::Float64 => f64::from_ne_bytes(wide),
    }
}

/// Appends a voxel with the nearest value.
pub(crate) fn push_value(value: f64, dtype: Dtype, out: &mut Vec<u8>) {
    let whole = value.round();
    match dtype {
        Dtype::Bool | Dtype::UInt8 => out.push(whole as u8),
        Dtype::Int8 => out.extend((whole as i8).to_ne_bytes()),
        Dtype::Int16 => out.extend((whole as i16).to_ne_bytes()),
        Dtype::Int32 => out.extend((whole as i32).to_ne_bytes()),
        Dtype::Int64 => out.extend((whole as i64).to_ne_bytes()),
        Dtype::UInt16 => out.extend((whole as u16).to_ne_bytes()),
        Dtype::UInt32 => out.extend((whole as u32).to_ne_bytes()),
        Dtype::UInt64 => out.extend((whole as u64).to_ne_bytes()),
        Dtype::Float16 => out.extend(f16::from_f64(value).to_ne_bytes()),
        Dtype::Float32 => out.extend((value as f32).to_ne_bytes()),
        Dtype::Float64 => out.extend(value.to_ne_bytes()),
    }
}
