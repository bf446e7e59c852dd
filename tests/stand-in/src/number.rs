//! NCCL's element types and operations. Halves and single precision are summed in double precision and rounded once, and
//! integers wrap around, so results do not depend on the order of ranks, and all ranks get the same bits.

use std::ffi::c_int;

use half::{bf16, f16};

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
    BF16,
}

impl Type {
    /// The type that NCCL gives this number.
    pub(crate) fn from_code(code: c_int) -> Option<Self> {
        use Type::{BF16, F16, F32, F64, I8, I32, I64, U8, U32, U64};
        [I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16].get(usize::try_from(code).ok()?).copied()
    }

    /// Bytes per element.
    pub(crate) fn size(self) -> usize {
        match self {
            Type::I8 | Type::U8 => 1,
            Type::F16 | Type::BF16 => 2,
            Type::I32 | Type::U32 | Type::F32 => 4,
            Type::I64 | Type::U64 | Type::F64 => 8,
        }
    }
}

/// How elements are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Sum,
    Product,
    Max,
    Min,
    Average,
    /// A sum of elements that are multiplied by this one of the same type.
    Scaled([u8; 8]),
}

impl Operation {
    /// NCCL's built-in operations, in its order.
    pub(crate) const KNOWN: [Operation; 5] =
        [Operation::Sum, Operation::Product, Operation::Max, Operation::Min, Operation::Average];

    /// Distinguishes it from all other operations.
    pub(crate) fn identity(self) -> [u8; 9] {
        let mut identity = [0; 9];
        match self {
            Operation::Scaled(factor) => {
                identity[0] = 5;
                identity[1..].copy_from_slice(&factor);
            }
            known => identity[0] = Self::KNOWN.iter().position(|other| *other == known).unwrap_or(0) as u8,
        }
        identity
    }
}

/// What elements are while they are combined.
trait Wide: Copy {
    fn add(self, other: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
}

impl Wide for f64 {
    fn add(self, other: Self) -> Self {
        self + other
    }
    fn multiply(self, other: Self) -> Self {
        self * other
    }
    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
    fn smaller(self, other: Self) -> Self {
        self.min(other)
    }
}

impl Wide for i128 {
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    fn multiply(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
    fn smaller(self, other: Self) -> Self {
        self.min(other)
    }
}

trait Number {
    type Wide: Wide;
    fn read(bytes: &[u8]) -> Self::Wide;
    fn write(wide: Self::Wide, bytes: &mut [u8]);
    fn divide(wide: Self::Wide, count: usize) -> Self::Wide;
}

macro_rules! integers {
    ($($number:ty),*) => {$(
        impl Number for $number {
            type Wide = i128;
            fn read(bytes: &[u8]) -> i128 {
                let mut own = [0; size_of::<$number>()];
                own.copy_from_slice(&bytes[..size_of::<$number>()]);
                <$number>::from_ne_bytes(own).into()
            }
            fn write(wide: i128, bytes: &mut [u8]) {
                bytes.copy_from_slice(&(wide as $number).to_ne_bytes());
            }
            fn divide(wide: i128, count: usize) -> i128 {
                i128::from(wide as $number) / count as i128
            }
        }
    )*};
}
integers!(i8, u8, i32, u32, i64, u64);

macro_rules! floats {
    ($($number:ty: $shorten:expr),*) => {$(
        impl Number for $number {
            type Wide = f64;
            fn read(bytes: &[u8]) -> f64 {
                let mut own = [0; size_of::<$number>()];
                own.copy_from_slice(&bytes[..size_of::<$number>()]);
                <$number>::from_ne_bytes(own).into()
            }
            fn write(wide: f64, bytes: &mut [u8]) {
                let shorten: fn(f64) -> $number = $shorten;
                bytes.copy_from_slice(&shorten(wide).to_ne_bytes());
            }
            fn divide(wide: f64, count: usize) -> f64 {
                wide / count as f64
            }
        }
    )*};
}
floats!(f16: f16::from_f64, bf16: bf16::from_f64, f32: |wide| wide as f32, f64: |wide| wide);

/// Combines the elements of all inputs, which are as long as the result.
pub(crate) fn reduce(dtype: Type, operation: Operation, inputs: &[&[u8]], out: &mut [u8]) {
    match dtype {
        Type::I8 => each::<i8>(operation, inputs, out),
        Type::U8 => each::<u8>(operation, inputs, out),
        Type::I32 => each::<i32>(operation, inputs, out),
        Type::U32 => each::<u32>(operation, inputs, out),
        Type::I64 => each::<i64>(operation, inputs, out),
        Type::U64 => each::<u64>(operation, inputs, out),
        Type::F16 => each::<f16>(operation, inputs, out),
        Type::F32 => each::<f32>(operation, inputs, out),
        Type::F64 => each::<f64>(operation, inputs, out),
        Type::BF16 => each::<bf16>(operation, inputs, out),
    }
}

fn each<N: Number>(operation: Operation, inputs: &[&[u8]], out: &mut [u8]) {
    let size = size_of::<N>();
    for (index, to) in out.chunks_exact_mut(size).enumerate() {
        let elements = inputs.iter().map(|input| N::read(&input[index * size..]));
        let combined = match operation {
            Operation::Sum | Operation::Average => elements.reduce(Wide::add),
            Operation::Product => elements.reduce(Wide::multiply),
            Operation::Max => elements.reduce(Wide::larger),
            Operation::Min => elements.reduce(Wide::smaller),
            Operation::Scaled(factor) => {
                let factor = N::read(&factor);
                elements.map(|element| element.multiply(factor)).reduce(Wide::add)
            }
        };
        if let Some(combined) = combined {
            let average = operation == Operation::Average;
            N::write(if average { N::divide(combined, inputs.len()) } else { combined }, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced<const N: usize>(dtype: Type, operation: Operation, inputs: &[[u8; N]]) -> [u8; N] {
        let inputs: Vec<&[u8]> = inputs.iter().map(|input| &input[..]).collect();
        let mut out = [0; N];
        reduce(dtype, operation, &inputs, &mut out);
        out
    }

    #[test]
    fn integers_wrap_and_divide_toward_zero() {
        let inputs = [100_i8.to_ne_bytes(), 100_i8.to_ne_bytes()];
        assert_eq!(i8::from_ne_bytes(reduced(Type::I8, Operation::Sum, &inputs)), -56);
        assert_eq!(i8::from_ne_bytes(reduced(Type::I8, Operation::Average, &inputs)), -28);
        assert_eq!(u8::from_ne_bytes(reduced(Type::U8, Operation::Max, &[[3], [200]])), 200);
        assert_eq!(i8::from_ne_bytes(reduced(Type::I8, Operation::Max, &[[3], [200]])), 3);
        let inputs = [u64::MAX.to_ne_bytes(), 2_u64.to_ne_bytes()];
        assert_eq!(u64::from_ne_bytes(reduced(Type::U64, Operation::Product, &inputs)), u64::MAX - 1);
    }

    #[test]
    fn factors_have_the_type_of_the_elements() {
        let mut factor = [0; 8];
        factor[..2].copy_from_slice(&bf16::from_f32(0.5).to_ne_bytes());
        let inputs = [bf16::from_f32(3.0).to_ne_bytes(), bf16::from_f32(4.0).to_ne_bytes()];
        let out = bf16::from_ne_bytes(reduced(Type::BF16, Operation::Scaled(factor), &inputs));
        assert_eq!(out.to_f32(), 3.5);
    }
}
