//! One worker of `sirtaki train`. Rank 0 is also the one that talks.

use anyhow::{Context, Result};
use sirtaki::train::{self, Observer, Settings};
use sirtaki_engine::files;

use super::{advice, display::Display};
use crate::{args::train::Worker, printer::Printer};

/// Trains, and tells of it if this is rank 0.
pub fn work(arguments: &Worker, printer: &mut Printer) -> Result<()> {
    let settings: Settings = serde_json::from_str(&arguments.settings).context("cannot read the settings")?;
    let world = sirtaki::init().map_err(advice)?;
    let talks = world.rank() == 0;
    let mut display = Display::new(printer, arguments.quiet);
    let mut nobody = ();
    let observer: &mut dyn Observer = if talks { &mut display } else { &mut nobody };
    let report = train::run(&world, &settings, observer).map_err(advice)?;
    if !talks {
        return Ok(());
    }
    display.report(&report)?;
    match &arguments.json {
        Some(file) => {
            let text = serde_json::to_string_pretty(&report)? + "\n";
            files::write(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
        }
        None => Ok(()),
    }
}
