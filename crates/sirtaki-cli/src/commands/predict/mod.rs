//! `sirtaki predict`: from one recorded run, or a described network, to the performance with more workers.
//!
//! `record` (with `trace`) or `model` say what a step is, as `work`. `scale` draws the steps of many workers, `replay`
//! simulates one of them, `cost` knows how long its collectives take, `show` and `bars` are the output for people; for
//! networks in stages, those are `meshes` and `mesh_table`. All but the readers are pure.

mod bars;
mod cost;
#[cfg(feature = "train")]
mod mesh_table;
#[cfg(feature = "train")]
mod meshes;
mod model;
mod record;
mod replay;
mod scale;
mod show;
mod trace;
mod work;

use anyhow::Result;
use sirtaki_engine::decide::fuse::Limits;

use self::{
    cost::{LinearCost, Network},
    scale::{ScalingMode, predict},
    show::Forecast,
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
    #[cfg(feature = "train")]
    if let Some(wanted) = mesh_table::wanted(arguments)? {
        let network = network(&work, arguments);
        let rows = meshes::meshes(&work, &network, scaling(arguments), wanted, &arguments.workers.0);
        return mesh_table::show(&work, wanted, &rows.map_err(mesh_table::advice)?, (arguments.json, printer));
    }
    let forecast = forecast(work, arguments);
    if arguments.json {
        printer.data(&serde_json::to_string(&forecast.json())?)?;
        return Ok(());
    }
    forecast.print(printer)?;
    Ok(())
}

fn network(work: &Work, arguments: &Predict) -> Network {
    Network {
        latency: arguments.latency,
        bandwidth: arguments.bandwidth,
        per_host: arguments.per_host.get(),
        local: work.local.unwrap_or(LOCAL),
        forced: arguments.algorithm,
    }
}

fn scaling(arguments: &Predict) -> ScalingMode {
    if arguments.strong { ScalingMode::Strong } else { ScalingMode::Weak }
}

fn forecast(work: Work, arguments: &Predict) -> Forecast {
    let (network, scaling) = (network(&work, arguments), scaling(arguments));
    let limits = Limits { fused: arguments.fusion, large: arguments.fusion_large };
    let every = arguments.every.get();
    let rows = predict(&work, &network, limits, (scaling, every), &arguments.workers.0);
    Forecast { work, network, scaling, every, rows }
}
