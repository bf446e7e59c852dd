//! How workers learn together, as a run is told to.
//!
//! This is the only place that distinguishes strategies. The training loop has an [`Update`] and nothing else of them; a
//! new strategy is one more variant, with what it refuses, what a checkpoint has to remember of it, and its `Update`.

use serde::{Deserialize, Serialize};

use super::{
    local::Local,
    server::Servers,
    settings::{Method, Settings},
};
use crate::{Chain, DistributedOptimizer, Error, Layer, Result, Update, World};

/// How workers learn together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearningStrategy {
    /// The mean of all gradients in every step; every worker has weights and state.
    #[default]
    Data,
    /// The same, with the optimizer's state split over the workers.
    Sharded,
    /// The same, with weights in memory once per host.
    Central,
    /// Weights and state on parameter servers.
    Server(Servers),
    /// Every worker by itself, with weights averaged now and then.
    Local(Local),
}

impl LearningStrategy {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            LearningStrategy::Data => "data",
            LearningStrategy::Sharded => "sharded",
            LearningStrategy::Central => "central",
            LearningStrategy::Server(_) => "server",
            LearningStrategy::Local(_) => "local",
        }
    }

    /// Refuses what does not go together with it.
    pub(super) fn check(self, settings: &Settings) -> Result<()> {
        match self {
            LearningStrategy::Data => Ok(()),
            LearningStrategy::Sharded | LearningStrategy::Central if settings.method == Method::Lars => {
                let problem =
                    "the state of lars cannot be split over workers: its rates come from the norms of whole layers";
                let hint = "leave --strategy or --shard-optimizer out, or take --optimizer sgd, adam or adamw";
                Err(Error::setting(problem, hint))
            }
            LearningStrategy::Sharded | LearningStrategy::Central => Ok(()),
            LearningStrategy::Server(servers) => servers.check(settings),
            LearningStrategy::Local(_) => Local::check(settings),
        }
    }

    /// What must be the same to go on from a checkpoint, by the names that people type: nothing where the arithmetic is
    /// that of [`LearningStrategy::Data`].
    pub(super) fn told(self) -> Vec<(&'static str, String)> {
        match self {
            LearningStrategy::Data | LearningStrategy::Sharded | LearningStrategy::Central => Vec::new(),
            LearningStrategy::Server(servers) => servers.told(),
            LearningStrategy::Local(local) => local.told().into(),
        }
    }

    /// Whether gradients may be sent as a smaller type: not where they go to those who have their elements.
    pub(super) fn compresses(self) -> bool {
        match self {
            LearningStrategy::Data | LearningStrategy::Local(_) => true,
            LearningStrategy::Sharded | LearningStrategy::Central | LearningStrategy::Server(_) => false,
        }
    }

    /// How gradients become weights, from an optimizer for all workers with this method. All of them call it.
    pub(super) fn update<L: Layer>(
        self,
        world: &World,
        method: Method,
        optimizer: DistributedOptimizer,
    ) -> Result<Box<dyn Update<Chain<L>>>> {
        Ok(match self {
            LearningStrategy::Data => Box::new(optimizer),
            LearningStrategy::Sharded => Box::new(optimizer.shard()),
            LearningStrategy::Central => Box::new(optimizer.shard().central()?),
            LearningStrategy::Server(servers) => Box::new(servers.update(world, method)?),
            LearningStrategy::Local(local) => Box::new(local.update(optimizer)?),
        })
    }
}
