//! `sirtaki bench scaling`: the same job on several numbers of workers, and the report of all those runs.
//!
//! Every run is a separate job, started through this command as a user would start it, with its output and its record
//! in its own folder. The plan for it is stored there as `plan.json`, so that a run that failed before it could record
//! anything is counted too.

mod plan;
mod turn;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use sirtaki_engine::files;
use sirtaki_launch::cores;

use self::{
    plan::{Growth, JobCommand, PlannedRun},
    turn::Interrupt,
};
use crate::{
    args::scaling::Scaling,
    commands::report::{
        self, read,
        words::{count, duration, grouped, percent},
    },
    launch::runs,
    printer::{Advice, Printer, Style},
};

const FORMAT: &str = "sirtaki planned run, version 1";
const PAGE: &str = "report.html";

/// Makes all runs, or as many as are allowed, and their report.
pub fn run(arguments: &Scaling, program: &Path, printer: &mut Printer) -> Result<u8> {
    let command = JobCommand::new(&arguments.command)?;
    if matches!(command, JobCommand::Train(_)) && !cfg!(feature = "train") {
        let hint = "name another program after two dashes, or use a `sirtaki` that was built with feature `train`";
        return Err(Advice::new("this `sirtaki` has no `train`", hint).into());
    }
    let jobs =
        plan::jobs(&workers(arguments), &kinds(arguments, &command)?, arguments.batch.get(), arguments.seeds.get())?;
    let folder = folder(arguments)?;
    let interrupt = Interrupt::listen()?;
    printer.message(&format!("{} into {}", count(jobs.len(), "run"), folder.display()));
    let mut done = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let place = folder.join(job.name());
        let title = format!("{} of {}: {}", index + 1, jobs.len(), describe(job));
        done.push(place.clone());
        let failed = one(job, &place, &title, (&command, program, &interrupt), printer)?;
        if interrupt.signal().is_none() {
            printer.message(&format!("{title}: {}", outcome(&place, failed.as_deref())));
        } else {
            break;
        }
    }
    let page = folder.join(PAGE);
    let title = format!("Scaling: {}", count(jobs.len(), "run"));
    let findings = report::page(&done, &page, &title, printer)?;
    printer.message(&format!("{}: {}", page.display(), findings.census()));
    for note in report::busy(&findings) {
        printer.labelled(Style::Bold, "note:", &note);
    }
    if interrupt.signal().is_some() {
        printer.message(&format!(
            "interrupted: {} of {} were not made",
            jobs.len() - done.len(),
            count(jobs.len(), "run")
        ));
    }
    report::print_scalings(&findings, printer)?;
    if let Some(signal) = interrupt.signal() {
        return Ok(128 + signal);
    }
    Ok(u8::from(findings.runs.iter().any(|run| !run.counts())))
}

fn workers(arguments: &Scaling) -> Vec<usize> {
    if arguments.workers.is_empty() {
        return plan::powers(cores::usable().len());
    }
    let mut list: Vec<usize> = arguments.workers.iter().map(|workers| workers.get()).collect();
    list.sort_unstable();
    list.dedup();
    list
}

fn kinds(arguments: &Scaling, command: &JobCommand) -> Result<Vec<Growth>> {
    match (arguments.strong, arguments.weak, command.takes_batch()) {
        (true, _, false) => {
            let hint = "pass {batch} or {global_batch} to the program, or leave out --strong";
            Err(Advice::new("work cannot be shared by a program that is not told its batch", hint).into())
        }
        (true, _, true) => Ok(vec![Growth::Strong]),
        (false, true, _) | (false, false, false) => Ok(vec![Growth::Weak]),
        (false, false, true) => Ok(vec![Growth::Strong, Growth::Weak]),
    }
}

/// A folder for all runs, which contains none yet.
fn folder(arguments: &Scaling) -> Result<PathBuf> {
    let folder = arguments.output.clone().unwrap_or_else(|| runs::name("scaling"));
    if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
        let hint = "name a new one with -o, or leave -o out";
        return Err(Advice::new(format!("{} is not empty", folder.display()), hint).into());
    }
    files::make_private(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(std::path::absolute(folder)?)
}

/// Makes one run and says why it failed, if it did.
fn one(
    job: &PlannedRun,
    place: &Path,
    title: &str,
    (command, program, interrupt): (&JobCommand, &Path, &Interrupt),
    printer: &mut Printer,
) -> Result<Option<String>> {
    files::make_inside(place).with_context(|| format!("cannot make {}", place.display()))?;
    let arguments = command.arguments(job, place);
    let mut plan = read::RunPlan {
        format: FORMAT.into(),
        command: std::iter::once("sirtaki".to_owned()).chain(arguments.clone()).collect(),
        ranks: job.workers,
        settings: job.settings(),
        ended: None,
    };
    let write = |plan: &read::RunPlan| {
        let text = serde_json::to_string_pretty(plan)? + "\n";
        files::write(&place.join(read::PLAN), text.as_bytes())
            .with_context(|| format!("cannot write into {}", place.display()))
    };
    write(&plan)?;
    let tick = |time: Duration| printer.progress(&format!("{title}, {:.0} s", time.as_secs_f64()));
    let (lasted, failed) = turn::take(program, &arguments, place, interrupt, tick)?;
    plan.ended =
        Some(read::RunEnd { seconds: Some(lasted.as_secs_f64()), failed: failed.clone(), ..read::RunEnd::default() });
    write(&plan)?;
    Ok(failed)
}

fn describe(job: &PlannedRun) -> String {
    let kind = if job.kind == Growth::Both { String::new() } else { format!("{}, ", job.kind.name()) };
    format!("{kind}{}, batch {}, seed {}", count(job.workers, "worker"), job.all(), job.seed)
}

/// The result of a run; speed is never given without accuracy.
fn outcome(place: &Path, failed: Option<&str>) -> String {
    let run = match (failed, read::read(place)) {
        (Some(why), _) => return format!("failed: {why} ({})", place.join(turn::OUTPUT).display()),
        (None, Err(lost)) => return format!("cannot be read: {}", lost.why),
        (None, Ok(run)) => run,
    };
    let speed = run.throughput().map_or("no samples recorded".into(), |rate| format!("{} samples/s", grouped(rate)));
    let accuracy = run.test_accuracy().map_or("no test".into(), |share| format!("test accuracy {}", percent(share)));
    let lasted = run.lasted().map_or(String::new(), |seconds| format!(", {}", duration(seconds)));
    format!("{speed}, {accuracy}{lasted}")
}
