//! `sirtaki search show`, `best`, `export`, `import` and `report`: what came of a study, also while it runs.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use sirtaki_engine::files;

use crate::{
    args::search::{Export, Import, Looked, StudyPage},
    launch::runs::RUNS,
    printer::{Advice, Printer},
    study::{JOURNAL, database, store, summary},
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
    if let (true, Some(file)) = (export.sqlite, &export.output) {
        let name = &study.definition().name;
        let record = study.archive().studies().find(|record| record.name == *name);
        return Ok(record.map_or(Ok(()), |record| database::write(file, record))?);
    }
    let text = if export.csv { summary::as_csv(&study) } else { format!("{:#}\n", summary::as_json(&study)) };
    match &export.output {
        Some(file) => files::write(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display())),
        None => Ok(printer.data(text.trim_end())?),
    }
}

pub(super) fn import(import: &Import, printer: &mut Printer) -> Result<()> {
    let (name, lines) = database::read(&import.database, import.name.as_deref())?;
    let folder = match &import.folder {
        Some(folder) => folder.clone(),
        None if Path::new(&name).components().count() == 1 && !name.starts_with('.') => Path::new(RUNS).join(&name),
        None => {
            let message = format!("study `{name}` has a name that no folder can have");
            return Err(Advice::new(message, "name a folder with --folder").into());
        }
    };
    let journal = folder.join(JOURNAL);
    if journal.exists() {
        let message = format!("there is a study in {} already", folder.display());
        return Err(Advice::new(message, "name another folder with --folder").into());
    }
    store::make_folder(&folder)?;
    files::write(&journal, lines.as_bytes()).with_context(|| format!("cannot write {}", journal.display()))?;
    let study = store::look(&folder, Some(&name))?;
    printer.message(&format!("{}: {}", folder.display(), summary::states(&study)));
    Ok(())
}

pub(super) fn report(wanted: &StudyPage, printer: &mut Printer) -> Result<()> {
    let study = store::look(&wanted.study, wanted.name.as_deref())?;
    let file = wanted.output.clone().unwrap_or_else(|| "study.html".into());
    let page = super::page::write(&study);
    files::write(&file, page.as_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
    printer.message(&format!("{}: {}", file.display(), summary::states(&study)));
    Ok(())
}
