//! Data sets by their folder.

use std::{path::Path, sync::Arc};

use super::{networks::ImageKind, settings::BatchSize};
use crate::{
    Error, Result,
    data::{Memory, Normalise, Samples, Split, cifar, mnist},
};

/// Samples, and what they are like.
#[derive(Clone)]
pub(super) struct ImageSet {
    pub(super) train: Arc<Memory>,
    pub(super) test: Arc<Memory>,
    pub(super) kind: ImageKind,
}

impl ImageSet {
    /// Fails if a step of all workers has more samples than there are.
    pub(super) fn check_batch(&self, batch: BatchSize, all: usize) -> Result<()> {
        let samples = self.train.count();
        if all <= samples {
            return Ok(());
        }
        let problem = format!("{batch} makes steps of {all} images, and there are only {samples} to train with");
        Err(Error::setting(problem, "take a smaller batch"))
    }
}

/// What can be trained with.
const FORMS: &str = "name a folder with MNIST's four files (train-images-idx3-ubyte, train-labels-idx1-ubyte, \
                     t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, compressed as .gz or not), CIFAR-10's \
                     data_batch_1.bin to data_batch_5.bin and test_batch.bin, or CIFAR-100's train.bin and test.bin";

/// Reads the data set in a folder: MNIST and data sets in the same format, or CIFAR.
pub(super) fn open(folder: &Path) -> Result<ImageSet> {
    // Mean and deviation of CIFAR's pixels; those of MNIST are known to its reader.
    let colours = [(0.4914, 0.247), (0.4822, 0.2435), (0.4465, 0.2616)];
    if !folder.is_dir() {
        let problem = if folder.exists() { "this is not a folder" } else { "there is no such folder" };
        return Err(Error::file(folder, problem, FORMS));
    }
    let is_mnist =
        ["train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"].iter().any(|name| folder.join(name).exists());
    let Split { train, test } = if folder.join("data_batch_1.bin").exists() {
        cifar::load(folder, cifar::Variant::Cifar10, &Normalise::by(&colours)?)?
    } else if folder.join("train.bin").exists() {
        cifar::load(folder, cifar::Variant::Cifar100, &Normalise::by(&colours)?)?
    } else if is_mnist {
        mnist::load(folder)?
    } else {
        return Err(Error::file(folder, "there is no data set in this folder", FORMS));
    };
    let shape = train.shape().try_into().map_err(|_| {
        let problem = format!("samples have {} dimensions, not channels, height and width", train.shape().len());
        Error::file(folder, problem, "give a data set of images")
    })?;
    let kind = ImageKind { shape, classes: train.classes() };
    Ok(ImageSet { train: Arc::new(train), test: Arc::new(test), kind })
}
