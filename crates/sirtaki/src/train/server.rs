//! Parameter servers as a run is told to use them.

use serde::{Deserialize, Serialize};
use sirtaki_server::{Delay, RuleSpec};

use super::settings::{Method, Precision, Settings, Stages};
use crate::{Error, Result, ServerOptimizer, ServerOptions, World};

/// Servers inside the worker processes, and how far workers may be apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// How many servers there are.
    pub servers: usize,
    /// How far workers may be apart.
    pub delay: Delay,
    /// How many servers have each block of weights.
    pub copies: usize,
}

impl Servers {
    /// Refuses what does not go together with it.
    pub(super) fn check(self, settings: &Settings) -> Result<()> {
        let Self { servers, delay, copies } = self;
        let other = match settings {
            Settings { stages: Some(Stages { shard_parameters: true, .. }), .. } => "--shard-parameters",
            Settings { stages: Some(_), .. } => "--mesh",
            Settings { precision: Precision::F16, .. } => "--precision f16",
            Settings { method: Method::Lars, .. } => "--optimizer lars",
            _ => "",
        };
        if !other.is_empty() {
            let problem = format!(
                "with --strategy server every weight is changed by itself, from gradients in f32 of whole networks, which \
                 {other} excludes"
            );
            return Err(Error::setting(problem, format!("leave out --strategy server or {other}")));
        }
        if settings.shards.is_some() && !delay.in_step() {
            let problem = format!("--delay {delay} lets workers be apart, so that bits depend on timing");
            return Err(Error::setting(problem, "take --delay 0, or leave out --reproducible"));
        }
        if copies > servers {
            let problem = format!("{copies} copies of each weight need as many servers, and there are {servers}");
            return Err(Error::setting(problem, format!("take --servers {copies}, or --copies {servers} at most")));
        }
        Ok(())
    }

    /// By the names that people type; nothing where the arithmetic is that of data parallelism.
    pub(super) fn told(self) -> Vec<(&'static str, String)> {
        match self.delay.in_step() {
            true => Vec::new(),
            false => vec![("strategy", "server".to_owned()), ("delay", self.delay.to_string())],
        }
    }

    pub(super) fn update(self, world: &World, method: Method) -> Result<ServerOptimizer> {
        let Self { servers, delay, copies } = self;
        ServerOptimizer::new(world, rule(method)?, ServerOptions { delay, servers, copies })
    }
}

/// What Burn's optimizer of that name does.
fn rule(method: Method) -> Result<RuleSpec> {
    let (beta_1, beta_2, epsilon) = (0.9, 0.999, 1e-5);
    match method {
        Method::Sgd => Ok(RuleSpec::momentum(0.9)),
        Method::Adam => Ok(RuleSpec::Adam { beta_1, beta_2, epsilon, weight_decay: 0.0 }),
        Method::AdamW => Ok(RuleSpec::AdamW { beta_1, beta_2, epsilon, weight_decay: 1e-4 }),
        Method::Lars => Err(Error::setting("servers have no lars", "take --optimizer sgd, adam or adamw")),
    }
}
