//! Images in the formats of MNIST and CIFAR.

use std::{path::Path, sync::Arc};

use burn::tensor::{DType, Device, Int, Tensor};

use super::{DataSet, Domain, SampleKind, Settings, networks_for, of_other_networks};
use crate::{
    Error, Flow, Result,
    data::{Batch, Normalise, Samples, Split, cifar, mnist, text},
};

/// What images are like: channels, height and width, and the number of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::train) struct ImageKind {
    pub(in crate::train) shape: [usize; 3],
    pub(in crate::train) classes: usize,
}

/// What can be trained with.
const FORMS: &str = "name a folder with MNIST's four files (train-images-idx3-ubyte, train-labels-idx1-ubyte, \
                     t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, compressed as .gz or not), CIFAR-10's \
                     data_batch_1.bin to data_batch_5.bin and test_batch.bin, or CIFAR-100's train.bin and test.bin";

/// Mean and deviation of CIFAR's pixels; those of MNIST are known to its reader.
const COLOURS: [(f32, f32); 3] = [(0.4914, 0.247), (0.4822, 0.2435), (0.4465, 0.2616)];

/// Images that are tested at a time.
const TESTED: usize = 500;

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Mnist,
    Cifar(cifar::Variant),
}

impl Format {
    /// That of the data set in a folder.
    fn of(folder: &Path) -> Option<Self> {
        let has = |name: &str| folder.join(name).exists();
        if has("data_batch_1.bin") {
            Some(Format::Cifar(cifar::Variant::Cifar10))
        } else if has("train.bin") {
            Some(Format::Cifar(cifar::Variant::Cifar100))
        } else if has("train-images-idx3-ubyte") || has("train-images-idx3-ubyte.gz") {
            Some(Format::Mnist)
        } else {
            None
        }
    }
}

/// Whether a folder has a data set of images.
pub(super) fn are_in(folder: &Path) -> bool {
    Format::of(folder).is_some()
}

impl SampleKind for ImageKind {
    const DOMAIN: Domain = Domain::Images;

    /// Reads the data set in a folder: MNIST and data sets in the same format, or CIFAR.
    fn open(settings: &Settings) -> Result<(DataSet, Self)> {
        let Some(folder) = &settings.data else {
            return Err(Error::setting("there is no data set of images", FORMS));
        };
        let Some(format) = Format::of(folder) else {
            let is_folder = folder.is_dir();
            if text::is_text(folder) && folder.exists() || is_folder && !text::files(folder)?.is_empty() {
                let problem = of_other_networks(settings, Domain::Text);
                return Err(Error::file(folder, problem, format!("{}, or {FORMS}", networks_for(Domain::Text))));
            }
            let problem = match (is_folder, folder.exists()) {
                (true, _) => "there is no data set in this folder",
                (false, true) => "this is not a folder",
                (false, false) => "there is no such folder",
            };
            return Err(Error::file(folder, problem, FORMS));
        };
        let Split { train, test } = match format {
            Format::Mnist => mnist::load(folder)?,
            Format::Cifar(variant) => cifar::load(folder, variant, &Normalise::by(&COLOURS)?)?,
        };
        let shape = train.shape().try_into().map_err(|_| {
            let problem = format!("samples have {} dimensions, not channels, height and width", train.shape().len());
            Error::file(folder, problem, "give a data set of images")
        })?;
        let kind = ImageKind { shape, classes: train.classes() };
        let (train, test) = (Arc::new(train), Arc::new(test));
        Ok((DataSet { train, test, domain: Self::DOMAIN, tested: TESTED, identity: Vec::new() }, kind))
    }

    fn tensors(batch: Batch, device: &Device, dtype: DType) -> Result<(Flow, Tensor<1, Int>)> {
        let (images, labels) = batch.into_tensors::<4>(device)?;
        Ok((Flow::new().with(images.cast(dtype)), labels))
    }

    fn blank(&self, samples: usize, device: &Device) -> Flow {
        let [channels, height, width] = self.shape;
        Flow::new().with(Tensor::<4>::ones([samples, channels, height, width], device))
    }
}
