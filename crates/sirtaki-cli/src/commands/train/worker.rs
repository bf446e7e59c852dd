//! One process of `sirtaki train`, with a worker on each of its devices. Rank 0 also prints.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use sirtaki::{
    World,
    train::{self, Epoch, Observer, Report, Settings, Start},
};
use sirtaki_engine::files;

use super::{advice, display::Display};
use crate::{args::train::TrainWorker, env, launch::outputs, printer::Printer};

/// Trains, and reports it if rank 0 is here.
pub fn work(arguments: &TrainWorker, printer: &mut Printer) -> Result<()> {
    let mut settings: Settings = serde_json::from_str(&arguments.settings).context("cannot read the settings")?;
    // A run that was started again goes on where its last checkpoint was written.
    settings.resume |= env::process(env::RESTART).is_some_and(|restart| restart != "0");
    let stop: Arc<AtomicBool> = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot listen to signals")?;
    }
    let printer = Mutex::new(Some(printer));
    let device = |world: &World| {
        let printer = printer.lock().unwrap_or_else(PoisonError::into_inner).take_if(|_| world.rank() == 0);
        on_device(world, arguments, &settings, printer, stop.clone())
    };
    // When this returns the engines have ended: what they say at their end comes before the result, not after it.
    let reports = sirtaki::mirrored(arguments.devices.get(), device);
    let reports = reports.map_err(|error| error.downcast::<sirtaki::Error>().map_or_else(|other| other, advice))?;
    let Some((report, mut display)) = reports.into_iter().find_map(|(report, display)| Some((report, display?))) else {
        return Ok(());
    };
    display.report(&report)?;
    match &arguments.json {
        Some(file) => {
            let text = serde_json::to_string_pretty(&report)? + "\n";
            files::write(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
        }
        None => Ok(()),
    }
}

/// The part of a worker, which may use the printer if it has it.
fn on_device<'a>(
    world: &World,
    arguments: &'a TrainWorker,
    settings: &Settings,
    printer: Option<&'a mut Printer>,
    stop: Arc<AtomicBool>,
) -> Result<(Report, Option<Display<'a>>)> {
    if let (Some(_), Some(file)) = (&printer, &arguments.json) {
        outputs::check(file, "--json")?;
    }
    let display = printer.map(|printer| Display::new(printer, arguments.quiet, &arguments.again));
    let is_trial = env::process(env::OBJECTIVE).is_some();
    let mut watching = Watching { display, is_trial, stop };
    let report = train::run(world, settings, &mut watching).map_err(advice)?;
    Ok((report, watching.display))
}

/// Shows the run on rank 0, and ends it when the launcher asks for that.
struct Watching<'a> {
    display: Option<Display<'a>>,
    /// Whether this is a trial of a study, which wants to hear how it goes.
    is_trial: bool,
    stop: Arc<AtomicBool>,
}

impl Observer for Watching<'_> {
    fn begins(&mut self, start: &Start) {
        if let Some(display) = &mut self.display {
            display.begins(start);
        }
    }

    fn epoch_ends(&mut self, epoch: &Epoch) {
        if let Some(display) = &mut self.display {
            display.epoch_ends(epoch);
            if self.is_trial {
                display.report_to_study(epoch);
            }
        }
    }

    fn wants_to_stop(&mut self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
