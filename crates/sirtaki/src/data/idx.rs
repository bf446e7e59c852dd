//! IDX, the format of MNIST: four bytes of magic, big-endian dimensions, values.
//!
//! Only bytes are supported as values: every known data set in this format uses them.

use std::path::Path;

use super::{Array, Source, Values, array::product};
use crate::Result;

/// Reads a file, packed with gzip or not.
pub fn read(path: &Path) -> Result<Array> {
    parse(Source::open(path)?)
}

/// Reads the bytes of an IDX file.
pub fn parse(mut source: Source<'_>) -> Result<Array> {
    let [zero, also_zero, kind, rank] = source.array("magic number")?;
    if (zero, also_zero) != (0, 0) || rank == 0 {
        return Err(source.refuse("magic number", "this is not an IDX file", "look whether it is the right file"));
    }
    if kind != 0x08 {
        let problem = format!("values of type 0x{kind:02x} are not supported");
        return Err(source.refuse("type of values", &problem, "only unsigned bytes (0x08) are: convert the file"));
    }
    let mut shape = Vec::new();
    for number in 0..rank {
        let bytes = source.array(&format!("dimension {number}"))?;
        shape.push(u32::from_be_bytes(bytes) as usize);
    }
    let Some(count) = product(&shape) else {
        let problem = format!("{shape:?} is more than a computer can hold");
        return Err(source.refuse("dimensions", &problem, super::source::DAMAGED));
    };
    let values = source.take(count as u64, &format!("values of shape {shape:?}"))?;
    source.end()?;
    Array::new(shape, Values::U8(values))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_bytes(bytes: &[u8]) -> Result<Array> {
        parse(Source::of_bytes(Path::new("x.idx"), bytes)?)
    }

    fn encode(shape: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, shape.len() as u8];
        shape.iter().for_each(|dimension| bytes.extend(dimension.to_be_bytes()));
        bytes.extend(values);
        bytes
    }

    #[test]
    fn refusals_name_file_and_field() {
        let cases = [
            (vec![], "`x.idx`: magic number: 4 bytes are needed where 0 are left"),
            (vec![1, 0, 8, 1, 0, 0, 0, 0], "`x.idx`: magic number: this is not an IDX file"),
            (vec![0, 0, 13, 1, 0, 0, 0, 0], "`x.idx`: type of values: values of type 0x0d are not supported"),
            (encode(&[2, 3], &[0; 6])[..10].to_vec(), "`x.idx`: dimension 1: 4 bytes are needed where 2 are left"),
            (encode(&[2, 3], &[0; 5]), "`x.idx`: values of shape [2, 3]: 6 bytes are needed where 5 are left"),
            (encode(&[2, 3], &[0; 7]), "`x.idx`: length: there is more in the file than its header says"),
            (
                encode(&[u32::MAX; 3], &[]),
                "`x.idx`: dimensions: [4294967295, 4294967295, 4294967295] is more than a computer can hold",
            ),
        ];
        for (bytes, expected) in cases {
            let error = parse_bytes(&bytes).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert!(error.hint().is_some());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(shape in prop::collection::vec(0_u32..5, 1..4), seed: u8, packed: bool) {
            let count = shape.iter().product::<u32>() as usize;
            let values: Vec<u8> = (0..count).map(|n| seed.wrapping_add(n as u8)).collect();
            let mut bytes = encode(&shape, &values);
            if packed {
                bytes = super::super::source::tests::gzip(&bytes);
            }
            let array = parse_bytes(&bytes).unwrap();
            prop_assert_eq!(array.values(), &Values::U8(values));
            prop_assert_eq!(array.shape().len(), shape.len());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64), like_idx: bool) {
            let mut bytes = bytes;
            if like_idx && bytes.len() > 3 {
                bytes[..3].copy_from_slice(&[0, 0, 8]);
            }
            let _ = parse_bytes(&bytes);
        }
    }
}
