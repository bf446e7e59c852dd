//! `sirtaki search show`, `best`, `export` and `report`: what came of a study, also while it runs.

use anyhow::{Context, Result};
use serde_json::json;
use sirtaki_engine::files;

use crate::{
    args::search::{Export, Looked, StudyPage},
    printer::{Advice, Printer},
    study::{store, summary},
};

pub(super) fn show(looked: &Looked, printer: &mut Printer) -> Result<()> {
    let study = store::look(&looked.study, looked.name.as_deref())?;
    if looked.json {
        printer.data(&format!("{:#}", summary::as_json(&study)))?;
        return Ok(());
    }
    let definition = study.definition();
    let objectives: Vec<String> = definition.objectives.iter().map(ToString::to_string).collect();
    printer.data(&format!("study {}: {}", definition.name, objectives.join(", ")))?;
    printer.data(&summary::states(&study))?;
    printer.data("")?;
    for line in summary::table(&study) {
        printer.data(&line)?;
    }
    for trial in study.trials() {
        if let Some(reason) = trial.reason().filter(|_| trial.state.is_over()) {
            printer.data(&format!("\ntrial {} {}: {reason}", trial.number, trial.state.word()))?;
        }
    }
    Ok(())
}

pub(super) fn best(looked: &Looked, printer: &mut Printer) -> Result<()> {
    let study = store::look(&looked.study, looked.name.as_deref())?;
    if study.best().is_none() {
        let message =
            format!("no trial of study `{}` has finished: {}", study.definition().name, summary::states(&study));
        return Err(Advice::new(message, "`sirtaki search show` lists why").into());
    }
    if !looked.json {
        for line in summary::best(&study) {
            printer.data(&line)?;
        }
        return Ok(());
    }
    let trials = if study.definition().objectives.len() > 1 { study.front() } else { Vec::from_iter(study.best()) };
    let trials: Vec<_> = trials.into_iter().map(|trial| summary::trial_as_json(&study, trial)).collect();
    printer.data(&format!("{:#}", if trials.len() == 1 { trials[0].clone() } else { json!(trials) }))?;
    Ok(())
}

pub(super) fn export(export: &Export, printer: &mut Printer) -> Result<()> {
    let study = store::look(&export.study, export.name.as_deref())?;
    let text = if export.csv { summary::as_csv(&study) } else { format!("{:#}\n", summary::as_json(&study)) };
    match &export.output {
        Some(file) => files::write(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display())),
        None => Ok(printer.data(text.trim_end())?),
    }
}

pub(super) fn report(wanted: &StudyPage, printer: &mut Printer) -> Result<()> {
    let study = store::look(&wanted.study, wanted.name.as_deref())?;
    let file = wanted.output.clone().unwrap_or_else(|| "study.html".into());
    let page = super::page::write(&study);
    files::write(&file, page.as_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
    printer.message(&format!("{}: {}", file.display(), summary::states(&study)));
    Ok(())
}
