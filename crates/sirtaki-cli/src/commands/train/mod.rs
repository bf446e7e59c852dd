//! `sirtaki train`: a network trained on all cores, all hosts or all of an allocation, in one command.
//!
//! The command decides everything, then starts itself again as the workers of a job, as `sirtaki run` would start any
//! program; what people see comes from rank 0.
//!
//! - `worker`: what a worker does.
//! - `display`: what rank 0 shows on the way and at the end.
//! - `folder`: where checkpoints go if nothing was said.

mod display;
mod folder;
mod worker;

use std::{num::NonZeroUsize, path::Path};

use anyhow::{Context, Result};
use sirtaki::train::{Batch, Method, Model, Precision, Settings, check};

pub use self::worker::work;
use crate::{
    args::{self, run::Run, train::Train},
    launch::{
        allocation::Allocation, cores, options::Options, output::Tag, outside::Outside, placement::Placement,
        protocol::ITSELF,
    },
    printer::{Advice, Printer},
};

/// The most images per step that is chosen by itself: larger steps need more epochs to recognise as many digits.
const LARGEST_STEP: usize = 128;

/// Decides what is wanted, and has it done.
pub fn run(arguments: Train, program: &Path, printer: &mut Printer) -> Result<u8> {
    let mut job = arguments.job.0.clone();
    if let Some(word) = job.program.first() {
        let hint = "options begin with two dashes; `sirtaki train --help` lists them";
        return Err(Advice::new(format!("`{word}` is not an option of `sirtaki train`"), hint).into());
    }
    let outside = Outside::real();
    job.program = vec![ITSELF.into()];
    one_worker_per_core(&mut job, arguments.reproducible.then_some(arguments.shards), &outside)?;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let options = Options::resolve(job.clone(), &outside)?;
    let placement = Placement::find(&options, &outside, &name)?;
    let settings = settings(&arguments, placement.plan.size())?;
    check(&settings, placement.plan.size()).map_err(advice)?;
    if placement.plan.hosts.len() == 1 && placement.starts[0] == crate::launch::placement::Start::Here {
        sirtaki::train::look(&settings.data).map_err(advice)?;
    }
    job.program.extend(["train-worker".into(), "--settings".into(), serde_json::to_string(&settings)?]);
    if let Some(file) = &arguments.json {
        job.program.extend(["--json".into(), text(&std::path::absolute(file)?)?]);
    }
    if job.quiet == Some(true) {
        job.program.push("--quiet".into());
    }
    if let (None, Some(folder)) = (&job.record, &settings.checkpoints) {
        job.record = Some(text(folder)?);
    }
    job.tag_output.get_or_insert(Tag::None);
    super::run::run(job, program, printer)
}

/// On this machine, unless something else was said; fewer if shards could not be shared equally.
fn one_worker_per_core(job: &mut Run, shards: Option<NonZeroUsize>, outside: &Outside<'_>) -> Result<()> {
    let elsewhere = job.hosts.is_some() || job.hostfile.is_some() || Allocation::find(outside)?.is_some();
    if job.ranks.is_none() && job.config.is_none() && !elsewhere {
        let fits = |workers: &usize| shards.is_none_or(|shards| shards.get().is_multiple_of(*workers));
        job.ranks = (1..=cores::usable().len()).rev().find(fits).and_then(NonZeroUsize::new);
    }
    Ok(())
}

fn settings(arguments: &Train, workers: usize) -> Result<Settings> {
    let model = match arguments.model {
        args::train::Model::Lenet => Model::LeNet,
        args::train::Model::Cnn => Model::Cnn,
    };
    let folder = folder::choose(arguments.checkpoint_dir.as_deref(), model.name(), arguments.resume)?;
    Ok(Settings {
        model,
        data: std::path::absolute(&arguments.data)?,
        epochs: arguments.epochs.get() as u64,
        most_steps: arguments.max_steps.map(|steps| steps.get() as u64),
        batch: match (arguments.batch_size, arguments.global_batch) {
            (Some(each), _) => Batch::Worker(each.get()),
            (None, Some(all)) => Batch::Global(all.get()),
            (None, None) if arguments.reproducible => Batch::Global(LARGEST_STEP),
            (None, None) => Batch::Worker((LARGEST_STEP / workers).clamp(1, 64)),
        },
        rate: arguments.lr,
        warmup: arguments.warmup_epochs,
        method: match arguments.optimizer {
            args::train::Optimizer::Sgd => Method::Sgd,
            args::train::Optimizer::Adam => Method::Adam,
            args::train::Optimizer::Adamw => Method::AdamW,
            args::train::Optimizer::Lars => Method::Lars,
        },
        precision: match arguments.precision {
            args::train::Precision::F32 => Precision::F32,
            args::train::Precision::Bf16 => Precision::BF16,
            args::train::Precision::F16 => Precision::F16,
        },
        target: arguments.target_accuracy,
        seed: arguments.seed,
        shards: arguments.reproducible.then_some(arguments.shards.get()),
        checkpoints: Some(folder),
        resume: arguments.resume,
        checkpoint_every: arguments.checkpoint_every.map(|steps| steps.get() as u64),
        keep: arguments.keep,
    })
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
