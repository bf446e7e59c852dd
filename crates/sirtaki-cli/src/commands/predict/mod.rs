//! `sirtaki predict`: from one recorded run, or a described network, to the performance with more workers.
//!
//! `record` (with `trace`) or `model` say what a step is, as `work`. `scale` draws the steps of many workers (`random`),
//! `replay` simulates one of them, `cost` knows how long its collectives take (`topology`: over shared links), `strategy`
//! and `server` what is different where workers learn together in other ways, and `faults` what failures leave of it.
//! `show`, `bars` and the tables are the output for people, `page` the same with plots, `options` gives meaning to what
//! was typed; networks in stages have `meshes` and `mesh_table`. All but reading, printing and saving is pure.

mod bars;
mod cost;
mod failure_table;
mod faults;
#[cfg(feature = "train")]
mod mesh_table;
#[cfg(feature = "train")]
mod meshes;
mod model;
mod options;
mod page;
mod random;
pub(crate) mod record;
mod replay;
mod scale;
mod server;
mod show;
mod strategy;
mod strategy_table;
mod topology;
pub(crate) mod trace;
mod work;

use anyhow::Result;
use sirtaki_engine::decide::fuse::Limits;

use self::{
    cost::{LinearCost, Network},
    scale::{Prediction, ScalingMode, predict},
    show::{Calibration, Forecast},
    strategy::Strategy,
    work::Work,
};
use crate::{args::predict::Predict, printer::Printer};

/// An all-reduce inside a host if none was recorded: what two processes need on a typical machine.
const LOCAL: LinearCost = LinearCost { fixed: 10e-6, per_byte: 0.2e-9 };

/// Predicts and prints.
pub fn run(arguments: &Predict, printer: &mut Printer) -> Result<()> {
    let mut work = match (&arguments.model, &arguments.run) {
        (Some(model), _) => model::read(model)?,
        (None, Some(run)) => record::read(run)?,
        (None, None) => return Ok(()),
    };
    work.batch = arguments.batch.map(Into::into).or(work.batch);
    options::set_noise(&mut work, arguments.noise.noise);
    #[cfg(feature = "train")]
    if let Some(wanted) = mesh_table::wanted(arguments)? {
        let network = network(&work, arguments);
        let rows = meshes::meshes(&work, &network, scaling(arguments), wanted, &arguments.workers.0);
        return mesh_table::show(&work, wanted, &rows.map_err(mesh_table::advice)?, (arguments.json, printer));
    }
    let forecast = forecast(work, arguments)?;
    if let Some(file) = &arguments.output {
        page::save(&forecast, file)?;
    }
    if arguments.json {
        printer.data(&serde_json::to_string(&forecast.json())?)?;
        return Ok(());
    }
    forecast.print(printer)?;
    if let Some(file) = &arguments.output {
        printer.message(&format!("{}: the same with plots", file.display()));
    }
    Ok(())
}

fn network(work: &Work, arguments: &Predict) -> Network {
    let (rails, spine) = topology::links(arguments.topology, arguments.bandwidth, arguments.latency);
    Network {
        latency: arguments.latency,
        bandwidth: arguments.bandwidth,
        rails,
        spine,
        per_host: arguments.per_host.get(),
        local: work.local.unwrap_or(LOCAL),
        per_message: arguments.noise.message_cost,
        forced: arguments.algorithm,
    }
}

fn scaling(arguments: &Predict) -> ScalingMode {
    if arguments.strong { ScalingMode::Strong } else { ScalingMode::Weak }
}

fn forecast(work: Work, arguments: &Predict) -> Result<Forecast> {
    let (network, scaling) = (network(&work, arguments), scaling(arguments));
    let limits = Limits { fused: arguments.fusion, large: arguments.fusion_large };
    let strategies = options::strategies(&arguments.strategy)?;
    let faults = options::faults(&arguments.failures);
    let mut rows: Vec<Prediction> = Vec::new();
    for workers in &arguments.workers.0 {
        let of = |&strategy: &Strategy| predict(&work, &network, limits, (scaling, strategy), &[*workers]);
        rows.extend(strategies.iter().flat_map(of));
    }
    for row in &mut rows {
        row.failures = faults.map(|faults| faults.goodput(row.hosts, row.step_seconds));
    }
    let calibration = calibration(&work, &network, limits);
    Ok(Forecast { work, network, scaling, strategies, faults, calibration, rows })
}

/// The recorded workers, predicted from their own record: in one host, if that is where they were.
fn calibration(work: &Work, network: &Network, limits: Limits) -> Option<Calibration> {
    let recorded_step_seconds = work.recorded_step.filter(|seconds| *seconds > 0.0)?;
    let per_host = if work.local.is_some() { work.workers } else { network.per_host };
    let (network, work) = (Network { per_host, ..*network }, Work { noise: None, ..work.clone() });
    let rows = predict(&work, &network, limits, (ScalingMode::Weak, Strategy::Data), &[work.workers]);
    let predicted_step_seconds = rows.first()?.step_seconds;
    Some(Calibration { workers: work.workers, recorded_step_seconds, predicted_step_seconds })
}
