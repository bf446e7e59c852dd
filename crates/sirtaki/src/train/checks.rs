//! Checks, before a run begins, that settings, data and checkpoints make it possible.

use super::{
    images,
    settings::{Method, Settings},
    work_split::Shares,
};
use crate::{
    Error, Result, Resumed,
    data::{Position, Worker},
    schedule::{Decay, Schedule},
};

/// Whether this many workers can train as the settings say, as far as that can be checked without the data.
pub fn check(settings: &Settings, workers: usize) -> Result<()> {
    let copies = settings.copies(workers)?;
    let sizes = settings.batch.sizes(copies)?;
    if settings.shard_optimizer && settings.method == Method::Lars {
        let problem = "the state of lars cannot be split over workers: its rates come from the norms of whole layers";
        return Err(Error::setting(problem, "leave --shard-optimizer out, or take --optimizer sgd, adam or adamw"));
    }
    rates(settings, copies, 1)?;
    let worker = Worker { rank: 0, world: copies };
    Shares::new(0, Position::start(0), worker, settings.shards, sizes).map(drop)
}

/// Whether the data set of the settings can be read, and has enough samples for this many workers.
pub fn check_data(settings: &Settings, workers: usize) -> Result<()> {
    let sizes = settings.batch.sizes(settings.copies(workers)?)?;
    images::open(&settings.data)?.check_batch(settings.batch, sizes.1)
}

/// The learning rates of all steps.
pub(super) fn rates(settings: &Settings, workers: usize, steps_per_epoch: usize) -> Result<Schedule> {
    let (rate, times) = settings.base_rate(workers);
    let decay = Decay::Cosine { epochs: settings.epochs as f64, end: 0.0 };
    Schedule::new(rate, times, steps_per_epoch, settings.warmup, decay)
}

/// A run resumes with the same settings; only the number of workers may change.
pub(super) fn same_settings(resumed: &Resumed, settings: &Settings, workers: usize, samples: usize) -> Result<()> {
    let now = settings.resume_settings(workers, samples);
    let before = &resumed.manifest.settings;
    let Some(name) = before.keys().chain(now.keys()).find(|&name| before.get(name) != now.get(name)) else {
        return Ok(());
    };
    let say = |of: Option<&String>| of.map_or("nothing".to_owned(), Clone::clone);
    let problem =
        format!("{name}: it was {} when this run began, now it is {}", say(before.get(name)), say(now.get(name)));
    Err(Error::file(&resumed.path, problem, format!("give the --{name} that the run began with, or begin a new run")))
}
