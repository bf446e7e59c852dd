//! Images and rows of tables: samples with a class each, from any of the forms that data sets have.

use std::{path::Path, sync::Arc};

use burn::tensor::{DType, Device, Int, Tensor};
use sirtaki_launch::words::grouped;

use super::{
    DataSet, Domain, SampleKind, Settings,
    formats::{DataContent, Format, FoundData, find, layouts},
    refuse, refuse_others,
    replaced::Replaced,
    synthetic::Noise,
};
use crate::{
    Error, Flow, Result,
    data::{Batch, Samples, Split, Subset},
    train::Synthetic,
};

/// What samples are like: channels, height and width, and the number of classes. A row of a table has its columns as
/// channels of one pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::train) struct ImageKind {
    pub(in crate::train) shape: [usize; 3],
    pub(in crate::train) classes: usize,
}

/// Values of the samples that are tested at a time, and the most samples.
const TESTED: (usize, usize) = (500 * 3 * 32 * 32, 500);

impl ImageKind {
    fn of(path: &Path, samples: &dyn Samples) -> Result<Self> {
        let shape = samples.shape().try_into().map_err(|_| {
            let problem = format!("samples have {} dimensions, not channels, height and width", samples.shape().len());
            Error::file(path, problem, "give a data set of images")
        })?;
        Ok(ImageKind { shape, classes: samples.classes() })
    }

    /// Reads the data set at a path, of any form.
    pub(super) fn read(path: &Path, image_size: Option<usize>) -> Result<(&'static Format, FoundData, Self)> {
        let Some(format) = find(path) else {
            let problem = match (path.is_dir(), path.exists()) {
                (true, _) => "there is no data set in this folder",
                (false, true) => "this is not a data set",
                (false, false) => "there is no such file or folder",
            };
            return Err(Error::file(path, problem, format!("name {}", layouts())));
        };
        let DataContent::Classified(read) = format.content else {
            let problem = format!("this is a data set of {}", format.domain.name());
            return Err(Error::file(path, problem, format!("name {}", layouts())));
        };
        let side = image_size.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
        let found = read(path, side)?;
        let kind = Self::of(path, found.train.as_ref())?;
        Ok((format, found, kind))
    }

    /// Made-up samples.
    fn made(made: Synthetic) -> Result<(DataSet, Self)> {
        let (noise, kind) = (Arc::new(Noise::new(made)?), ImageKind { shape: made.shape, classes: made.classes });
        let data = DataSet {
            train: noise.clone(),
            test: noise,
            domain: Domain::Images,
            tested: 1,
            identity: Vec::new(),
            found: format!("made-up images of {}", kind.describe(Domain::Images)),
            unreadable: Vec::new(),
            replaced: Vec::new(),
        };
        Ok((data, kind))
    }

    /// What it is like, for people.
    fn describe(&self, domain: Domain) -> String {
        let [channels, height, width] = self.shape;
        let classes = grouped(self.classes as f64);
        match (domain, channels) {
            (Domain::Tables, _) => format!("{channels} numbers in {classes} classes"),
            (_, 1) => format!("{height}×{width} pixels in {classes} classes"),
            _ => format!("{height}×{width} pixels and {channels} channels in {classes} classes"),
        }
    }
}

impl SampleKind for ImageKind {
    const DOMAIN: Domain = Domain::Images;

    /// Reads the data set of the settings, and splits off a test set if it has none.
    fn open(settings: &Settings) -> Result<(DataSet, Self)> {
        if let Some(made) = settings.synthetic {
            return Self::made(made);
        }
        let Some(path) = &settings.data else {
            return Err(Error::setting("there is no data set", format!("name {} with --data", layouts())));
        };
        let forms = format!("name {}", layouts());
        refuse_others(settings, path, &forms)?;
        let (format, FoundData { train, test, domain, unreadable, identity }, kind) =
            Self::read(path, settings.image_size)?;
        refuse(settings, path, domain, &forms)?;
        let (count, samples) = (grouped(train.count() as f64), domain.samples());
        let (train, test, rest) = match test {
            Some(test) => {
                let rest = format!("{} more to test with", grouped(test.count() as f64));
                (train, test, rest)
            }
            None => {
                let Split { train, test } = Subset::split_off(train).map_err(|error| error.in_file(path))?;
                let rest = format!("{} of them set aside to test with", grouped(test.count() as f64));
                (Arc::new(train) as Arc<dyn Samples>, Arc::new(test) as Arc<dyn Samples>, rest)
            }
        };
        let values: usize = kind.shape.iter().product();
        let (train, test) = (Arc::new(Replaced::new(train)), Arc::new(Replaced::new(test)));
        let data = DataSet {
            train: train.clone(),
            test: test.clone(),
            domain,
            tested: (TESTED.0 / values.max(1)).clamp(1, TESTED.1),
            identity: identity.map(|identity| ("data", identity)).into_iter().collect(),
            found: format!("{}: {count} {samples} of {}; {rest}", format.name, kind.describe(domain)),
            unreadable,
            replaced: vec![train, test],
        };
        Ok((data, kind))
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
