//! `sirtaki run`: a program as several processes that work together.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use sirtaki_engine::telemetry::profile::Profile;
use sirtaki_launch::{
    Ending, Job, Launcher, Outcome, cores, discovery, gpus,
    openmpi::{self, OpenMpi},
    outside::Outside,
    placement::{Placement, Start},
    protocol::ITSELF,
    tree,
};

use crate::{
    args::run::{Progress, Run},
    env,
    launch::{
        dry_run::{self, Here},
        horovod,
        options::{Detail, Options},
        output::{self, Output},
        outputs,
        progress::{Dashboard, Live, Show, Shown},
        report::{self, Failure},
        runs, signals,
        terminal::Terminal,
    },
    printer::{Printer, Stream, Style},
};

/// How long what a job left behind may take to end.
const CLEANING: Duration = Duration::from_secs(5);
/// How long reading the last output of a job that was ended may take.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Decides what is wanted and where, and does it.
pub fn run(arguments: Run, program: &Path, printer: &mut Printer) -> Result<u8> {
    let outside = Outside::real();
    let mut options = Options::resolve(arguments, &outside)?;
    if options.horovod || options.tf1 {
        horovod::apply(&mut options, &outside)?;
    }
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    discovery::discover(&mut options.job, &name)?;
    let placement = Placement::find(&options.job, &outside, &name)?;
    if options.dry_run {
        return show(&options, &placement, program, printer).map(|()| 0);
    }
    let open_mpi =
        if placement.plan.size() > 1 && options.job.elastic.is_none() { openmpi::find(&options.job)? } else { None };
    if let Some(note) = open_mpi.as_ref().and_then(|open| open.note.as_ref()) {
        printer.labelled(Style::Bold, "note:", note);
    }
    execute(options, placement, open_mpi, program, printer)
}

fn execute(
    mut options: Options,
    placement: Placement,
    open_mpi: Option<OpenMpi>,
    program: &Path,
    printer: &mut Printer,
) -> Result<u8> {
    let terminal = terminal(&placement, printer);
    let start = |options: &mut Options| -> Result<Job> {
        if placement.starts[0] == Start::Here {
            let folder = options.job.workdir.clone().map_or_else(std::env::current_dir, std::path::absolute);
            outputs::prepare(options, &folder.context("the current folder is gone")?)?;
        }
        let job = Job::new(options.job.clone(), placement.clone(), program)?;
        Ok(Job { terminal, open_mpi: open_mpi.clone(), ..job })
    };
    options.tell_restart(0);
    let first = start(&mut options)?;
    let shown = output::OutputOptions {
        tag: options.tag_output,
        quiet: options.detail == Detail::Quiet,
        folder: options.output.clone(),
        hosts: first.hosts_of_processes(),
        cast: Some(first.cast()),
    };
    // Only ranks that write wait for the reader of the output.
    printer.detach();
    let ended = supervised(first, &start, &mut options, &shown, printer);
    let interrupted = matches!(&ended, Ok((_, ending, ..)) if matches!(ending.outcome, Outcome::Interrupted(_)));
    printer.attach(interrupted.then_some(LAST_OUTPUT));
    let (job, ending, last_lines, live) = ended?;
    if let Some(text) = closing_words(&job, &options, &ending, last_lines, printer) {
        printer.message(&text);
    }
    let asked = options.monitoring();
    if ending.outcome == Outcome::Success && !ending.engine && !asked.is_empty() {
        warn_of_nothing(&asked, printer);
    }
    live.finish();
    Ok(ending.outcome.code())
}

/// Says that there was nothing to see.
fn warn_of_nothing(asked: &[&str], printer: &mut Printer) {
    let text = format!("{} recorded nothing: the program never used Sirtaki's engine", asked.join(" and "));
    printer.labelled(Style::Warning, "warning:", &text);
    let hint = "use sirtaki.torch or --horovod, or the back end \"sirtaki\" of torch.distributed";
    printer.labelled(Style::Bold, "hint:", hint);
}

/// Runs the job to its end, as often as it may be started again: returns the last attempt, its outcome, and the last lines
/// of the rank that failed.
fn supervised(
    mut job: Job,
    start: &dyn Fn(&mut Options) -> Result<Job>,
    options: &mut Options,
    shown: &output::OutputOptions,
    printer: &mut Printer,
) -> Result<(Job, Ending, Vec<String>, Live)> {
    let mut output = Output::new(printer, shown, Instant::now())?;
    let mut live = live(&job, options, &mut output)?;
    tree::adopt_orphans().context("cannot adopt orphans")?;
    let signals = signals::Receiver::start()?;
    let mut restart = 0;
    let ending = loop {
        let (cast, detail) = (job.cast(), options.detail);
        let terminal = &mut Terminal { output: &mut output, live: &mut live, cast, detail };
        let ending = launched(&job, &signals, terminal)?;
        let how = in_words(&ending, &job);
        if let Some(folder) = &options.record {
            // The folder may be on another host, and programs that do not use Sirtaki make none.
            let _ = runs::note_ending(folder, ending.outcome.code(), &how, &live.rounds());
        }
        let fails = matches!(ending.outcome, Outcome::Failed { .. } | Outcome::Stuck(_));
        if !fails || restart == options.restarts || signals.is_asked() {
            break ending;
        }
        restart += 1;
        output.note(&report::restarted(&how, ending.lasted, restart, options.restarts));
        options.tell_restart(restart);
        job = start(options)?;
    };
    signals.set_over();
    live.ended(ending.outcome == Outcome::Success, &in_words(&ending, &job), &mut output);
    output.finish();
    let last_lines = match &ending.outcome {
        Outcome::Failed { rank, .. } => output.last_lines(*rank),
        _ => Vec::new(),
    };
    drop(output);
    Ok((job, ending, last_lines, live))
}

/// Runs the job as this process's only one, so that everything below this process belongs to it.
fn launched(job: &Job, signals: &signals::Receiver, terminal: &mut Terminal<'_, '_>) -> Result<Ending> {
    let launcher = Launcher::new();
    let controller = launcher.controller();
    signals.pass_on_to(controller.clone());
    terminal.output.wake(move || controller.wake());
    let ending = launcher.run(job, terminal);
    tree::kill_all(CLEANING);
    Ok(ending?)
}

/// What shows the job's progress; if that is a page, prints its address.
fn live(job: &Job, options: &Options, output: &mut Output<'_>) -> Result<Live> {
    let show = match options.progress {
        _ if !options.shows_progress() => Show::Nothing,
        Progress::Auto if output.is_live() => Show::Rows,
        Progress::Json => Show::Json,
        _ => Show::Lines,
    };
    let page = options.dashboard.map(|port| Dashboard::start(port, Shown::Job)).transpose()?;
    if let Some(page) = &page {
        output.note(&format!("dashboard: {}", page.url()));
    }
    let name = match job.spec.program.first().map(String::as_str) {
        Some(ITSELF) => "sirtaki train".into(),
        _ => runs::name_of(&job.spec.program),
    };
    Ok(Live::new(name, hosts_of_ranks(&job.placement), show, page, Instant::now()))
}

fn in_words(ending: &Ending, job: &Job) -> String {
    match &ending.outcome {
        Outcome::Failed { rank, how } => format!("{} {how}", job.cast().name(*rank)),
        Outcome::Interrupted(signal) => report::interrupted(*signal, ending.lasted),
        Outcome::Stuck(reason) => reason.clone(),
        Outcome::Success => "ended".into(),
    }
}

/// The messages at the end of a job.
fn closing_words(
    job: &Job,
    options: &Options,
    ending: &Ending,
    last_lines: Vec<String>,
    printer: &Printer,
) -> Option<String> {
    let plan = &job.placement.plan;
    let (rank, how) = match &ending.outcome {
        Outcome::Success if options.detail == Detail::Verbose => {
            return Some(report::success(plan.size(), plan.hosts.len(), ending.lasted));
        }
        Outcome::Success => return None,
        Outcome::Interrupted(signal) => return Some(report::interrupted(*signal, ending.lasted)),
        Outcome::Stuck(reason) => return Some(report::stuck(reason, ending.lasted)),
        Outcome::Failed { rank, how } => (*rank, how.clone()),
    };
    let doing = ending.doing.iter().take(plan.size()).enumerate().filter(|(other, _)| *other != rank);
    let failure = Failure {
        rank,
        host: job.hosts_of_processes().swap_remove(rank),
        pid: ending.pids[rank],
        how,
        ran_for: ending.failed_after.unwrap_or(ending.lasted),
        last_lines,
        profile: Profile::new(hosts_of_ranks(&job.placement), ending.counts[..plan.size()].to_vec()),
        others: doing.filter_map(|(rank, what)| Some((rank, what.clone()?))).collect(),
        folder: options.output.clone(),
        cast: job.cast(),
        hosts: plan.hosts.len(),
    };
    Some(failure.report(|style, text| printer.paint_message(style, text)))
}

/// The terminal size that ranks are given: that of the real terminal, less the space for tags.
fn terminal(placement: &Placement, printer: &Printer) -> Option<(u16, u16)> {
    if !printer.is_terminal(Stream::Out) || !printer.is_terminal(Stream::Err) {
        return None;
    }
    let (columns, rows) = printer.size();
    let tag = placement.plan.size().to_string().len() + 4;
    Some((columns.saturating_sub(tag).max(20).try_into().ok()?, rows.try_into().ok()?))
}

fn hosts_of_ranks(placement: &Placement) -> Vec<String> {
    placement.plan.hosts.iter().flat_map(|host| host.ranks.clone().map(|_| host.host.clone())).collect()
}

/// `--dry-run`.
fn show(options: &Options, placement: &Placement, program: &Path, printer: &mut Printer) -> Result<()> {
    let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let here = Here {
        cores: cores::usable(),
        gpus: gpus::usable(env::process("CUDA_VISIBLE_DEVICES").as_deref()),
        program: program.display().to_string(),
        folder: std::env::current_dir()?.display().to_string(),
        variables: std::env::vars_os().filter_map(readable).collect(),
    };
    printer.data(dry_run::describe(&options.job, placement, &here)?.trim_end())?;
    Ok(())
}
