//! Data sets by their folder.

use std::{path::Path, sync::Arc};

use super::networks::Kind;
use crate::{
    Error, Result,
    data::{Memory, Normalise, Samples, Split, cifar, mnist},
};

/// Samples, and what they are like.
#[derive(Clone)]
pub(super) struct Images {
    pub(super) train: Arc<Memory>,
    pub(super) test: Arc<Memory>,
    pub(super) kind: Kind,
}

/// Whether there is a data set in a folder that can be trained with, and all of it can be read.
pub fn look(folder: &Path) -> Result<()> {
    open(folder).map(drop)
}

/// Reads the data set in a folder: MNIST and all that comes in its files, or CIFAR.
pub(super) fn open(folder: &Path) -> Result<Images> {
    // Mean and deviation of CIFAR's pixels; those of MNIST are known to its reader.
    let colours = [(0.4914, 0.247), (0.4822, 0.2435), (0.4465, 0.2616)];
    let Split { train, test } = if folder.join("data_batch_1.bin").exists() {
        cifar::load(folder, cifar::Kind::Cifar10, &Normalise::by(&colours)?)?
    } else if folder.join("train.bin").exists() {
        cifar::load(folder, cifar::Kind::Cifar100, &Normalise::by(&colours)?)?
    } else {
        mnist::load(folder)?
    };
    let shape = train.shape().try_into().map_err(|_| {
        let problem = format!("samples have {} dimensions, not channels, height and width", train.shape().len());
        Error::file(folder, problem, "give a data set of images")
    })?;
    let kind = Kind { shape, classes: train.classes() };
    Ok(Images { train: Arc::new(train), test: Arc::new(test), kind })
}
