//! What networks are trained on. Each kind of samples is a file here: what its samples are as tensors. `formats` has the
//! forms in which data sets are stored.

mod formats;
mod images;
mod replaced;
mod synthetic;
mod text;
mod volumes;

use std::{path::Path, sync::Arc};

use burn::tensor::{DType, Device, Int, Tensor};
use serde::{Deserialize, Serialize};

use self::formats::{FORMATS, find};
pub(super) use self::{images::ImageKind, replaced::Replaced, text::TextKind, volumes::VolumeKind};
use super::{
    networks::Model,
    settings::{BatchSize, Settings},
};
use crate::{
    Error, Flow, Result,
    data::{Batch, Samples},
};

/// What a network is trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// Images, each of a class.
    Images,
    /// Rows of numbers, each of a class.
    Tables,
    /// Sequences of characters, each followed by another one.
    Text,
    /// Patches of volumes, of whose voxels each is of a class.
    Volumes,
}

impl Domain {
    /// What samples are called.
    pub fn samples(self) -> &'static str {
        match self {
            Domain::Images => "images",
            Domain::Tables => "rows",
            Domain::Text => "sequences",
            Domain::Volumes => "patches",
        }
    }

    /// The samples per step of a worker, and of all, for which learning rates are usually good: a sequence has many
    /// characters to learn from, and a patch many voxels.
    pub fn usual_batch(self) -> (usize, usize) {
        match self {
            Domain::Images | Domain::Tables => (64, 128),
            Domain::Text => (16, 32),
            Domain::Volumes => (4, 8),
        }
    }

    /// What a data set consists of.
    fn name(self) -> &'static str {
        match self {
            Domain::Images => "images",
            Domain::Tables => "rows of numbers",
            Domain::Text => "text",
            Domain::Volumes => "volumes",
        }
    }

    /// What networks do with it.
    fn use_by_networks(self) -> &'static str {
        match self {
            Domain::Images => "classifies images",
            Domain::Tables => "classifies rows of numbers",
            Domain::Text => "continues text",
            Domain::Volumes => "classifies voxels",
        }
    }
}

/// Samples to train and to test with.
#[derive(Clone)]
pub(super) struct DataSet {
    pub(super) train: Arc<dyn Samples>,
    pub(super) test: Arc<dyn Samples>,
    pub(super) domain: Domain,
    /// Samples that are tested at a time.
    pub(super) tested: usize,
    /// What must be the same to go on from a checkpoint, by the names that people type.
    pub(super) identity: Vec<(&'static str, String)>,
    /// What was found, in one line.
    pub(super) found: String,
    /// Files or lines that were left out, and why.
    pub(super) unreadable: Vec<String>,
    /// The samples whose places others may take.
    pub(super) replaced: Vec<Arc<Replaced>>,
}

impl DataSet {
    /// Fails if a step of all workers has more samples than there are.
    pub(super) fn check_batch(&self, batch: BatchSize, all: usize) -> Result<()> {
        let (count, samples) = (self.train.count(), self.domain.samples());
        if all <= count {
            return Ok(());
        }
        let problem = format!("{batch} makes steps of {all} {samples}, and there are only {count} to train with");
        Err(Error::setting(problem, "take a smaller batch"))
    }
}

/// Samples of one kind, and what they are like.
pub(super) trait SampleKind: Sized {
    const DOMAIN: Domain;

    /// The data set of the settings.
    fn open(settings: &Settings) -> Result<(DataSet, Self)>;

    /// What goes into a network, and the classes that should come out.
    fn tensors(batch: Batch, device: &Device, dtype: DType) -> Result<(Flow, Tensor<1, Int>)>;

    /// As many samples that say nothing.
    fn blank(&self, samples: usize, device: &Device) -> Flow;
}

/// Refuses a data set that is one for other networks, as far as names tell; `forms` says what can be trained with.
fn refuse_others(settings: &Settings, path: &Path, forms: &str) -> Result<()> {
    find(path).map_or(Ok(()), |format| refuse(settings, path, format.domain, forms))
}

/// The same for one that consists of this.
fn refuse(settings: &Settings, path: &Path, found: Domain, forms: &str) -> Result<()> {
    if settings.model.takes(found) {
        return Ok(());
    }
    let (model, own) = (settings.model.name(), settings.model.domain());
    let problem = format!("this is a data set of {}, and {model} {}", found.name(), own.use_by_networks());
    let names: Vec<&str> = Model::all().filter(|model| model.takes(found)).map(Model::name).collect();
    Err(Error::file(path, problem, format!("choose --model {}, or {forms}", names.join(" or "))))
}

/// The forms that data sets may have, a line for each.
pub fn layouts() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.layout)
}

/// The network for the data set at a path, if nobody asks for another one: it depends on what its samples are like.
pub fn suggest(path: &Path, image_size: Option<usize>) -> Result<Model> {
    match find(path).map(|format| format.domain) {
        Some(Domain::Text) => return Model::named("transformer"),
        Some(Domain::Volumes) => return Model::named("msd"),
        _ => {}
    }
    let (_, found, kind) = ImageKind::read(path, image_size)?;
    Model::named(suited(found.domain, kind.shape))
}

/// The name of the network for samples like these.
fn suited(domain: Domain, [channels, height, width]: [usize; 3]) -> &'static str {
    match (domain, channels, height.min(width)) {
        (Domain::Text, ..) => "transformer",
        (Domain::Volumes, ..) => "msd",
        (Domain::Tables, ..) | (_, _, ..6) => "mlp",
        (_, _, 64..) => "resnet18",
        (_, 1, 16..) => "lenet",
        _ => "cnn",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_data_set_has_a_network_that_takes_it() {
        for (domain, shape, name) in [
            (Domain::Tables, [5, 1, 1], "mlp"),
            (Domain::Images, [1, 28, 28], "lenet"),
            (Domain::Images, [3, 32, 32], "cnn"),
            (Domain::Images, [3, 64, 80], "resnet18"),
            (Domain::Images, [1, 8, 8], "cnn"),
            (Domain::Images, [1, 4, 40], "mlp"),
            (Domain::Text, [1, 1, 1], "transformer"),
            (Domain::Volumes, [1, 1, 1], "msd"),
        ] {
            assert_eq!(suited(domain, shape), name);
            assert!(Model::named(name).unwrap().takes(domain));
        }
    }
}
