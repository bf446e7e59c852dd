//! How long the workers of a pipeline wait for each other, beside theory, and how much faster they are than one process,
//! beside PyTorch's own pipeline over Gloo: `cargo xtask bench pipeline`.
//!
//! All stages are alike, so that theory says how long workers wait. The program needs nothing but itself and can be copied
//! to another machine; PyTorch takes part if a Python is named that has it. Whatever is measured is measured by ranks of
//! [`sirtaki::launch`], which start this program again; so everything else happens at the end.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to the person who started it")]

mod balance;
mod check;
mod goals;
mod inference;
mod lending;
mod options;
mod table;
mod torch;
mod work;

use std::process::ExitCode;

use sirtaki::{LaunchError, launch, pipeline::PipelineSchedule};

use self::{
    goals::{Goal, summary},
    inference::{Shared, Speeds},
    lending::Keeping,
    options::Options,
    table::Row,
    torch::{Exchange, Peers},
    work::{Course, Way, median},
};

/// What is measured on this many workers.
fn ways(workers: usize) -> Vec<Way> {
    let way = |schedule, chunks| Way { workers, schedule, chunks };
    match workers {
        1 => vec![way(PipelineSchedule::GPipe, 1)],
        _ => vec![
            way(PipelineSchedule::GPipe, 1),
            way(PipelineSchedule::OneForwardOneBackward, 1),
            way(PipelineSchedule::Interleaved, 2),
        ],
    }
}

/// The steps of pipelines, ours and PyTorch's, measured in turns.
fn pipelines(options: &Options) -> Result<(String, Vec<Goal>), LaunchError> {
    let ways: Vec<Way> = options.workers.iter().flat_map(|&workers| ways(workers)).collect();
    let mut ours = vec![Vec::new(); ways.len()];
    let mut theirs = vec![Vec::new(); options.workers.len()];
    for _ in 0..options.rounds {
        for (way, courses) in ways.iter().zip(&mut ours) {
            let ranks = launch(way.workers, |world| work::steps(world, *way, options.size))?;
            courses.push(Course::new(&ranks));
        }
        let Some(python) = &options.python else { continue };
        for (&workers, steps) in options.workers.iter().zip(&mut theirs) {
            steps.extend(launch(1, |_| Peers { python, workers, backend: "gloo" }.step(options.size))?);
        }
    }
    let ours = ways.iter().zip(&ours).map(|(way, courses)| Row::ours(*way, options.size, courses));
    let theirs = options.workers.iter().zip(&theirs).filter(|(_, steps)| !steps.is_empty());
    let rows: Vec<Row> =
        ours.chain(theirs.map(|(&workers, steps)| Row::theirs(workers, options.size, steps))).collect();
    Ok(table::show(options, &rows))
}

/// Stages of unequal layers, where the helper cuts them.
fn cuts(options: &Options) -> Result<(String, Vec<Goal>), LaunchError> {
    let (mut text, mut goals) = (String::from("unequal layers, cut where `cut` says"), Vec::new());
    for &workers in options.workers.iter().filter(|&&workers| workers > 1) {
        let mut imbalances = Vec::new();
        for _ in 0..options.rounds {
            imbalances.push(balance::imbalance(&launch(workers, |world| balance::busy(world, options.size))?));
        }
        let (line, goal) = balance::told(workers, median(imbalances.into_iter()));
        text.push_str(&line);
        goals.push(goal);
    }
    Ok((text, goals))
}

/// Batches through a network without training it.
fn inference(options: &Options) -> Result<(String, Vec<Goal>), LaunchError> {
    let mut speeds = Speeds::default();
    for _ in 0..options.rounds {
        let one = launch(1, |world| inference::seconds(world, Shared::Stages, options.size))?;
        speeds.one.extend(one);
        for &workers in options.workers.iter().filter(|&&workers| workers > 1) {
            for shared in [Shared::Stages, Shared::Parts] {
                let ranks = launch(workers, |world| inference::seconds(world, shared, options.size))?;
                speeds.add(workers, shared, ranks.into_iter().fold(0.0, f64::max));
            }
        }
    }
    Ok(speeds.told())
}

/// Steps with whole parameters on every worker, and with rows of them.
fn lending(options: &Options) -> Result<(String, Vec<Goal>), LaunchError> {
    let mut turns = Vec::new();
    for _ in 0..options.rounds {
        for &workers in options.workers.iter().filter(|&&workers| workers > 1) {
            for keeping in Keeping::ALL {
                let ranks = launch(workers, |world| lending::step(world, keeping, options.size))?;
                turns.push((workers, keeping, ranks.into_iter().fold(0.0, f64::max)));
            }
        }
    }
    Ok((lending::told(&turns), Vec::new()))
}

/// PyTorch's own 1F1B whose stages compute next to nothing, over sirtaki and over Gloo.
fn exchanges(options: &Options) -> Result<(String, Vec<Goal>), LaunchError> {
    let Some(python) = &options.python else {
        return Ok(("PyTorch was left out: no Python was named".into(), Vec::new()));
    };
    let has = launch(1, |_| Ok::<_, String>(torch::has_sirtaki(python)))?;
    if !has.first().is_some_and(|&has| has) {
        let text = format!("PyTorch over sirtaki was left out: {} has no package sirtaki", python.display());
        return Ok((text, Vec::new()));
    }
    let mut exchanges = Exchange::all();
    for _ in 0..options.rounds {
        for exchange in &mut exchanges {
            let bytes = exchange.bytes;
            for backend in ["gloo", "sirtaki"] {
                let peers = Peers { python, workers: 2, backend };
                exchange.add(backend, launch(1, |_| peers.exchange(bytes))?.into_iter());
            }
        }
    }
    Ok(torch::told(&exchanges))
}

/// The whole text, and how many goals were missed.
fn measure(options: &Options) -> Result<String, LaunchError> {
    let parts = if options.check {
        vec![check::all(options)?]
    } else {
        vec![pipelines(options)?, cuts(options)?, inference(options)?, lending(options)?, exchanges(options)?]
    };
    let (texts, goals): (Vec<String>, Vec<Vec<Goal>>) = parts.into_iter().unzip();
    Ok(format!("{}\n\n{}", texts.join("\n\n"), summary(&goals.concat())))
}

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("error: {problem}\nhint: --help lists the options");
            return ExitCode::FAILURE;
        }
    };
    match measure(&options) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
