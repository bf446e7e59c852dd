//! What `--strategy` and the options that belong to one strategy mean.

use anyhow::Result;
use sirtaki::train::{LearningStrategy, Local};

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
        StrategyName::Local => {
            let Train { every, after, outer, .. } = arguments;
            let every = every.map_or(8, |every| every.get() as u64);
            Ok(LearningStrategy::Local(Local { every, after: after.unwrap_or(0), outer: outer.is_some() }))
        }
    }
}

/// An option that means nothing to the chosen strategy is a mistake.
fn refuse_options_of_others(arguments: &Train) -> Result<()> {
    let Train { every, after, outer, .. } = arguments;
    let options = [
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
