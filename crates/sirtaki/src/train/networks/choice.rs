//! A network that was chosen by its name.

use serde::{Deserialize, Serialize};

use super::{NETWORKS, NetworkEntry};
use crate::{
    Error, Result, World,
    elastic::Rounds,
    train::{
        data_sets::Domain,
        report::{BenchReport, Observer, Report},
        settings::{Bench, Method, NetworkSize, Settings, Synthetic},
    },
};

/// One of the networks to choose from.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Model(&'static NetworkEntry);

impl Model {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Model> {
        NETWORKS.iter().map(Model)
    }

    /// The network of this name.
    pub fn named(name: &str) -> Result<Model> {
        Self::all().find(|model| model.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            Error::setting(format!("there is no network `{name}`"), format!("choose one of {}", names.join(", ")))
        })
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// What it is, in one line.
    pub fn about(self) -> &'static str {
        self.0.about
    }

    /// What it is usually trained on.
    pub fn domain(self) -> Domain {
        self.0.takes[0]
    }

    /// Whether it can be trained on this.
    pub fn takes(self, domain: Domain) -> bool {
        self.0.takes.contains(&domain)
    }

    /// Whether it keeps running statistics, as those of batch norm.
    pub fn has_statistics(self) -> bool {
        self.0.has_statistics
    }

    /// Made-up samples such as those it is usually trained on.
    pub fn synthetic(self) -> Synthetic {
        Synthetic { shape: self.0.usual.shape, classes: self.0.usual.classes }
    }

    /// An optimizer that suits it.
    pub fn method(self) -> Method {
        self.0.method
    }

    /// A share of the test samples that it should recognise.
    pub fn target(self) -> f64 {
        self.0.target
    }

    /// Over how many workers each of its layers can be split.
    pub fn parts(self) -> usize {
        self.0.parts
    }

    /// Its size unless another one is asked for, if it can be chosen.
    pub fn size(self) -> Option<NetworkSize> {
        self.0.size
    }

    /// Whether it can be written as an ONNX file.
    pub fn exports(self) -> bool {
        self.0.exports
    }

    pub(in crate::train) fn check_data(self, settings: &Settings, workers: usize) -> Result<()> {
        (self.0.check_data)(settings, workers)
    }

    pub(in crate::train) fn train(
        self,
        world: &World,
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<Report> {
        (self.0.train)(world, settings, observer)
    }

    pub(in crate::train) fn train_in_rounds(
        self,
        rounds: &mut Rounds,
        settings: &Settings,
        observer: &mut dyn Observer,
    ) -> Result<Option<Report>> {
        (self.0.train_in_rounds)(rounds, settings, observer)
    }

    pub(in crate::train) fn bench(
        self,
        world: &World,
        settings: &Settings,
        bench: Bench,
        observer: &mut dyn Observer,
    ) -> Result<BenchReport> {
        (self.0.bench)(world, settings, bench, observer)
    }
}

impl Default for Model {
    fn default() -> Self {
        Self(&NETWORKS[0])
    }
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Model {}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Model> for String {
    fn from(model: Model) -> Self {
        model.name().into()
    }
}

impl TryFrom<String> for Model {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::named(&name)
    }
}
