//! One rank of a benchmark: connect, check, measure, report.
//!
//! Algorithms take turns within every round, because a machine's speed drifts: measured block by block, the drift
//! would look like a difference between algorithms.

use std::{
    io::{Stdout, Write},
    num::NonZeroUsize,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use sirtaki_comm::{CommError, Communicator, ReduceOp, Reduction, collective::Algorithm};
use sirtaki_engine::job::Job;

use super::{
    data::Buffer,
    row::{Measurement, WorkerMessage},
};
use crate::{
    args::{BenchWorker, Choice},
    env,
    printer::hint,
};

/// Calls this small are timed in bundles of [`BUNDLE`], since a clock reading costs about as much as one of them.
const SMALL: usize = 4 << 10;
const BUNDLE: usize = 16;

/// Takes part in the benchmark described by `arguments` and the environment. Reports go to standard output, one
/// object per line.
pub fn work(arguments: &BenchWorker) -> Result<()> {
    let mut out = std::io::stdout();
    let result = measure_all(arguments, &mut out);
    if let Err(error) = &result {
        report(&mut out, &WorkerMessage::Failed { message: format!("{error:#}"), hint: hint(error) })?;
    }
    result
}

fn report(out: &mut Stdout, report: &WorkerMessage) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(report)?)?;
    out.flush()?;
    Ok(())
}

fn measure_all(arguments: &BenchWorker, out: &mut Stdout) -> Result<()> {
    let mut group = Job::discover(&env::process)?.connect()?.communicator;
    let lead = group.group().rank() == 0;
    if lead {
        report(out, &WorkerMessage::Connected { back_end: group.name().into() })?;
    }
    let choices = choose(&arguments.algorithm, group.as_mut())?;
    if let Choice::All = arguments.algorithm
        && lead
    {
        for algorithm in Algorithm::ALL.into_iter().filter(|&algorithm| !choices.contains(&Some(algorithm))) {
            report(out, &WorkerMessage::Skipped { algorithm: algorithm.name().into() })?;
        }
    }
    for &bytes in arguments.sizes.list() {
        let mut buffer = Buffer::new(arguments.dtype, bytes);
        let rows = measure(group.as_mut(), &choices, &mut buffer, arguments.repeat)?;
        for row in rows.into_iter().filter(|_| lead) {
            report(out, &WorkerMessage::Measured(row))?;
        }
    }
    Ok(group.barrier()?)
}

/// The requested algorithms that the back end has. Requesting one by name that it does not have is an error.
fn choose(choice: &Choice, group: &mut dyn Communicator) -> Result<Vec<Option<Algorithm>>> {
    let choices = match choice {
        Choice::These(list) => list.clone(),
        Choice::All => {
            let mut choices = vec![None];
            for algorithm in Algorithm::ALL {
                match group.force(Some(algorithm)) {
                    Ok(()) => choices.push(Some(algorithm)),
                    Err(CommError::Invalid { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            choices
        }
    };
    for &algorithm in &choices {
        group.force(algorithm)?;
    }
    Ok(choices)
}

/// All algorithms at one size.
fn measure(
    group: &mut dyn Communicator,
    choices: &[Option<Algorithm>],
    buffer: &mut Buffer,
    repeat: Option<NonZeroUsize>,
) -> Result<Vec<Measurement>> {
    for &algorithm in choices {
        group.force(algorithm)?;
        check(group, buffer).with_context(|| format!("algorithm `{}`", name(algorithm)))?;
    }
    buffer.clear();
    let repeat = repeat.map_or_else(|| rounds(buffer.len()), NonZeroUsize::get);
    let bundle = if buffer.len() <= SMALL { BUNDLE } else { 1 };
    let mut seconds = vec![Vec::with_capacity(repeat); choices.len()];
    for _ in 0..repeat {
        for (&algorithm, seconds) in choices.iter().zip(&mut seconds) {
            group.force(algorithm)?;
            group.barrier()?;
            let start = Instant::now();
            for _ in 0..bundle {
                group.all_reduce(buffer.slice()?, Reduction::SUM)?;
            }
            seconds.push(start.elapsed().as_secs_f64() / bundle as f64);
        }
    }
    group.force(None)?;
    let (ranks, bytes) = (group.group().size(), buffer.len());
    choices
        .iter()
        .zip(seconds)
        .map(|(&algorithm, mut seconds)| {
            group.all_reduce((&mut seconds).into(), Reduction::new(ReduceOp::Max))?;
            Ok(Measurement::new(name(algorithm), ranks, bytes, &mut seconds))
        })
        .collect()
}

/// One call with known inputs; also warms up.
fn check(group: &mut dyn Communicator, buffer: &mut Buffer) -> Result<()> {
    let (rank, size) = (group.group().rank(), group.group().size());
    buffer.fill(rank);
    group.all_reduce(buffer.slice()?, Reduction::SUM)?;
    if let Some(index) = buffer.find_wrong(size) {
        bail!("the sum over {size} ranks is wrong on rank {rank} at element {index} of {} bytes", buffer.len());
    }
    Ok(())
}

/// Number of rounds if the user gives none: many if they are cheap.
fn rounds(bytes: usize) -> usize {
    ((512 << 20) / bytes.max(1)).clamp(5, 200)
}

/// The name of a choice.
fn name(algorithm: Option<Algorithm>) -> &'static str {
    algorithm.map_or("auto", Algorithm::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sizes_are_measured_often_and_large_ones_at_least_five_times() {
        assert_eq!([0, 4, 1 << 20, 64 << 20, 1 << 30].map(rounds), [200, 200, 200, 8, 5]);
    }
}
