//! A run whose workers come and go: one world after the other, with what was learned kept in memory.
//!
//! A step either is done or has changed nothing, so a worker has the state after whole steps at any time, without copies.
//! Workers of a round may be one step apart when it ends; then all go on from the one that has come furthest.

use std::{
    fs::{self, File},
    path::Path,
};

use sirtaki_engine::{files, job::JobError};

use super::{
    super::{
        networks::Network,
        report::{Observer, Report},
        settings::Settings,
    },
    Course,
    begin::{Kept, Opened},
};
use crate::{Error, Result, alone, checkpoint, elastic::Rounds};

/// Locked by the worker that writes the checkpoint of a job that cannot go on.
const LOCK: &str = ".ending";

/// Trains as the settings say, with whoever is there. Returns nothing on a worker that was told to leave, or whose state
/// another one has saved because the job cannot go on.
pub fn run_in_rounds(rounds: &mut Rounds, settings: &Settings, observer: &mut dyn Observer) -> Result<Option<Report>> {
    settings.model.train_in_rounds(rounds, settings, observer)
}

/// The same for a network by its type.
pub(in super::super) fn train_in_rounds<N: Network>(
    rounds: &mut Rounds,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Option<Report>> {
    // Before the others are met: they do not wait for someone who reads files.
    let opened = Opened::<N>::new(settings)?;
    let mut kept: Option<Kept<N::Layer>> = None;
    loop {
        let world = match rounds.next_world() {
            Ok(Some(world)) => world,
            Ok(None) => return Ok(None),
            // The launcher says why.
            Err(Error::Job(JobError::Over { .. })) => {
                return kept.map_or(Ok(None), |kept| save_alone(settings, &opened, &kept, observer));
            }
            Err(error) => return Err(error),
        };
        let error = match Course::begin(&world, settings, &opened, Some(&*rounds), kept.as_ref()) {
            Ok(mut course) => match course.run(observer) {
                Ok(report) => {
                    course.export(&opened.network)?;
                    return Ok(Some(report));
                }
                Err(error) => {
                    kept = course.keep();
                    error
                }
            },
            Err(error) => error,
        };
        if !rounds.goes_on_after(&error) {
            return Err(error);
        }
    }
}

/// Writes a checkpoint without the others, unless one of them has written one that is as new.
fn save_alone<N: Network>(
    settings: &Settings,
    opened: &Opened<N>,
    kept: &Kept<N::Layer>,
    observer: &mut dyn Observer,
) -> Result<Option<Report>> {
    let Some(folder) = &settings.checkpoints else { return Ok(None) };
    one_at_a_time(folder, || {
        let newest = checkpoint::newest(folder, settings.model.name())?;
        if newest.is_some_and(|found| found.checkpoint.manifest.step >= kept.so_far.step) {
            return Ok(None);
        }
        let world = alone()?;
        let mut course = Course::begin(&world, settings, opened, None, Some(kept))?;
        course.so_far.interrupted = true;
        course.run(observer).map(Some)
    })
}

/// Does some work while no other worker does; where the file system has no locks, nobody waits.
fn one_at_a_time<T>(folder: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    files::make_private(folder).map_err(Error::io("create", folder))?;
    let path = folder.join(LOCK);
    let file = File::create(&path).map_err(Error::io("write", &path))?;
    let _ = file.lock();
    let done = work();
    let _ = fs::remove_file(&path);
    done
}
