//! Local SGD as a run is told to use it.

use serde::{Deserialize, Serialize};

use super::settings::{Settings, Stages};
use crate::{DistributedOptimizer, Error, LocalSgd, Result};

/// Rate and momentum of the outer steps, as the authors of DiLoCo use them.
const OUTER: (f64, f64) = (0.7, 0.9);

/// When workers that step by themselves average their weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// Steps of a window.
    pub every: u64,
    /// Steps with the mean of all gradients before the first window.
    pub after: u64,
    /// Whether changes of a window are gradients of an outer optimizer, with Nesterov's momentum.
    pub outer: bool,
}

impl Local {
    /// Refuses what does not go together with it.
    pub(super) fn check(settings: &Settings) -> Result<()> {
        let other = match settings {
            Settings { stages: Some(Stages { shard_parameters: true, .. }), .. } => "--shard-parameters",
            Settings { stages: Some(_), .. } => "--mesh",
            Settings { shards: Some(_), .. } => "--reproducible",
            _ => return Ok(()),
        };
        let problem = format!("with --strategy local every worker steps by itself, which {other} excludes");
        Err(Error::setting(problem, format!("leave out --strategy local or {other}")))
    }

    /// By the names that people type.
    pub(super) fn told(self) -> [(&'static str, String); 4] {
        [
            ("strategy", "local".to_owned()),
            ("every", self.every.to_string()),
            ("after", self.after.to_string()),
            ("outer", if self.outer { "nesterov" } else { "none" }.to_owned()),
        ]
    }

    pub(super) fn update(self, optimizer: DistributedOptimizer) -> Result<LocalSgd> {
        let update = LocalSgd::new(optimizer)?.every(self.every).after(self.after);
        Ok(if self.outer { update.outer(OUTER.0, OUTER.1) } else { update })
    }
}
