//! MNIST: handwritten digits in four IDX files.

use std::path::{Path, PathBuf};

use super::{Array, Memory, Normalise, Split, idx};
use crate::{Error, Result};

/// Height and width of an image.
pub const SIZE: usize = 28;

/// The digits.
pub const CLASSES: usize = 10;

/// Mean and deviation of the pixels of all training images, as fractions of white.
pub(crate) const NORMAL: (f32, f32) = (0.1307, 0.3081);

/// Reads the four files of a folder, packed with gzip or not. Samples have the shape `[1, 28, 28]`.
pub fn load(folder: &Path) -> Result<Split<Memory>> {
    Ok(Split { train: part(folder, "train")?, test: part(folder, "t10k")? })
}

fn part(folder: &Path, name: &str) -> Result<Memory> {
    let (image_file, label_file) = (find(folder, name, "images-idx3")?, find(folder, name, "labels-idx1")?);
    let images = idx::read(&image_file)?;
    if !matches!(images.shape(), [_, SIZE, SIZE]) {
        let problem = format!("dimensions: {:?}, not [number of images, {SIZE}, {SIZE}]", images.shape());
        return Err(Error::file(&image_file, problem, "look whether the files of this folder are those of MNIST"));
    }
    let labels: Array = idx::read(&label_file)?;
    Memory::new(images, labels, CLASSES, &Normalise::by(&[NORMAL])?).map_err(|error| error.in_file(&label_file))
}

/// The file of that name, packed or not.
fn find(folder: &Path, part: &str, kind: &str) -> Result<PathBuf> {
    let plain = folder.join(format!("{part}-{kind}-ubyte"));
    let packed = folder.join(format!("{part}-{kind}-ubyte.gz"));
    match (plain.exists(), packed.exists()) {
        (true, _) => Ok(plain),
        (_, true) => Ok(packed),
        _ => Err(Error::file(
            &plain,
            "neither this file nor its packed form (.gz) is there",
            "name the folder with the four files of MNIST; the repository of sirtaki has them in data/mnist",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::Samples;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/mnist")
    }

    #[test]
    fn all_of_it_is_there() {
        let Split { train, test } = load(&folder()).unwrap();
        assert_eq!((train.count(), test.count()), (60_000, 10_000));
        assert_eq!((train.shape(), train.classes()), ([1, 28, 28].as_slice(), 10));
        assert_eq!(train.labels()[..5], [5, 0, 4, 1, 9]);
        assert_eq!(test.labels()[..5], [7, 2, 1, 0, 4]);
        let counts = |memory: &Memory| {
            let mut counts = [0; 10];
            memory.labels().iter().for_each(|&label| counts[label as usize] += 1);
            counts
        };
        assert_eq!(counts(&train), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]);
        assert_eq!(counts(&test), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]);
        // One byte for a pixel and four for a label.
        assert_eq!(train.bytes(), 60_000 * (28 * 28 + 4));
    }

    #[test]
    fn values_have_mean_zero_and_deviation_one() {
        let Split { train, .. } = load(&folder()).unwrap();
        let mut image = [0.0; SIZE * SIZE];
        let (mut sum, mut squares) = (0.0, 0.0);
        for index in 0..train.count() {
            train.read(index, &mut image).unwrap();
            sum += image.iter().map(|&value| f64::from(value)).sum::<f64>();
            squares += image.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
        }
        let values = (train.count() * image.len()) as f64;
        assert!((sum / values).abs() < 1e-3, "{}", sum / values);
        assert!((squares / values - 1.0).abs() < 1e-3, "{}", squares / values);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let copy = tempfile::tempdir().unwrap();
        let error = load(copy.path()).unwrap_err();
        assert!(error.to_string().contains("train-images-idx3-ubyte"), "{error}");
        assert!(error.hint().unwrap().contains("data/mnist"));
        let write = |name: &str, bytes: &[u8]| fs::write(copy.path().join(name), bytes).unwrap();
        let images = [[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28].as_slice(), &[9; 784]].concat();
        write("train-images-idx3-ubyte", &images);
        write("train-labels-idx1-ubyte", &[0, 0, 8, 1, 0, 0, 0, 1, 10]);
        let error = load(copy.path()).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("labels-idx1-ubyte`: the label of sample 0 is 10, and there are 10 classes from 0")
        );
        write("train-labels-idx1-ubyte", &[0, 0, 8, 1, 0, 0, 0, 2, 1, 1]);
        let error = load(copy.path()).unwrap_err();
        assert!(error.to_string().ends_with("there are 1 samples and 2 labels"), "{error}");
        write("train-images-idx3-ubyte", &[0, 0, 8, 1, 0, 0, 0, 0]);
        let error = load(copy.path()).unwrap_err();
        assert!(error.to_string().contains("dimensions: [0], not"), "{error}");
    }
}
