//! Numbers with a shape, as they are stored in a file.

use crate::Error;

/// An array of numbers in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Its dimensions; their product is the number of values.
    shape: Vec<usize>,
    values: Values,
}

/// The values of an [`Array`], of the type they have in the file.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Values {
    U8(Vec<u8>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Values::U8(values) => values.len(),
            Values::I32(values) => values.len(),
            Values::I64(values) => values.len(),
            Values::F32(values) => values.len(),
            Values::F64(values) => values.len(),
        }
    }

    /// All of them as numbers; bytes as 0 to 1.
    pub(crate) fn fractions(&self) -> Box<dyn Iterator<Item = f64> + '_> {
        match self {
            Values::U8(values) => Box::new(values.iter().map(|&value| f64::from(value) / 255.0)),
            Values::I32(values) => Box::new(values.iter().map(|&value| f64::from(value))),
            Values::I64(values) => Box::new(values.iter().map(|&value| value as f64)),
            Values::F32(values) => Box::new(values.iter().map(|&value| f64::from(value))),
            Values::F64(values) => Box::new(values.iter().copied()),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Array {
    /// An array of these values; refused if the shape does not fit them.
    pub fn new(shape: Vec<usize>, values: Values) -> Result<Self, Error> {
        if product(&shape) == Some(values.len()) {
            return Ok(Self { shape, values });
        }
        let problem = format!("{} values do not make an array of shape {shape:?}", values.len());
        Err(Error::setting(problem, "the product of the dimensions must be the number of values"))
    }

    /// The dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The dimensions and the values.
    pub fn into_parts(self) -> (Vec<usize>, Values) {
        (self.shape, self.values)
    }
}

/// The number of values of a shape, if it does not overflow.
pub(crate) fn product(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, &dimension| product.checked_mul(dimension))
}
