//! `sirtaki train`: a network trained on all cores, all hosts or all of an allocation, in one command.
//!
//! The command decides everything, then starts itself again as the workers of a job, as `sirtaki run` would start any
//! program; what people see comes from rank 0.
//!
//! - `worker`: what a worker does.
//! - `display`: what rank 0 shows during the run and at its end.
//! - `folder`: where checkpoints go.
//! - `strategy`: how workers learn together.
//! - `stages`: how they share a network.
//! - `bench`: what `sirtaki bench train` does instead.

mod bench;
mod display;
mod folder;
pub(crate) mod stages;
mod strategy;
mod worker;

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use clap::Parser;
use sirtaki::train::{
    BatchSize, Domain, Method, Model, NetworkSize, Precision, Settings, check, check_data, check_rounds, suggest,
};
use sirtaki_launch::{
    allocation::Allocation,
    cores,
    outside::Outside,
    placement::{Placement, Start, quote},
    protocol::ITSELF,
};

pub(crate) use self::bench::bench;
pub use self::worker::work;
use self::{bench::BenchRequest, folder::Claim};
use crate::{
    args::{
        self,
        run::Run,
        train::{ModelName, StrategyName, Train},
    },
    commands::infer::look_for_hdf5,
    env,
    launch::{options::Options, output::Tag, outputs},
    printer::{Advice, Printer},
};

/// Decides what is to be done, and has it done.
pub fn run(arguments: Train, program: &Path, printer: &mut Printer) -> Result<u8> {
    look_for_hdf5(None, None);
    start(arguments, None, program, printer)
}

/// The same, or a measurement of its steps.
fn start(arguments: Train, measurement: Option<BenchRequest>, program: &Path, printer: &mut Printer) -> Result<u8> {
    let mut job = arguments.job.0.clone();
    if let Some(word) = job.program.first() {
        let hint = "options begin with two dashes; `sirtaki train --help` lists them";
        return Err(Advice::new(format!("`{word}` is not an option of `sirtaki train`"), hint).into());
    }
    let outside = Outside::real();
    job.program = vec![ITSELF.into()];
    if arguments.elastic {
        job.elastic.min_ranks.get_or_insert(NonZeroUsize::MIN);
    }
    if arguments.strategy == StrategyName::Server {
        job.roles.servers = Some(strategy::servers(&arguments));
    }
    one_worker_per_core(&mut job, &arguments, &outside)?;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let options = Options::resolve(job.clone(), &outside)?;
    let placement = Placement::find(&options.job, &outside, &name)?;
    let (elastic, all) = (options.job.elastic.as_ref(), placement.plan.size());
    let most = elastic.and_then(|elastic| elastic.max).map_or(all, |max| max.get().min(all));
    let workers = workers(&arguments, most)?;
    let mut settings = settings(&arguments, workers, elastic.is_some())?;
    if let Some(measurement) = &measurement {
        settings = measurement.of(settings, elastic.is_some())?;
    }
    match elastic {
        Some(_) => check_elastic(&arguments, &settings, workers)?,
        None => check(&settings, workers).map_err(advice)?,
    }
    let first_is_here = placement.starts[0] == Start::Here;
    if first_is_here && placement.plan.hosts.len() == 1 {
        check_data(&settings, workers).map_err(advice)?;
    }
    for (file, option) in [(&arguments.json, "--json"), (&arguments.export, "--export")] {
        if let (true, Some(file)) = (first_is_here, file) {
            outputs::check(file, option)?;
        }
    }
    let claim = claim(&mut settings, &arguments, first_is_here, options.dry_run)?;
    job.program.extend(["train-worker".into(), "--settings".into(), serde_json::to_string(&settings)?]);
    if let Some(file) = &arguments.json {
        job.program.extend(["--json".into(), text(&std::path::absolute(file)?)?]);
    }
    job.program.extend(["--devices".into(), arguments.devices.to_string()]);
    if options.job.elastic.is_some() {
        job.program.push("--elastic".into());
    }
    if let Some(BenchRequest { bench, .. }) = &measurement {
        job.program.extend(["--bench".into(), serde_json::to_string(bench)?]);
    }
    if job.quiet == Some(true) {
        job.program.push("--quiet".into());
    }
    if let (None, Some(folder)) = (&job.record, &settings.checkpoints) {
        job.record = Some(text(folder)?);
    }
    job.program.extend(["--again".into(), again(&arguments, settings.checkpoints.as_deref())]);
    job.tag_output.get_or_insert(Tag::None);
    let ended = super::run::run(job, program, printer);
    drop(claim);
    ended
}

/// What a worker of a study's trial runs, given options of `sirtaki train`; without a place they are only checked. A trial
/// whose loss is not a number says so to its study rather than failing.
pub(crate) fn as_trial(
    options: &[String],
    workers: usize,
    place: Option<(&Path, bool)>,
) -> Result<Vec<String>, Advice> {
    let typed = ["sirtaki", "train"].into_iter().chain(options.iter().map(String::as_str));
    let explain = |error: anyhow::Error| match error.downcast::<Advice>() {
        Ok(advice) => advice,
        Err(error) => Advice::bare(format!("{error:#}")),
    };
    let arguments = match args::Arguments::try_parse_from(typed) {
        Ok(args::Arguments { command: args::Command::Train(arguments) }) => arguments,
        Ok(_) => return Err(Advice::bare("these are not options of `sirtaki train`")),
        Err(error) => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return Err(Advice::new(format!("sirtaki train: {line}"), "`sirtaki train --help` lists its options"));
        }
    };
    let workers = self::workers(&arguments, workers).map_err(explain)?;
    let mut settings = settings(&arguments, workers, false).map_err(explain)?;
    settings.allow_nan = true;
    if let Some((folder, again)) = place {
        settings.checkpoints = Some(folder.join("checkpoints"));
        settings.resume = again && folder.join("checkpoints").is_dir();
    }
    check(&settings, workers).map_err(advice).map_err(explain)?;
    check_data(&settings, workers).map_err(advice).map_err(explain)?;
    let text = serde_json::to_string(&settings).map_err(|error| Advice::bare(error.to_string()))?;
    let devices = arguments.devices.to_string();
    let words = [ITSELF, "train-worker", "--settings", &text, "--again", "", "--devices", &devices, "--quiet"];
    Ok(words.map(str::to_owned).to_vec())
}

/// Whether workers may come and go, up to this many.
fn check_elastic(arguments: &Train, settings: &Settings, most: usize) -> Result<()> {
    let devices = arguments.devices;
    if devices.get() > 1 {
        let problem = format!("workers come and go by processes, and with --devices {devices} each has several");
        return Err(Advice::new(problem, "start more processes instead, and leave --devices out").into());
    }
    check_rounds(settings, most).map_err(advice)
}

/// Makes the folder of the checkpoints and keeps other runs out of it, if it is on this host.
fn claim(settings: &mut Settings, arguments: &Train, here: bool, dry_run: bool) -> Result<Option<Claim>> {
    let Some(folder) = settings.checkpoints.clone().filter(|_| !dry_run) else { return Ok(None) };
    let new = arguments.checkpoint_dir.is_none() && !arguments.resume;
    if !here {
        settings.checkpoints = Some(if new { folder::unique(&folder)? } else { folder });
        return Ok(None);
    }
    let claim = Claim::new(&folder, new)?;
    settings.checkpoints = Some(claim.folder.clone());
    Ok(Some(claim))
}

/// The command that continues this run.
fn again(arguments: &Train, folder: Option<&Path>) -> String {
    let mut words: Vec<String> = std::env::args_os().skip(1).map(|word| quote(&word.to_string_lossy())).collect();
    if !arguments.resume {
        words.push("--resume".into());
    }
    if let (None, Some(folder)) = (&arguments.checkpoint_dir, folder) {
        words.extend(["--checkpoint-dir".into(), quote(&relative(folder))]);
    }
    format!("sirtaki {}", words.join(" "))
}

/// A path relative to the current folder, if it is below it.
fn relative(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// How many workers so many processes are.
fn workers(arguments: &Train, processes: usize) -> Result<usize> {
    let devices = arguments.devices.get();
    processes.checked_mul(devices).ok_or_else(|| {
        let problem = format!("{processes} processes with {devices} devices each are too many workers");
        Advice::new(problem, "take fewer --devices").into()
    })
}

/// On this machine, unless the user chose otherwise; fewer if shards could not be shared equally. Where workers come and go
/// that is how many there may be, and shards are shared by whoever is there.
fn one_worker_per_core(job: &mut Run, arguments: &Train, outside: &Outside<'_>) -> Result<()> {
    let (shards, devices) = (arguments.reproducible.then_some(arguments.shards.get()), arguments.devices.get());
    let elsewhere = job.hosts.is_some() || job.hostfile.is_some() || Allocation::find(outside)?.is_some();
    let said = job.ranks.or(job.elastic.max_ranks).is_some() || job.config.is_some();
    if !said && !elsewhere {
        let fits =
            |processes: &usize| shards.is_none_or(|shards| shards.is_multiple_of(processes.saturating_mul(devices)));
        let least = job.elastic.min_ranks;
        let fits = |processes: &usize| least.is_some() || fits(processes);
        let most = (cores::usable().len() / devices).max(least.map_or(1, NonZeroUsize::get));
        job.ranks = (1..=most).rev().find(fits).or(Some(1)).and_then(NonZeroUsize::new);
    }
    Ok(())
}

fn settings(arguments: &Train, workers: usize, is_elastic: bool) -> Result<Settings> {
    let model = model(arguments)?;
    // Larger steps need more epochs to learn as much.
    let (each, all) = model.domain().usual_batch();
    let batch = match (arguments.batch_size, arguments.global_batch) {
        (Some(size), _) => BatchSize::Worker(size.get()),
        (None, Some(size)) => BatchSize::Global(size.get()),
        // The arithmetic does not follow the number of workers.
        (None, None)
            if is_elastic || arguments.reproducible || arguments.mesh.is_some() || arguments.shard_parameters =>
        {
            BatchSize::Global(all)
        }
        (None, None) => BatchSize::Worker((all / workers).clamp(1, each)),
    };
    let stages = stages::stages(arguments, workers, batch)?;
    let folder = folder::choose(arguments.checkpoint_dir.as_deref(), model.name(), arguments.resume)?;
    Ok(Settings {
        model,
        data: data(arguments, model)?,
        synthetic: None,
        image_size: arguments.image_size.map(NonZeroUsize::get),
        context: arguments.context.map(NonZeroUsize::get),
        patch: arguments.patch.map(NonZeroUsize::get),
        size: size(arguments, model)?,
        epochs: arguments.epochs.get() as u64,
        most_steps: arguments.max_steps.map(|steps| steps.get() as u64),
        batch,
        rate: arguments.lr,
        warmup: arguments.warmup_epochs,
        method: match arguments.optimizer {
            None => model.method(),
            Some(args::train::Optimizer::Sgd) => Method::Sgd,
            Some(args::train::Optimizer::Adam) => Method::Adam,
            Some(args::train::Optimizer::Adamw) => Method::AdamW,
            Some(args::train::Optimizer::Lars) => Method::Lars,
        },
        strategy: strategy::strategy(arguments)?,
        precision: match arguments.precision {
            args::train::Precision::F32 => Precision::F32,
            args::train::Precision::Bf16 => Precision::BF16,
            args::train::Precision::F16 => Precision::F16,
        },
        target: arguments.target_accuracy.unwrap_or(model.target()),
        seed: arguments.seed,
        shards: match stages {
            Some((_, shards)) => Some(shards),
            None => arguments.reproducible.then_some(arguments.shards.get()),
        },
        stages: stages.map(|(stages, _)| stages),
        checkpoints: Some(folder),
        resume: arguments.resume,
        checkpoint_every: arguments.checkpoint_every.map(|steps| steps.get() as u64),
        keep: arguments.keep,
        allow_nan: arguments.allow_nan,
        export: arguments.export.as_deref().map(std::path::absolute).transpose()?,
    })
}

/// How large the network is to be.
fn size(arguments: &Train, model: Model) -> Result<Option<NetworkSize>> {
    let (depth, width) = (arguments.depth.map(NonZeroUsize::get), arguments.width.map(NonZeroUsize::get));
    match model.size() {
        Some(usual) => {
            Ok(Some(NetworkSize { depth: depth.unwrap_or(usual.depth), width: width.unwrap_or(usual.width) }))
        }
        None if depth.is_none() && width.is_none() => Ok(None),
        None => {
            let names: Vec<&str> = Model::all().filter(|model| model.size().is_some()).map(Model::name).collect();
            let hint = format!("leave --depth and --width out, or take --model {}", names.join(" or "));
            Err(Advice::new(format!("the size of {} is fixed", model.name()), hint).into())
        }
    }
}

/// The network that was asked for, or the one that suits the data set, if that can be seen from here.
fn model(arguments: &Train) -> Result<Model> {
    match (arguments.model, &arguments.data) {
        (Some(ModelName(model)), _) => Ok(model),
        (None, Some(data)) if data.exists() => {
            suggest(data, arguments.image_size.map(NonZeroUsize::get)).map_err(advice)
        }
        (None, _) => Ok(Model::default()),
    }
}

/// Where the data set is; nowhere if it is the text that is made up.
fn data(arguments: &Train, model: Model) -> Result<Option<PathBuf>> {
    let usual = (model.domain() == Domain::Images).then(|| digits(env::process(env::DATA_FOLDER)));
    let data = arguments.data.clone().or(usual);
    Ok(data.map(std::path::absolute).transpose()?)
}

/// The handwritten digits: those of the folder one is in, or those that came with the installation.
fn digits(installed: Option<String>) -> PathBuf {
    let here = PathBuf::from("data/mnist");
    let installed = installed.map(|folder| Path::new(&folder).join("mnist"));
    installed.filter(|folder| !here.exists() && folder.is_dir()).unwrap_or(here)
}

/// What the crate `sirtaki` says, with its hint.
fn advice(error: sirtaki::Error) -> anyhow::Error {
    match error.hint() {
        Some(hint) => Advice::new(error.to_string(), hint).into(),
        None => error.into(),
    }
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(Into::into).with_context(|| format!("{}: the name is not text", path.display()))
}
