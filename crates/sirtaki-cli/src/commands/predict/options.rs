//! What the options of strategies, noise and failures mean.

use std::num::NonZeroUsize;

use anyhow::Result;

use super::{
    faults::{Faults, Recovery},
    strategy::Strategy,
    work::Work,
};
use crate::{
    args::{
        predict_options::{FailureOptions, StrategyOptions},
        strategy::{DelayLimit, StrategyName},
    },
    printer::Advice,
};

/// Steps between two averages, as in `sirtaki train`.
const EVERY: usize = 8;
/// Delays that are compared unless one is given.
const DELAYS: [Option<u64>; 3] = [Some(0), Some(4), None];
/// Seconds of a checkpoint, and until all workers run again.
const CHECKPOINT: f64 = 20.0;
const RESTART: f64 = 120.0;

/// Computing times that vary by as much as was typed.
pub(super) fn set_noise(work: &mut Work, noise: Option<f64>) {
    match noise {
        None => {}
        Some(noise) if noise > 0.0 => work.noise = Some(noise),
        // No noise at all: the mean, always.
        Some(_) => {
            work.noise = Some(0.0);
            work.samples = work.basis();
            work.noise = None;
        }
    }
}

/// The strategies to predict.
pub(super) fn strategies(options: &StrategyOptions) -> Result<Vec<Strategy>> {
    let StrategyOptions { strategy, every, servers, delay } = options;
    let names = match (strategy, every) {
        (Some(names), _) => names.0.clone(),
        (None, Some(_)) => vec![StrategyName::Local],
        (None, None) => vec![StrategyName::Data],
    };
    refuse_options_of_others(options, &names)?;
    let servers = servers.map_or(1, NonZeroUsize::get);
    let mut list = Vec::new();
    for name in &names {
        match name {
            StrategyName::Data => list.push(Strategy::Data),
            StrategyName::Sharded => list.push(Strategy::Sharded),
            StrategyName::Central => list.push(Strategy::Central),
            StrategyName::Local => list.push(Strategy::Local { every: every.map_or(EVERY, NonZeroUsize::get) }),
            StrategyName::Server => {
                let delays = match delay {
                    Some(DelayLimit(delay)) => vec![*delay],
                    None if names.len() > 1 => DELAYS.to_vec(),
                    None => vec![Some(0)],
                };
                list.extend(delays.into_iter().map(|delay| Strategy::Server { servers, delay }));
            }
        }
    }
    Ok(list)
}

/// An option that means nothing to the chosen strategies is a mistake.
fn refuse_options_of_others(options: &StrategyOptions, names: &[StrategyName]) -> Result<()> {
    let StrategyOptions { every, servers, delay, .. } = options;
    let options = [
        ("--servers", servers.is_some(), StrategyName::Server),
        ("--delay", delay.is_some(), StrategyName::Server),
        ("--every", every.is_some(), StrategyName::Local),
    ];
    match options.iter().find(|(_, is_given, of)| *is_given && !names.contains(of)) {
        None => Ok(()),
        Some((option, _, of)) => {
            let hint = format!("add --strategy {}, or leave it out", of.name());
            Err(Advice::new(format!("{option} is an option of --strategy {}", of.name()), hint).into())
        }
    }
}

/// The failures to predict, if any.
pub(super) fn faults(options: &FailureOptions) -> Option<Faults> {
    let recovery = match options.recovery {
        Some(seconds) => Recovery::Elastic { seconds },
        None => Recovery::Checkpoints {
            every: options.checkpoint_every,
            seconds: options.checkpoint_time.unwrap_or(CHECKPOINT),
        },
    };
    options.mtbf.map(|mtbf| Faults { mtbf, recovery, restart: options.restart_time.unwrap_or(RESTART) })
}
