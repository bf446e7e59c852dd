//! Images in IDX files, as those of MNIST and of the data sets that took over its form.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{DataContent, Domain, Format, FoundData, classes, is_to_test, names};
use crate::{
    Error, Result,
    data::{Array, Memory, Normalise, Samples, Values, idx, mnist},
};

pub(super) const FORMAT: Format = Format {
    name: "IDX files",
    layout: "a folder with files as MNIST's (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and \
             t10k-labels-idx1-ubyte, compressed as .gz or not)",
    domain: Domain::Images,
    is_at: |path| names(path).iter().any(|name| name.contains(IMAGES)),
    content: DataContent::Classified(|path, _| read(path)),
};

const IMAGES: &str = "images-idx3-ubyte";
const LABELS: &str = "labels-idx1-ubyte";

fn read(folder: &Path) -> Result<FoundData> {
    let all: Vec<String> = names(folder).into_iter().filter(|name| name.contains(IMAGES)).collect();
    let (test, train): (Vec<String>, Vec<String>) = all.into_iter().partition(|name| is_to_test(name));
    let [name] = train.as_slice() else {
        let problem = match train.as_slice() {
            [] => "there are no images to train with, only some to test with".to_owned(),
            several => format!("there are several files of images to train with: {}", several.join(", ")),
        };
        return Err(Error::file(folder, problem, "keep one pair of files to train with, and one to test with"));
    };
    let train = pair(folder, name)?;
    let test = test.first().map(|name| pair(folder, name)).transpose()?;
    let labels = [Some(&train), test.as_ref()].into_iter().flatten();
    let classes = classes(folder, labels.flat_map(|(_, _, labels)| labels_of(labels)))?;
    let is_like_mnist = train.1.shape()[1..] == [mnist::SIZE; 2];
    let normalise = match is_like_mnist {
        true => Normalise::by(&[mnist::NORMAL])?,
        false => Normalise::measured(&train.1)?,
    };
    let memory = |(path, images, labels): (PathBuf, Array, Array)| {
        Memory::new(images, labels, classes, &normalise).map_err(|error| error.in_file(&path))
    };
    let (train, test) = (memory(train)?, test.map(memory).transpose()?);
    if let Some(test) = test.as_ref().filter(|test| test.shape() != train.shape()) {
        let problem =
            format!("images to train with are {:?}, and those to test with {:?}", train.shape(), test.shape());
        return Err(Error::file(folder, problem, "keep files of one data set in a folder"));
    }
    Ok(FoundData {
        train: Arc::new(train),
        test: test.map(|test| Arc::new(test) as Arc<dyn Samples>),
        domain: Domain::Images,
        unreadable: Vec::new(),
        identity: None,
    })
}

/// Images and their labels, with the file of the latter.
fn pair(folder: &Path, name: &str) -> Result<(PathBuf, Array, Array)> {
    let images_file = folder.join(name);
    let images = idx::read(&images_file)?;
    if images.shape().len() != 3 {
        let problem = format!("dimensions: {:?}, not number, height and width", images.shape());
        return Err(Error::file(&images_file, problem, "look whether this is a file of images"));
    }
    let plain = name.replace(IMAGES, LABELS);
    let other = plain.strip_suffix(".gz").map_or_else(|| format!("{plain}.gz"), str::to_owned);
    let labels = [&plain, &other].into_iter().map(|name| folder.join(name)).find(|path| path.exists());
    let labels_file = labels.ok_or_else(|| {
        let problem = format!("there is no {plain} for the images of {name}");
        Error::file(folder, problem, "put the file with the labels beside that of the images")
    })?;
    let labels = idx::read(&labels_file)?;
    Ok((labels_file, images, labels))
}

fn labels_of(labels: &Array) -> Vec<i64> {
    match labels.values() {
        Values::U8(labels) => labels.iter().copied().map(i64::from).collect(),
        // The reader gives bytes.
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(folder: &Path, part: &str, shape: &[u32], labels: &[u8]) {
        let head = |shape: &[u32]| -> Vec<u8> {
            [0, 0, 8, shape.len() as u8].into_iter().chain(shape.iter().flat_map(|size| size.to_be_bytes())).collect()
        };
        let count = shape.iter().product::<u32>() as usize;
        let images = [head(shape), (0..count).map(|place| place as u8).collect()].concat();
        fs::write(folder.join(format!("{part}-{IMAGES}")), images).unwrap();
        fs::write(folder.join(format!("{part}-{LABELS}")), [head(&[labels.len() as u32]), labels.to_vec()].concat())
            .unwrap();
    }

    #[test]
    fn sizes_and_numbers_of_classes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "emnist-letters-train", &[3, 4, 5], &[1, 26, 2]);
        let found = read(folder.path()).unwrap();
        assert_eq!(
            (found.train.shape(), found.train.classes(), found.test.is_none()),
            ([1, 4, 5].as_slice(), 27, true)
        );
        write(folder.path(), "emnist-letters-test", &[2, 4, 5], &[30, 0]);
        let found = read(folder.path()).unwrap();
        assert_eq!((found.train.classes(), found.test.unwrap().count()), (31, 2));
        write(folder.path(), "emnist-letters-test", &[2, 5, 5], &[30, 0]);
        assert!(read(folder.path()).err().unwrap().to_string().contains("[1, 4, 5], and those to test with [1, 5, 5]"));
        fs::remove_file(folder.path().join(format!("emnist-letters-train-{LABELS}"))).unwrap();
        assert!(read(folder.path()).err().unwrap().to_string().contains("there is no emnist-letters-train-labels"));
        write(folder.path(), "other-train", &[3, 4, 5], &[0, 0, 0]);
        assert!(read(folder.path()).err().unwrap().to_string().contains("several files"));
    }
}
