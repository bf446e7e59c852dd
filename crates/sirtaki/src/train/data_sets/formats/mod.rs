//! The forms that data sets have. Each is a file here with an entry in [`FORMATS`], from which detection, help and errors
//! come.

mod arrays;
mod cifar;
mod folder;
mod idx;
mod table;
mod text;
mod volumes;

use std::{fs, path::Path, sync::Arc};

use super::Domain;
use crate::{Error, Result, data::Samples};

/// A form of data sets.
pub(in crate::train) struct Format {
    /// What it is called.
    pub(in crate::train) name: &'static str,
    /// What there has to be.
    pub(in crate::train) layout: &'static str,
    /// What it usually consists of.
    pub(in crate::train) domain: Domain,
    /// Whether a path leads to a data set of this form, as far as names tell.
    is_at: fn(&Path) -> bool,
    pub(super) content: DataContent,
}

/// How a data set is read.
pub(super) enum DataContent {
    /// Samples with a class each. Images that have to be made equal get the height and width that are given.
    Classified(fn(&Path, Option<u32>) -> Result<FoundData>),
    /// What other kinds of samples read.
    Other,
}

/// All of them. The first that fits is taken.
pub(in crate::train) const FORMATS: [Format; 9] = [
    cifar::TEN,
    cifar::HUNDRED,
    idx::FORMAT,
    arrays::IN_FILE,
    volumes::FORMAT,
    // Beside class folders there may be tables and arrays about them.
    folder::FORMAT,
    arrays::IN_FOLDER,
    table::FORMAT,
    text::FORMAT,
];

/// Samples of a data set.
pub(super) struct FoundData {
    pub(super) train: Arc<dyn Samples>,
    /// If the data set has some.
    pub(super) test: Option<Arc<dyn Samples>>,
    pub(super) domain: Domain,
    /// Files or lines that were left out, and why.
    pub(super) unreadable: Vec<String>,
    /// What a checkpoint remembers of the data set, if it does.
    pub(super) identity: Option<String>,
}

/// The form of the data set that a path leads to.
pub(super) fn find(path: &Path) -> Option<&'static Format> {
    FORMATS.iter().find(|format| (format.is_at)(path))
}

/// What a data set of samples with classes can be.
pub(super) fn layouts() -> String {
    let classified = FORMATS.iter().filter(|format| matches!(format.content, DataContent::Classified(_)));
    classified.map(|format| format.layout).collect::<Vec<_>>().join("; ")
}

/// The sorted names of the files of a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map_or(Vec::new(), |entries| entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect());
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// Whether a name ends like this, in any case.
fn ends(path: &Path, end: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().ends_with(end))
}

/// Whether a word of a name says that this is to test with.
fn is_to_test(name: &str) -> bool {
    has_word(name, &["test", "testing", "t10k", "xtest", "ytest"]) || is_to_validate(name)
}

/// Whether a word of a name says that this is to choose settings by.
fn is_to_validate(name: &str) -> bool {
    has_word(name, &["val", "valid", "validation"])
}

fn has_word(name: &str, words: &[&str]) -> bool {
    name.to_ascii_lowercase().split(|letter: char| !letter.is_ascii_alphanumeric()).any(|word| words.contains(&word))
}

/// How many classes there are, by the largest label.
fn classes(path: &Path, labels: impl IntoIterator<Item = i64>) -> Result<usize> {
    /// More than any data set has, so that a wrong label does not make a network of many gigabytes.
    const MOST: i64 = 1 << 20;
    match labels.into_iter().max() {
        Some(largest) if largest < MOST => Ok((largest + 1).max(1) as usize),
        Some(largest) => {
            let problem = format!("a label is {largest}, and labels number the classes from 0");
            Err(Error::file(path, problem, "look whether these are labels of classes"))
        }
        None => Err(Error::file(path, "there are no samples in it", "look whether this is the right data set")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_told_apart_by_names() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        for (files, name) in [
            (vec!["ten/data_batch_1.bin"], "CIFAR-10"),
            (vec!["hundred/train.bin"], "CIFAR-100"),
            (vec!["idx/emnist-train-images-idx3-ubyte.gz"], "IDX files"),
            (vec!["arrays.npz"], "arrays"),
            (vec!["pair/x.npy", "pair/y.npy"], "arrays"),
            (vec!["table.CSV"], "table"),
            (vec!["tables/train.csv", "tables/test.csv"], "table"),
            (vec!["classes/ape/1.jpg", "classes/readme.txt", "classes/names.csv"], "image folder"),
            (vec!["parts/train/ape/1.jpg", "parts/test/ape/2.PNG"], "image folder"),
            (vec!["pairs/inputs/1.png", "pairs/labels/1.png"], "volumes"),
            (vec!["book.txt"], "text"),
            (vec!["books/one.txt"], "text"),
        ] {
            files.iter().for_each(|file| make(file));
            let first = files[0].split('/').next().unwrap();
            assert_eq!(find(&place.path().join(first)).map(|format| format.name), Some(name), "{first}");
        }
        make("other/file.bin");
        assert!(find(&place.path().join("other")).is_none() && find(&place.path().join("nowhere")).is_none());
    }
}
