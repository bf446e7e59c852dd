//! All samplers by name: our own names, and those of Optuna's classes for scripts that were written for it.

use super::{
    AutomaticSampler, CmaEsSampler, GaussianSampler, GridSampler, NsgaSampler, RandomSampler, Sampler, SobolSampler,
    TpeSampler,
};
use crate::SearchError;

/// A sampler that can be chosen by name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// What it is called here.
    pub name: &'static str,
    /// What else it is called.
    pub aliases: &'static [&'static str],
    /// What it does, in one sentence.
    pub about: &'static str,
    make: fn() -> Box<dyn Sampler>,
}

impl Entry {
    /// A new one with its usual settings.
    pub fn make(&self) -> Box<dyn Sampler> {
        (self.make)()
    }
}

/// All of them.
pub const SAMPLERS: &[Entry] = &[
    Entry {
        name: "auto",
        aliases: &["default"],
        about: "a Gaussian process while trials are few, then TPE, or NSGA-II for several objectives",
        make: || Box::<AutomaticSampler>::default(),
    },
    Entry {
        name: "random",
        aliases: &["RandomSampler", "rand"],
        about: "uniform random points",
        make: || Box::new(RandomSampler),
    },
    Entry {
        name: "grid",
        aliases: &["GridSampler", "BruteForceSampler"],
        about: "every combination once, with ranges cut into 5 values",
        make: || Box::<GridSampler>::default(),
    },
    Entry {
        name: "sobol",
        aliases: &["QMCSampler", "qmc"],
        about: "points that fill the space evenly",
        make: || Box::new(SobolSampler),
    },
    Entry {
        name: "tpe",
        aliases: &["TPESampler"],
        about: "what good trials have in common and others have not",
        make: || Box::<TpeSampler>::default(),
    },
    Entry {
        name: "gaussian",
        aliases: &["GPSampler", "gp"],
        about: "where a Gaussian process expects most improvement",
        make: || Box::<GaussianSampler>::default(),
    },
    Entry {
        name: "cma-es",
        aliases: &["CmaEsSampler", "cmaes"],
        about: "a normal distribution that moves and adapts its shape, with restarts",
        make: || Box::<CmaEsSampler>::default(),
    },
    Entry {
        name: "nsga2",
        aliases: &["NSGAIISampler", "nsga"],
        about: "children of the best trials, spread over the front of several objectives",
        make: || Box::<NsgaSampler>::default(),
    },
];

/// The sampler called `name`, by any of its names.
pub fn find(name: &str) -> Result<&'static Entry, SearchError> {
    let called = |entry: &&Entry| entry.name == name || entry.aliases.contains(&name);
    let names = || SAMPLERS.iter().flat_map(|entry| [entry.name].into_iter().chain(entry.aliases.iter().copied()));
    SAMPLERS.iter().find(called).ok_or_else(|| SearchError::unknown("sampler", name, names()))
}
