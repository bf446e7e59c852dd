//! Types of voxels, and their names in each world.
//!
//! Real numbers and truth values are all that networks read or write; complex numbers, records and strings are refused
//! by every format in the same words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The type of a voxel. In memory it has this machine's byte order, whatever a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// Truth values, one byte each.
    Bool,
    /// Signed integers of 8 bits.
    Int8,
    /// Signed integers of 16 bits.
    Int16,
    /// Signed integers of 32 bits.
    Int32,
    /// Signed integers of 64 bits.
    Int64,
    /// Unsigned integers of 8 bits.
    UInt8,
    /// Unsigned integers of 16 bits.
    UInt16,
    /// Unsigned integers of 32 bits.
    UInt32,
    /// Unsigned integers of 64 bits.
    UInt64,
    /// Half precision.
    Float16,
    /// Single precision.
    Float32,
    /// Double precision.
    Float64,
}

use Dtype::{Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};

impl Dtype {
    /// All of them.
    pub const ALL: [Dtype; 12] =
        [Bool, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float16, Float32, Float64];

    /// Its name, as NumPy and zarr v3 spell it.
    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// The type with this name, as in `float32`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// How many bytes a voxel takes.
    pub fn size(self) -> usize {
        match self {
            Bool | Int8 | UInt8 => 1,
            Int16 | UInt16 | Float16 => 2,
            Int32 | UInt32 | Float32 => 4,
            Int64 | UInt64 | Float64 => 8,
        }
    }

    /// How NumPy writes it in files, little endian.
    pub fn descr(self) -> String {
        format!("{}{}", if self.size() == 1 { '|' } else { '<' }, self.names().1)
    }

    /// The type that NumPy describes by this text, and whether its bytes are big endian.
    pub fn from_descr(descr: &str) -> Option<(Self, bool)> {
        let (order, code) = descr.split_at_checked(1)?;
        let dtype = Self::ALL.into_iter().find(|dtype| dtype.names().1 == code)?;
        match order {
            "|" if dtype.size() > 1 => None,
            "<" | "|" | "=" => Some((dtype, false)),
            ">" => Some((dtype, dtype.size() > 1)),
            _ => None,
        }
    }

    /// Whether it has a fractional part.
    pub fn is_float(self) -> bool {
        matches!(self, Float16 | Float32 | Float64)
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Bool => ("bool", "b1"),
            Int8 => ("int8", "i1"),
            Int16 => ("int16", "i2"),
            Int32 => ("int32", "i4"),
            Int64 => ("int64", "i8"),
            UInt8 => ("uint8", "u1"),
            UInt16 => ("uint16", "u2"),
            UInt32 => ("uint32", "u4"),
            UInt64 => ("uint64", "u8"),
            Float16 => ("float16", "f2"),
            Float32 => ("float32", "f4"),
            Float64 => ("float64", "f8"),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_name(dtype.name()), Some(dtype));
            assert_eq!(Dtype::from_descr(&dtype.descr()), Some((dtype, false)));
        }
        assert_eq!(Dtype::from_descr(">f4"), Some((Float32, true)));
        assert_eq!(Dtype::from_descr(">u1"), Some((UInt8, false)));
        for descr in ["", "<c8", "|f4", "|V4", "µ4", "f4"] {
            assert_eq!(Dtype::from_descr(descr), None, "{descr}");
        }
    }
}
