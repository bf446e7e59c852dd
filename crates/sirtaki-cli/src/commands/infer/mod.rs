//! `sirtaki infer`: a network on a volume larger than memory, in one command.
//!
//! The command decides on tiles, begins the job in a folder beside the output, and starts itself again as workers that
//! take tiles from the ledger there. Nothing goes from worker to worker or to the launcher, so that workers which somebody
//! else started (`--join`), and those of a later attempt, are the same.
//!
//! - `prepare`: from what is typed to a job; `library` finds ONNX Runtime and HDF5, `memory` how much there is.
//! - `worker`: what a worker does; `watch`: the workers as seen by whoever started them.
//! - `show`: plans and results in words; `page` with `slice`: the result with pictures; `map`: which tiles are done.

mod library;
mod map;
mod memory;
mod page;
mod prepare;
mod show;
mod slice;
mod watch;
mod worker;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};
use sirtaki_engine::files;
use sirtaki_infer::{
    Job,
    place::Place,
    verify::{Verdict, verify},
};
use sirtaki_launch::{Outcome, placement::Placement};
use sirtaki_volume::ledger::Ledger;

pub(crate) use self::library::find as find_library;
pub use self::{library::look_for_hdf5, worker::work};
use self::{prepare::Decided, watch::Watched};
use crate::{
    args::infer::Infer,
    launch::outputs,
    printer::{Advice, Printer, Style},
};

/// How often a process looks whether another one has completed the output.
const LOOK: Duration = Duration::from_millis(100);

/// Decides what is to be done, and has it done.
pub fn run(arguments: &Infer, program: &Path, printer: &mut Printer) -> Result<u8> {
    look_for_hdf5(None, None);
    let settings = prepare::settings(arguments)?;
    let place = Place::of(&settings.output)?;
    if arguments.join && place.is_complete()? {
        return nothing_left(&place, printer);
    }
    let (options, placement) = prepare::placement(arguments, &settings.output)?;
    let mut prepared = prepare::decide(arguments, settings, &place, placement.plan.size())?;
    if !arguments.quiet {
        show::understood(&prepared.job.settings, printer)?;
    }
    if let Some(file) = &arguments.report {
        outputs::check(file, "--report")?;
    }
    if arguments.dry_run {
        show::plan(&mut prepared, placement.plan.size(), arguments.json, printer)?;
        return Ok(0);
    }
    prepared.look_at_input(&place, placement.plan.size(), printer)?;
    let mut begun = match place.begin(&prepared.job, &own_name(), arguments.join) {
        Err(_) if arguments.join && place.is_complete()? => return nothing_left(&place, printer),
        begun => begun?,
    };
    prepared.job = begun.job.clone();
    let ledger = &mut begun.ledger;
    if !arguments.quiet {
        show::beginning(&prepared.job, ledger, placement.plan.size(), printer)?;
    }
    let began = (Instant::now(), prepared.job.tiles_done(&prepared.job.plan()?, ledger));
    if !is_done(&prepared.job, ledger)? {
        let watched =
            watch::run(&prepared.job, ledger, (options, placement.clone()), program, (printer, arguments.quiet))?;
        if !is_done(&prepared.job, ledger)? {
            return Ok(unfinished(&prepared.job, &watched, ledger, printer));
        }
    }
    complete(arguments, &mut prepared, &place, (ledger, began, &placement), printer)
}

/// Others have completed the output.
fn nothing_left(place: &Place, printer: &mut Printer) -> Result<u8> {
    printer.message(&format!("{} is complete, nothing is left to do", place.output().display()));
    Ok(0)
}

/// Checks and completes an output whose tiles are all done, and reports it.
fn complete(
    arguments: &Infer,
    prepared: &mut Decided,
    place: &Place,
    (ledger, began, placement): (&mut Ledger, (Instant, usize), &Placement),
    printer: &mut Printer,
) -> Result<u8> {
    let verdict = match arguments.verify {
        Some(places) => {
            let mut model = prepared.model()?;
            Some(verify(&prepared.job, &mut *model, ledger, places, now())?)
        }
        None => None,
    };
    let done = prepared.job.tiles_done(&prepared.job.plan()?, ledger) - began.1;
    let seconds = began.0.elapsed().as_secs_f64();
    let (told, tiles) = (place.told(), ledger.done().clone());
    while !place.finish(&prepared.job, ledger, now())? {
        if place.is_complete()? {
            break;
        }
        thread::sleep(LOOK);
    }
    let workers = placement.plan.size();
    let result = show::Finished { job: &prepared.job, seconds, done, workers, told, tiles, verdict };
    if let Some(file) = &arguments.report {
        files::write(file, page::write(&result)?.as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    if arguments.json {
        result.print_json(printer)?;
    } else if !arguments.quiet {
        result.print(printer)?;
    }
    match verdict.filter(|verdict| verdict.equal < verdict.places) {
        Some(verdict) if prepared.is_exact() => Err(differs(&verdict).into()),
        _ => Ok(0),
    }
}

fn differs(verdict: &Verdict) -> Advice {
    let Verdict { places, equal, differing, values } = verdict;
    Advice::new(
        format!("{} of {places} places differ from the whole, in {differing} of {values} values", places - equal),
        "use --threads 1; if that is so already, the library computes tiles of different sizes differently",
    )
}

/// Says what is left of a job that did not get through.
fn unfinished(job: &Job, watched: &Watched, ledger: &Ledger, printer: &mut Printer) -> u8 {
    let counts = job.plan().and_then(|plan| Ok((job.tiles_done(&plan, ledger), job.order(&plan)?.len())));
    let (done, all) = counts.unwrap_or_default();
    let note = format!("{done} of {all} tiles are done; the same command continues");
    printer.labelled(Style::Bold, "note:", &note);
    match watched.outcome {
        Outcome::Interrupted(signal) if !watched.failed => 128 + (signal as u8 & 0x7f),
        _ => 1,
    }
}

/// Whether nothing is left to compute.
fn is_done(job: &Job, ledger: &mut Ledger) -> Result<bool> {
    ledger.refresh().map_err(sirtaki_infer::InferError::from)?;
    Ok(job.is_done(ledger)?)
}

/// What a worker is called in the ledger: its launcher has to know.
fn name_of(job: &str, rank: usize) -> String {
    format!("{job}/{rank}")
}

/// What this process is called there.
fn own_name() -> String {
    format!("{}:{}", rustix::system::uname().nodename().to_string_lossy(), std::process::id())
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}

/// A path that means the same in every folder and on every host.
fn absolute(path: &Path) -> Result<std::path::PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: the current folder is gone", path.display()))
}
