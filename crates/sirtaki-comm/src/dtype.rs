//! The element types that travel, and the Rust types they correspond to.

use bytemuck::Pod;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// What one element of a buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum DType {
    /// IEEE half precision.
    F16 = 0,
    /// The upper half of an `f32`.
    BF16 = 1,
    /// Single precision.
    F32 = 2,
    /// Double precision.
    F64 = 3,
    /// Signed byte.
    I8 = 4,
    /// Unsigned byte.
    U8 = 5,
    /// 32-bit signed integer.
    I32 = 6,
    /// 64-bit signed integer.
    I64 = 7,
    /// One byte, zero or one. Any other byte counts as true and becomes one.
    Bool = 8,
}

impl DType {
    /// Every type, in the order of their codes.
    pub const ALL: [DType; 9] =
        [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool];

    /// Bytes per element; also the alignment a buffer needs.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    /// The lower-case name used in messages and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::Bool => "bool",
        }
    }

    /// The type with this code, if there is one.
    pub fn from_code(code: u8) -> Option<DType> {
        DType::ALL.get(usize::from(code)).copied()
    }

    /// Whether the type can hold fractions.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }
}

/// A Rust type that can travel as it is. `bool` is absent on purpose: bytes from a peer may be any value,
/// and a `bool` may not; use [`crate::SliceMut::new`] with [`DType::Bool`] over bytes instead.
pub trait Element: Pod {
    /// The type's description on the wire.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
elements!(f16 => F16, bf16 => BF16, f32 => F32, f64 => F64, i8 => I8, u8 => U8, i32 => I32, i64 => I64);
