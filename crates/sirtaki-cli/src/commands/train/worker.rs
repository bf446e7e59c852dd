//! One worker of `sirtaki train`. Rank 0 also prints.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use sirtaki::train::{self, Epoch, Observer, Settings, Start};
use sirtaki_engine::files;

use super::{advice, display::Display};
use crate::{args::train::TrainWorker, env, launch::outputs, printer::Printer};

/// Trains, and reports it if this is rank 0.
pub fn work(arguments: &TrainWorker, printer: &mut Printer) -> Result<()> {
    let mut settings: Settings = serde_json::from_str(&arguments.settings).context("cannot read the settings")?;
    // A run that was started again goes on where its last checkpoint was written.
    settings.resume |= env::process(env::RESTART).is_some_and(|restart| restart != "0");
    let world = sirtaki::init().map_err(advice)?;
    let talks = world.rank() == 0;
    if let (true, Some(file)) = (talks, &arguments.json) {
        outputs::check(file, "--json")?;
    }
    let display = talks.then(|| Display::new(printer, arguments.quiet, &arguments.again));
    let is_trial = env::process(env::OBJECTIVE).is_some();
    let mut watching = Watching { display, is_trial, stop: Arc::default() };
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, watching.stop.clone()).context("cannot listen to signals")?;
    }
    let report = train::run(&world, &settings, &mut watching).map_err(advice)?;
    // A profile or a warning at the end of the engine comes before the result, not after it.
    drop(world);
    let Some(mut display) = watching.display else { return Ok(()) };
    display.report(&report)?;
    match &arguments.json {
        Some(file) => {
            let text = serde_json::to_string_pretty(&report)? + "\n";
            files::write(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
        }
        None => Ok(()),
    }
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
