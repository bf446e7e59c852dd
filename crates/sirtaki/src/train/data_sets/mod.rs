//! What networks are trained on. Each kind of samples is a file here: how a data set is found, and what its samples are as
//! tensors.

mod images;
mod text;

use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor};
use serde::{Deserialize, Serialize};

pub(super) use self::{images::ImageKind, text::TextKind};
use super::settings::{BatchSize, Model, Settings};
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
    /// Sequences of characters, each followed by another one.
    Text,
}

impl Domain {
    /// What samples are called.
    pub fn samples(self) -> &'static str {
        match self {
            Domain::Images => "images",
            Domain::Text => "sequences",
        }
    }

    /// The samples per step of a worker, and of all, for which learning rates are usually good: a sequence has many
    /// characters to learn from.
    pub fn usual_batch(self) -> (usize, usize) {
        match self {
            Domain::Images => (64, 128),
            Domain::Text => (16, 32),
        }
    }

    /// What a data set consists of.
    fn name(self) -> &'static str {
        match self {
            Domain::Images => "images",
            Domain::Text => "text",
        }
    }

    /// What networks do with it.
    fn use_by_networks(self) -> &'static str {
        match self {
            Domain::Images => "classifies images",
            Domain::Text => "continues text",
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

/// There is a data set, but for other networks.
fn of_other_networks(settings: &Settings, found: Domain) -> String {
    let (model, does) = (settings.model, settings.model.domain().use_by_networks());
    format!("this is a data set of {}, and {} {does}", found.name(), model.name())
}

/// What to do about it: the networks for such a data set.
fn networks_for(found: Domain) -> String {
    let names: Vec<&str> = Model::all().filter(|model| model.domain() == found).map(Model::name).collect();
    format!("choose --model {}", names.join(" or "))
}
