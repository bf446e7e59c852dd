//! Types of voxels, between the library's and ours.

use super::object::Object;
use crate::format::Dtype;

/// Floating-point numbers as IEEE 754 has them: bits of the sign, of the exponent and its length, of the mantissa and its
/// length.
const FLOATS: [([usize; 5], Dtype); 3] =
    [([15, 10, 5, 0, 10], Dtype::Float16), ([31, 23, 8, 0, 23], Dtype::Float32), ([63, 52, 11, 0, 52], Dtype::Float64)];
/// Names of the library's classes of types, by their numbers.
const CLASSES: [&str; 12] = [
    "integer",
    "float",
    "time",
    "string",
    "bitfield",
    "opaque",
    "compound",
    "reference",
    "enum",
    "variable-length list",
    "array",
    "complex",
];

/// What voxels are.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) dtype: Dtype,
    /// The library's type for them in memory.
    pub(super) memory: Object,
}

impl Element {
    /// What elements of a type are, or the name of a type that voxels cannot have.
    pub(super) fn of(stored: &Object) -> Result<Result<Self, String>, String> {
        let (class, size) = (stored.class()?, stored.size()?);
        let dtype = match class {
            0 => integer(size, stored.is_signed()?),
            1 => {
                let fields = stored.fields()?;
                FLOATS.into_iter().find(|(known, dtype)| *known == fields && dtype.size() == size).map(|known| known.1)
            }
            // As h5py stores truth values.
            8 if stored.value_of("FALSE") == Some(0) && stored.value_of("TRUE") == Some(1) => Some(Dtype::Bool),
            _ => None,
        };
        let Some(dtype) = dtype else {
            let name = usize::try_from(class).ok().and_then(|class| CLASSES.get(class)).unwrap_or(&"unknown");
            return Ok(Err(match class {
                0 | 1 => format!("{name} of {size} bytes"),
                _ => (*name).to_owned(),
            }));
        };
        let memory = match class {
            0 => stored.native()?.whole()?,
            1 => stored.native()?,
            _ => stored.copy()?,
        };
        Ok(Ok(Self { dtype, memory }))
    }
}

fn integer(size: usize, signed: bool) -> Option<Dtype> {
    Some(match (size, signed) {
        (1, true) => Dtype::Int8,
        (2, true) => Dtype::Int16,
        (4, true) => Dtype::Int32,
        (8, true) => Dtype::Int64,
        (1, false) => Dtype::UInt8,
        (2, false) => Dtype::UInt16,
        (4, false) => Dtype::UInt32,
        (8, false) => Dtype::UInt64,
        _ => return None,
    })
}
