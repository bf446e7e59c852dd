//! One worker of `sirtaki train`. Rank 0 is also the one that talks.

use std::{fs, io::Write, path::Path};

use anyhow::{Context, Result};
use sirtaki::train::{self, Observer, Report, Settings};

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
        Some(file) => write(file, &report).with_context(|| format!("cannot write {}", file.display())),
        None => Ok(()),
    }
}

/// Completely or not at all.
fn write(file: &Path, report: &Report) -> Result<()> {
    let beside = file.with_added_extension("new");
    let mut text = serde_json::to_vec_pretty(report)?;
    text.push(b'\n');
    let written = fs::File::create(&beside).and_then(|mut to| to.write_all(&text).and_then(|()| to.sync_all()));
    if let Err(error) = written.and_then(|()| fs::rename(&beside, file)) {
        let _ = fs::remove_file(&beside);
        return Err(error.into());
    }
    Ok(())
}
