//! One worker of `sirtaki infer`.

use std::sync::{Arc, atomic::AtomicBool};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use sirtaki_infer::{
    decide::sum_of,
    onnx::Processor,
    place::Place,
    work::{self, Worker, WorkerReport},
};

use super::{library, look_for_hdf5, memory, name_of, now, own_name, prepare};
use crate::{args::infer::InferWorker, env};

/// Computes tiles until none is left.
pub fn work(arguments: &InferWorker) -> Result<()> {
    let place = Place::of(&arguments.output)?;
    match work_at(&place, arguments) {
        // Others were so fast that they have completed the output and removed the folder meanwhile.
        Err(_) if place.is_complete()? => Ok(()),
        other => other,
    }
}

fn work_at(place: &Place, arguments: &InferWorker) -> Result<()> {
    let Some(job) = place.job()? else {
        bail!("{}: no job was begun here; do all hosts see this folder?", place.folder().display());
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot listen to signals")?;
    }
    let model = &job.settings.model;
    if sum_of(model)? != job.model_sum {
        bail!("{}: the network has changed since the job was begun", model.display());
    }
    let runtime = library::find(Some(arguments.library.clone()))?;
    look_for_hdf5(arguments.hdf5.clone(), None);
    let number =
        |name: &str, otherwise: usize| env::process(name).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let gpu = arguments.gpus.map(|gpus| (number(env::LOCAL_RANK, 0) % gpus) as u32);
    let mut model = prepare::graph_of(&job)?.load(&runtime, Processor { threads: arguments.threads.get(), gpu })?;
    let rank = number(env::RANK, 0);
    let worker = Worker {
        name: env::process(env::JOB).map_or_else(own_name, |job| name_of(&job, rank)),
        place: (rank, number(env::SIZE, 1)),
        stop: &stop,
        now: &now,
    };
    let mut ledger = place.ledger(&job, &worker.name)?;
    let report = work::work(&job, &mut model, &mut ledger, &worker)?;
    Ok(place.tell(&WorkerReport { memory: memory::peak(), ..report })?)
}
