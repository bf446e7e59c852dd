//! One process of `sirtaki train`, with a worker on each of its devices, or a server. Rank 0 also prints; where workers come
//! and go, that is whoever has this rank.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use sirtaki::{
    World,
    elastic::Rounds,
    train::{self, BenchReport, Epoch, Observer, Report, Settings, Start},
};
use sirtaki_engine::files;

use super::{advice, display::Display};
use crate::{args::train_worker::TrainWorker, commands::infer::look_for_hdf5, env, launch::outputs, printer::Printer};

/// Trains, and reports it if rank 0 is here.
pub fn work(arguments: &TrainWorker, printer: &mut Printer) -> Result<()> {
    look_for_hdf5(None, None);
    let mut settings: Settings = serde_json::from_str(&arguments.settings).context("cannot read the settings")?;
    // A run that was started again goes on where its last checkpoint was written.
    settings.resume |= env::process(env::RESTART).is_some_and(|restart| restart != "0");
    let stop: Arc<AtomicBool> = Arc::default();
    // The last one is what schedulers are usually told to send before the end.
    for signal in [SIGINT, SIGTERM, SIGUSR1] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot listen to signals")?;
    }
    if sirtaki::serve_unless(&stop).map_err(advice)? {
        return Ok(());
    }
    let ended = match arguments.elastic {
        true => in_rounds(arguments, &settings, printer, stop)?,
        false => on_devices(arguments, &settings, printer, &stop)?,
    };
    // The engines have ended: what they say at their end comes before the result, not after it.
    let Some((report, mut display)) = ended else { return Ok(()) };
    match &report {
        Outcome::Trained(report) => display.report(report)?,
        Outcome::Measured(report) => display.bench(report)?,
    }
    match &arguments.json {
        Some(file) => {
            let text = serde_json::to_string_pretty(&report)? + "\n";
            files::write(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
        }
        None => Ok(()),
    }
}

/// The result, and what shows it, on the process that has rank 0.
type Ended<'a> = Option<(Outcome, Display<'a>)>;

/// A worker that may be lost, or told to leave, while the others go on.
fn in_rounds<'a>(
    arguments: &'a TrainWorker,
    settings: &Settings,
    printer: &'a mut Printer,
    stop: Arc<AtomicBool>,
) -> Result<Ended<'a>> {
    let mut rounds = Rounds::new().map_err(advice)?;
    let mut watching = Watching::new(Some(Display::new(printer, arguments.quiet, false, &arguments.again)), stop);
    let report = train::run_in_rounds(&mut rounds, settings, &mut watching).map_err(advice)?;
    let outcome = report.map(Box::new).map(Outcome::Trained);
    Ok(outcome.zip(watching.display.filter(|_| watching.is_first)))
}

/// A worker on each device of this process, with fixed ranks.
fn on_devices<'a>(
    arguments: &'a TrainWorker,
    settings: &Settings,
    printer: &'a mut Printer,
    stop: &Arc<AtomicBool>,
) -> Result<Ended<'a>> {
    let printer = Mutex::new(Some(printer));
    let device = |world: &World| {
        let printer = printer.lock().unwrap_or_else(PoisonError::into_inner).take_if(|_| world.rank() == 0);
        on_device(world, arguments, settings, printer, stop.clone())
    };
    let reports = sirtaki::mirrored(arguments.devices.get(), device);
    let reports = reports.map_err(|error| error.downcast::<sirtaki::Error>().map_or_else(|other| other, advice))?;
    Ok(reports.into_iter().find_map(|(report, display)| Some((report, display?))))
}

/// The part of a worker, which may use the printer if it has it.
fn on_device<'a>(
    world: &World,
    arguments: &'a TrainWorker,
    settings: &Settings,
    printer: Option<&'a mut Printer>,
    stop: Arc<AtomicBool>,
) -> Result<(Outcome, Option<Display<'a>>)> {
    if let (Some(_), Some(file)) = (&printer, &arguments.json) {
        outputs::check(file, "--json")?;
    }
    let is_measured = arguments.bench.is_some();
    let display = printer.map(|printer| Display::new(printer, arguments.quiet, is_measured, &arguments.again));
    let mut watching = Watching::new(display, stop);
    let outcome = match &arguments.bench {
        None => train::run(world, settings, &mut watching).map(Box::new).map(Outcome::Trained),
        Some(bench) => {
            let bench = serde_json::from_str(bench).context("cannot read what to measure")?;
            train::bench(world, settings, bench, &mut watching).map(Box::new).map(Outcome::Measured)
        }
    };
    Ok((outcome.map_err(advice)?, watching.display))
}

/// What came of it.
#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Trained(Box<Report>),
    Measured(Box<BenchReport>),
}

/// Shows the run on rank 0, and ends it when the launcher asks for that.
struct Watching<'a> {
    display: Option<Display<'a>>,
    /// Whether this is rank 0.
    is_first: bool,
    /// Whether this is a trial of a study, which wants to hear how it goes.
    is_trial: bool,
    stop: Arc<AtomicBool>,
}

impl<'a> Watching<'a> {
    fn new(display: Option<Display<'a>>, stop: Arc<AtomicBool>) -> Self {
        Self { display, is_first: false, is_trial: env::process(env::OBJECTIVE).is_some(), stop }
    }
}

impl Observer for Watching<'_> {
    fn begins(&mut self, start: &Start) {
        self.is_first = start.rank == 0;
        if let Some(display) = self.display.as_mut().filter(|_| self.is_first) {
            display.begins(start);
        }
    }

    fn epoch_ends(&mut self, epoch: &Epoch) {
        if let Some(display) = self.display.as_mut().filter(|_| self.is_first) {
            display.epoch_ends(epoch);
            if self.is_trial {
                display.report_to_study(epoch);
            }
        }
    }

    fn bench_round(&mut self, number: usize, samples_per_second: f64) {
        if let Some(display) = self.display.as_mut().filter(|_| self.is_first) {
            display.bench_round(number, samples_per_second);
        }
    }

    fn replaced(&mut self, files: &[String]) {
        if let Some(display) = self.display.as_mut().filter(|_| self.is_first) {
            display.replaced(files);
        }
    }

    fn wants_to_stop(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
