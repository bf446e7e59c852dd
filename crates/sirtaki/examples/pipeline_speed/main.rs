//! How long the workers of a pipeline wait for each other, beside theory, and how much faster they are than one process,
//! beside PyTorch's own pipeline over Gloo: `cargo xtask bench pipeline`.
//!
//! All stages are alike, so that theory says how long workers wait. The program needs nothing but itself and can be copied
//! to another machine; PyTorch takes part if a Python is named that has it. Whatever is measured is measured by ranks of
//! [`sirtaki::launch`], which start this program again; so everything else happens at the end.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to the person who started it")]

mod options;
mod table;
mod torch;
mod work;

use std::process::ExitCode;

use sirtaki::{LaunchError, launch, pipeline::PipelineSchedule};

use self::{
    options::Options,
    table::Row,
    work::{Course, Way},
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

/// All rows of the table, measured in turns.
fn measure(options: &Options) -> Result<Vec<Row>, LaunchError> {
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
            steps.extend(launch(1, |_| torch::step(python, workers, options.size))?);
        }
    }
    let ours = ways.iter().zip(&ours).map(|(way, courses)| Row::ours(*way, options.size, courses));
    let theirs = options.workers.iter().zip(&theirs).filter(|(_, steps)| !steps.is_empty());
    Ok(ours.chain(theirs.map(|(&workers, steps)| Row::theirs(workers, options.size, steps))).collect())
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
        Ok(rows) => {
            println!("{}", table::show(&options, &rows));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
