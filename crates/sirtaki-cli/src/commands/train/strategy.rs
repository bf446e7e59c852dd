//! What `--strategy` and the options that belong to one strategy mean.

use std::num::NonZeroUsize;

use anyhow::Result;
use sirtaki::{
    server::Delay,
    train::{LearningStrategy, Local, Servers},
};

use crate::{
    args::train::{StrategyName, Train},
    printer::Advice,
};

/// How workers learn together.
pub(super) fn strategy(arguments: &Train) -> Result<LearningStrategy> {
    refuse_options_of_others(arguments)?;
    match arguments.strategy {
        StrategyName::Data if arguments.shard_optimizer => Ok(LearningStrategy::Sharded),
        StrategyName::Data => Ok(LearningStrategy::Data),
        StrategyName::Sharded => Ok(LearningStrategy::Sharded),
        other if arguments.shard_optimizer => {
            let problem = format!("--shard-optimizer is a strategy, and --strategy {} is another one", other.name());
            Err(Advice::new(problem, format!("leave out --strategy {} or --shard-optimizer", other.name())).into())
        }
        StrategyName::Central => Ok(LearningStrategy::Central),
        StrategyName::Server => {
            let Train { delay, copies, .. } = arguments;
            let (servers, copies) = (servers(arguments).get(), copies.map_or(1, NonZeroUsize::get));
            let delay = delay.unwrap_or(Delay::Bounded(0));
            Ok(LearningStrategy::Server(Servers { servers, delay, copies }))
        }
        StrategyName::Local => {
            let Train { every, after, outer, .. } = arguments;
            let every = every.map_or(8, |every| every.get() as u64);
            Ok(LearningStrategy::Local(Local { every, after: after.unwrap_or(0), outer: outer.is_some() }))
        }
    }
}

/// How many servers the launcher starts beside the workers.
pub(super) fn servers(arguments: &Train) -> NonZeroUsize {
    arguments.job.0.roles.servers.unwrap_or(NonZeroUsize::MIN)
}

/// An option that means nothing to the chosen strategy is a mistake.
fn refuse_options_of_others(arguments: &Train) -> Result<()> {
    let Train { every, after, outer, delay, copies, job, .. } = arguments;
    let options = [
        ("--servers", job.0.roles.servers.is_some(), StrategyName::Server),
        ("--delay", delay.is_some(), StrategyName::Server),
        ("--copies", copies.is_some(), StrategyName::Server),
        ("--every", every.is_some(), StrategyName::Local),
        ("--after", after.is_some(), StrategyName::Local),
        ("--outer", outer.is_some(), StrategyName::Local),
    ];
    let wrong = |(_, is_given, of): &&(&str, bool, StrategyName)| *is_given && *of != arguments.strategy;
    match options.iter().find(wrong) {
        None => Ok(()),
        Some((option, _, of)) => {
            let hint = format!("add --strategy {}, or leave it out", of.name());
            Err(Advice::new(format!("{option} is an option of --strategy {}", of.name()), hint).into())
        }
    }
}
