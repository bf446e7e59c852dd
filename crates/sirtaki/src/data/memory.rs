//! Samples that are kept in memory.
//!
//! Bytes stay bytes and become numbers when a batch is made: every worker of a host has its own copy, and a quarter of
//! the size is worth a table lookup per value.

use super::{Array, Normalise, Samples, Values, array::product};
use crate::{Error, Result};

/// Samples in memory, with their labels.
#[derive(Clone)]
pub struct Memory {
    shape: Vec<usize>,
    size: usize,
    values: Kept,
    labels: Vec<u32>,
    classes: usize,
}

#[derive(Clone)]
enum Kept {
    /// With a table for each part that is normalised in its own way; there is at least one.
    Bytes(Vec<u8>, Vec<[f32; 256]>),
    /// Normalised already.
    Numbers(Vec<f32>),
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shape, classes, .. } = self;
        write!(f, "Memory({} samples of {shape:?}, {classes} classes)", self.labels.len())
    }
}

impl Memory {
    /// Samples with labels. The first dimension of `values` numbers the samples; `labels` has one integer for each.
    ///
    /// A sample has the other dimensions; if there are only two, as for images without colours, a channel dimension is
    /// put before them.
    pub fn new(values: Array, labels: Array, classes: usize, normalise: &Normalise) -> Result<Self> {
        let labels = check_labels(labels, classes)?;
        let (shape, values) = values.into_parts();
        let Some((&count, dimensions)) = shape.split_first() else {
            return Err(Error::setting(
                "a single number has no samples",
                "the first dimension must number the samples",
            ));
        };
        if count != labels.len() {
            let problem = format!("there are {count} samples and {} labels", labels.len());
            return Err(Error::setting(
                problem,
                "there must be one label for each sample: look whether files fit together",
            ));
        }
        let shape = if let [height, width] = *dimensions { vec![1, height, width] } else { dimensions.to_vec() };
        normalise.check(&shape)?;
        let Some(size) = product(&shape) else {
            let problem = format!("samples of shape {shape:?} are more than a computer can hold");
            return Err(Error::setting(problem, "look whether this is the right file"));
        };
        let values = match values {
            Values::U8(bytes) => Kept::Bytes(bytes, (0..normalise.parts()).map(|part| normalise.table(part)).collect()),
            Values::I32(values) => numbers(values.into_iter().map(|value| value as f32), size, normalise),
            Values::I64(values) => numbers(values.into_iter().map(|value| value as f32), size, normalise),
            Values::F32(values) => numbers(values.into_iter(), size, normalise),
            Values::F64(values) => numbers(values.into_iter().map(|value| value as f32), size, normalise),
        };
        Ok(Self { shape, size, values, labels, classes })
    }

    /// The labels of all samples.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// How much memory the samples take.
    pub fn bytes(&self) -> usize {
        let values = match &self.values {
            Kept::Bytes(bytes, _) => bytes.len(),
            Kept::Numbers(values) => size_of_val(values.as_slice()),
        };
        values + size_of_val(self.labels.as_slice())
    }
}

impl Samples for Memory {
    fn count(&self) -> usize {
        self.labels.len()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn read(&self, index: usize, into: &mut [f32]) -> Result<u32> {
        let (Some(&label), true) = (self.labels.get(index), into.len() == self.size) else {
            let problem = format!("sample {index} of {} does not fit {} values", self.labels.len(), into.len());
            return Err(Error::setting(problem, "ask for samples that there are, with room for exactly one"));
        };
        let range = index * self.size..(index + 1) * self.size;
        match &self.values {
            Kept::Bytes(bytes, tables) => {
                let plane = (self.size / tables.len()).max(1);
                let planes = bytes[range].chunks_exact(plane).zip(into.chunks_exact_mut(plane));
                for ((from, to), table) in planes.zip(tables) {
                    from.iter().zip(to).for_each(|(&byte, value)| *value = table[usize::from(byte)]);
                }
            }
            Kept::Numbers(values) => into.copy_from_slice(&values[range]),
        }
        Ok(label)
    }
}

fn numbers(values: impl Iterator<Item = f32>, size: usize, normalise: &Normalise) -> Kept {
    let parts = normalise.parts();
    let plane = (size / parts).max(1);
    Kept::Numbers(values.enumerate().map(|(n, value)| normalise.apply(n / plane % parts, value)).collect())
}

/// Labels as numbers below `classes`.
fn check_labels(labels: Array, classes: usize) -> Result<Vec<u32>> {
    let (shape, values) = labels.into_parts();
    let numbers: Vec<i64> = match values {
        Values::U8(values) => values.into_iter().map(i64::from).collect(),
        Values::I32(values) => values.into_iter().map(i64::from).collect(),
        Values::I64(values) => values,
        Values::F32(_) | Values::F64(_) => {
            return Err(Error::setting("labels are fractions", "labels number the classes: save them as integers"));
        }
    };
    if shape.len() != 1 {
        let problem = format!("labels have the shape {shape:?}");
        return Err(Error::setting(problem, "labels must be a plain list, one number for each sample"));
    }
    let check = |(index, label): (usize, i64)| match u32::try_from(label) {
        Ok(number) if (number as usize) < classes => Ok(number),
        _ => {
            let problem = format!("the label of sample {index} is {label}, and there are {classes} classes from 0");
            Err(Error::setting(
                problem,
                "look whether this is the right file of labels, or correct the number of classes",
            ))
        }
    };
    numbers.into_iter().enumerate().map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[u8]) -> Array {
        Array::new(vec![values.len()], Values::U8(values.to_vec())).unwrap()
    }

    #[test]
    fn bytes_and_numbers_give_the_same() {
        let bytes: Vec<u8> = (0..24).map(|n| n * 10).collect();
        let fractions = bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect();
        let normalise = Normalise::by(&[(0.5, 0.25), (0.1, 2.0)]).unwrap();
        let make = |values| {
            let values = Array::new(vec![2, 2, 3, 2], values).unwrap();
            Memory::new(values, labels(&[1, 0]), 2, &normalise).unwrap()
        };
        let (kept, converted) = (make(Values::U8(bytes)), make(Values::F32(fractions)));
        for index in 0..2 {
            let (mut one, mut other) = ([0.0; 12], [0.0; 12]);
            assert_eq!(kept.read(index, &mut one).unwrap(), 1 - index as u32);
            converted.read(index, &mut other).unwrap();
            assert_eq!(one, other);
        }
        let mut sample = [0.0; 12];
        kept.read(1, &mut sample).unwrap();
        assert_eq!(sample[0], (120.0 / 255.0 - 0.5) / 0.25);
        assert_eq!(sample[11], (230.0 / 255.0 - 0.1) / 2.0);
        assert_eq!((kept.bytes(), converted.bytes()), (24 + 8, 96 + 8));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let values = |shape: &[usize]| Array::new(shape.to_vec(), Values::U8(vec![0; shape.iter().product()])).unwrap();
        let none = Normalise::none();
        let refused = |values, labels, classes, normalise: &Normalise| {
            Memory::new(values, labels, classes, normalise).unwrap_err().to_string()
        };
        assert_eq!(
            refused(values(&[3, 2]), labels(&[0, 2, 1]), 2, &none),
            "the label of sample 1 is 2, and there are 2 classes from 0"
        );
        assert_eq!(refused(values(&[3, 2]), labels(&[0, 1]), 2, &none), "there are 3 samples and 2 labels");
        let negative = Array::new(vec![1], Values::I64(vec![-1])).unwrap();
        assert!(refused(values(&[1, 2]), negative, 2, &none).contains("is -1"));
        let fractions = Array::new(vec![1], Values::F32(vec![1.0])).unwrap();
        assert_eq!(refused(values(&[1, 2]), fractions, 2, &none), "labels are fractions");
        assert!(refused(values(&[1, 2]), values(&[1, 1]), 2, &none).contains("shape [1, 1]"));
        assert!(refused(values(&[]), labels(&[0]), 2, &none).contains("single number"));
        let three = Normalise::by(&[(0.0, 1.0); 3]).unwrap();
        assert!(refused(values(&[1, 2, 4, 4]), labels(&[0]), 2, &three).contains("3 channels of 2"));
        assert!(Normalise::by(&[(0.0, 0.0)]).is_err());
        assert!(Normalise::by(&[(f32::NAN, 1.0)]).is_err());
    }

    #[test]
    fn a_sample_that_is_not_there_is_an_error() {
        let values = Array::new(vec![2, 3], Values::I32(vec![1, 2, 3, 4, 5, 6])).unwrap();
        let memory = Memory::new(values, labels(&[0, 0]), 1, &Normalise::none()).unwrap();
        let mut sample = [0.0; 3];
        memory.read(1, &mut sample).unwrap();
        assert_eq!(sample, [4.0, 5.0, 6.0]);
        assert!(memory.read(2, &mut sample).is_err());
        assert!(memory.read(0, &mut sample[..2]).is_err());
    }

    #[test]
    fn samples_without_values_are_possible() {
        let values = Array::new(vec![2, 0], Values::U8(vec![])).unwrap();
        let memory = Memory::new(values, labels(&[0, 0]), 1, &Normalise::none()).unwrap();
        assert_eq!(memory.read(1, &mut []).unwrap(), 0);
        let values = Array::new(vec![0, 1 << 40, 1 << 40], Values::U8(vec![])).unwrap();
        assert!(Memory::new(values, labels(&[]), 1, &Normalise::none()).is_err());
    }
}
