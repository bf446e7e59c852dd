//! Numbers in the JSON of zarr, which has more of them than JSON: infinities, not-a-number, and bits.

use half::f16;
use serde_json::{Value, json};

use crate::format::dtype::Dtype;

/// The bytes of a voxel with this value.
pub(crate) fn to_bytes(value: &Value, dtype: Dtype) -> Option<Vec<u8>> {
    if let Some(bits) = value.as_str().and_then(|text| text.strip_prefix("0x")) {
        let bits = u64::from_str_radix(bits, 16).ok()?;
        return Some(bits.to_le_bytes()[..dtype.size()].to_vec());
    }
    Some(match dtype {
        _ if value.is_null() => vec![0; dtype.size()],
        Dtype::Bool => vec![u8::from(value.as_bool().or_else(|| Some(value.as_u64()? != 0))?)],
        Dtype::Int8 => i8::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec(),
        Dtype::Int16 => i16::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec(),
        Dtype::Int32 => i32::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec(),
        Dtype::Int64 => i64::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec(),
        Dtype::UInt8 => u8::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec(),
        Dtype::UInt16 => u16::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec(),
        Dtype::UInt32 => u32::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec(),
        Dtype::UInt64 => u64::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec(),
        Dtype::Float16 => f16::from_f64(float(value)?).to_ne_bytes().to_vec(),
        Dtype::Float32 => (float(value)? as f32).to_ne_bytes().to_vec(),
        Dtype::Float64 => float(value)?.to_ne_bytes().to_vec(),
    })
}

/// The value of a voxel with these bytes.
pub(crate) fn from_bytes(bytes: &[u8], dtype: Dtype) -> Value {
    let mut wide = [0; 8];
    wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let [a, b, c, d, ..] = wide;
    match dtype {
        Dtype::Bool => json!(a != 0),
        Dtype::Int8 => json!(a as i8),
        Dtype::Int16 => json!(i16::from_ne_bytes([a, b])),
        Dtype::Int32 => json!(i32::from_ne_bytes([a, b, c, d])),
        Dtype::Int64 => json!(i64::from_ne_bytes(wide)),
        Dtype::UInt8 => json!(a),
        Dtype::UInt16 => json!(u16::from_ne_bytes([a, b])),
        Dtype::UInt32 => json!(u32::from_ne_bytes([a, b, c, d])),
        Dtype::UInt64 => json!(u64::from_ne_bytes(wide)),
        Dtype::Float16 => from_float(f16::from_ne_bytes([a, b]).to_f64()),
        Dtype::Float32 => from_float(f32::from_ne_bytes([a, b, c, d]).into()),
        Dtype::Float64 => from_float(f64::from_ne_bytes(wide)),
    }
}

/// Whole numbers; other libraries write some of them with a fraction of zero.
fn integer(value: &Value) -> Option<i128> {
    let whole = |value: f64| (value.fract() == 0.0 && value.abs() < 2_f64.powi(63)).then_some(value as i128);
    value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from)).or_else(|| whole(value.as_f64()?))
}

fn float(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| match value.as_str()? {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    })
}

fn from_float(value: f64) -> Value {
    match value {
        value if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_return() {
        for dtype in Dtype::ALL {
            for value in [json!(0), json!(1)] {
                let bytes = to_bytes(&value, dtype).unwrap();
                assert_eq!(bytes.len(), dtype.size());
                assert_eq!(to_bytes(&from_bytes(&bytes, dtype), dtype), Some(bytes));
            }
        }
        for text in ["Infinity", "-Infinity", "NaN"] {
            let bytes = to_bytes(&json!(text), Dtype::Float32).unwrap();
            assert_eq!(from_bytes(&bytes, Dtype::Float32), json!(text));
        }
        assert_eq!(to_bytes(&json!("0x7fc00000"), Dtype::Float32).unwrap(), f32::NAN.to_ne_bytes());
        assert_eq!(to_bytes(&json!(u64::MAX), Dtype::UInt64).unwrap(), [255; 8]);
        assert_eq!(to_bytes(&json!(-1), Dtype::UInt8), None);
        assert_eq!(to_bytes(&json!("many"), Dtype::Float32), None);
    }
}
