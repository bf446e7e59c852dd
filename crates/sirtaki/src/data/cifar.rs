//! CIFAR-10 and CIFAR-100 in their binary form: records of labels and 32×32 pixels, one colour after the other.

use std::path::Path;

use super::{Array, Memory, Normalise, Source, Split, Values};
use crate::Result;

/// Bytes of the pixels of one image.
const PIXELS: usize = 3 * 32 * 32;

/// Which of the two data sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Ten classes; five files to train with.
    Cifar10,
    /// A hundred classes; the labels of the twenty coarse ones before them are skipped.
    Cifar100,
}

impl Variant {
    /// How many classes there are.
    pub fn classes(self) -> usize {
        match self {
            Variant::Cifar10 => 10,
            Variant::Cifar100 => 100,
        }
    }

    /// Bytes before the pixels, of which the last is the label.
    fn labels(self) -> usize {
        match self {
            Variant::Cifar10 => 1,
            Variant::Cifar100 => 2,
        }
    }

    fn files(self) -> (&'static [&'static str], &'static str) {
        const TEN: [&str; 5] =
            ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
        match self {
            Variant::Cifar10 => (&TEN, "test_batch.bin"),
            Variant::Cifar100 => (&["train.bin"], "test.bin"),
        }
    }
}

/// Reads the binary files of a folder. Samples have the shape `[3, 32, 32]`.
pub fn load(folder: &Path, kind: Variant, normalise: &Normalise) -> Result<Split<Memory>> {
    let (train, test) = kind.files();
    let read = |names: &[&str]| {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for name in names {
            parse(Source::open(&folder.join(name))?, kind, &mut pixels, &mut labels)?;
        }
        let images = Array::new(vec![labels.len(), 3, 32, 32], Values::U8(pixels))?;
        let labels = Array::new(vec![labels.len()], Values::U8(labels))?;
        Memory::new(images, labels, kind.classes(), normalise)
    };
    Ok(Split { train: read(train)?, test: read(&[test])? })
}

/// Reads the bytes of one file and adds its images to `pixels` and `labels`.
pub fn parse(mut source: Source<'_>, kind: Variant, pixels: &mut Vec<u8>, labels: &mut Vec<u8>) -> Result<()> {
    let record = (kind.labels() + PIXELS) as u64;
    let count = source.left() / record;
    if count == 0 || !source.left().is_multiple_of(record) {
        let problem = format!("{} bytes are not a whole number of records of {record} bytes", source.left());
        let hint = "use the binary version of the data set, and the right one of CIFAR-10 and CIFAR-100";
        return Err(source.refuse("length", &problem, hint));
    }
    pixels.reserve(count as usize * PIXELS);
    labels.reserve(count as usize);
    for number in 0..count {
        let mut found = [0; 2];
        source.fill(&mut found[..kind.labels()], &format!("labels of record {number}"))?;
        let label = found[kind.labels() - 1];
        if usize::from(label) >= kind.classes() {
            let problem = format!("{label}, and there are {} classes from 0", kind.classes());
            let hint = "look whether this is the right file, and the right one of CIFAR-10 and CIFAR-100";
            return Err(source.refuse(&format!("label of record {number}"), &problem, hint));
        }
        labels.push(label);
        let start = pixels.len();
        pixels.resize(start + PIXELS, 0);
        source.fill(&mut pixels[start..], &format!("pixels of record {number}"))?;
    }
    source.end()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::data::Samples;

    fn record(kind: Variant, label: u8, pixel: u8) -> Vec<u8> {
        let mut bytes = vec![3; kind.labels() - 1];
        bytes.push(label);
        bytes.extend([pixel; PIXELS]);
        bytes
    }

    fn parse_bytes(kind: Variant, bytes: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        parse(Source::of_bytes(Path::new("c.bin"), bytes)?, kind, &mut pixels, &mut labels)?;
        Ok((pixels, labels))
    }

    #[test]
    fn both_kinds_are_read_from_their_files() {
        for kind in [Variant::Cifar10, Variant::Cifar100] {
            let folder = tempfile::tempdir().unwrap();
            let (train, test) = kind.files();
            for (number, name) in train.iter().chain([&test]).enumerate() {
                let bytes = [record(kind, number as u8, 255), record(kind, 9, 0)].concat();
                fs::write(folder.path().join(name), bytes).unwrap();
            }
            let Split { train: samples, test } = load(folder.path(), kind, &Normalise::none()).unwrap();
            assert_eq!((samples.count(), test.count()), (train.len() * 2, 2));
            assert_eq!(samples.shape(), [3, 32, 32]);
            assert_eq!(samples.labels()[..2], [0, 9]);
            let mut image = vec![0.0; PIXELS];
            assert_eq!(test.read(0, &mut image).unwrap(), train.len() as u32);
            assert!(image.iter().all(|&value| value == 1.0));
            fs::remove_file(folder.path().join(train[0])).unwrap();
            assert!(load(folder.path(), kind, &Normalise::none()).unwrap_err().to_string().contains(train[0]));
        }
    }

    #[test]
    fn refusals_name_file_and_field() {
        let good = record(Variant::Cifar10, 9, 1);
        let says = |kind, bytes: &[u8]| parse_bytes(kind, bytes).unwrap_err().to_string();
        assert_eq!(
            says(Variant::Cifar10, &good[1..]),
            "`c.bin`: length: 3072 bytes are not a whole number of records of 3073 bytes"
        );
        assert_eq!(
            says(Variant::Cifar100, &good),
            "`c.bin`: length: 3073 bytes are not a whole number of records of 3074 bytes"
        );
        assert_eq!(
            says(Variant::Cifar10, &[]),
            "`c.bin`: length: 0 bytes are not a whole number of records of 3073 bytes"
        );
        let bad = [good, record(Variant::Cifar10, 10, 1)].concat();
        assert_eq!(says(Variant::Cifar10, &bad), "`c.bin`: label of record 1: 10, and there are 10 classes from 0");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(seed: u8, count in 0_usize..3, cut in 0_usize..3, hundred: bool) {
            let kind = if hundred { Variant::Cifar100 } else { Variant::Cifar10 };
            let bytes = record(kind, seed, seed).repeat(count);
            let bytes = &bytes[..bytes.len().saturating_sub(cut)];
            let fits = count > 0 && cut == 0 && usize::from(seed) < kind.classes();
            prop_assert_eq!(parse_bytes(kind, bytes).is_ok(), fits);
        }
    }
}
