//! The measurements behind `cargo xtask bench train`: `sirtaki train` compared with PyTorch DDP over Gloo, with the
//! same network, batches, optimizer, learning rates, seeds and images, one thread per rank.
//!
//! Both systems take turns, run by run, and write the same report. Time to accuracy is MLPerf's: several seeds, the best
//! and the worst dropped, the mean of the rest. Two processes that do not communicate show what the machine itself
//! loses when both cores work: any further loss is due to training together.

use std::{fs, path::Path, process::Command, time::Duration};

use serde::Deserialize;
use tempfile::TempDir;

use crate::{
    BenchError, command,
    peer::median,
    report::Verdict,
    start::{Starter, peer_script},
};

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(1200);
/// Where the images are.
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist");

/// Steps of a training in which everything is recorded, and how much longer they may take.
const SEEN_STEPS: &str = "900";
const SEEN: f64 = 1.02;

/// What to measure.
#[derive(Debug, Clone)]
pub struct TrainPlan {
    /// Seeds for the time to the target.
    pub seeds: usize,
    /// Turns of every system at every throughput.
    pub rounds: usize,
    /// Steps per run of LeNet and of the larger network.
    pub steps: [usize; 2],
}

/// A system that trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trainer {
    /// `sirtaki train`.
    Sirtaki,
    /// The same with `--reproducible`, to see what equal bits cost.
    Exact,
    /// PyTorch's `DistributedDataParallel` over Gloo.
    Ddp,
}

impl Trainer {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Trainer::Sirtaki => "sirtaki",
            Trainer::Exact => "…exact",
            Trainer::Ddp => "DDP (Gloo)",
        }
    }
}

/// How many train, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crew {
    /// One worker, the other core idle.
    One,
    /// Two workers together.
    Two,
    /// Two workers that run at the same time and do not communicate.
    Strangers,
}

/// What both systems write at the end, as far as it is needed here.
#[derive(Debug, Clone, Deserialize)]
struct Report {
    test_accuracy: f64,
    seconds_to_target: Option<f64>,
    samples_per_second: f64,
    communication_share: Option<f64>,
    peak_memory: Vec<u64>,
}

/// One way to the target.
#[derive(Debug, Clone, Copy)]
pub struct Race {
    /// Seconds of training and tests until the target was reached; infinite if it was not.
    pub training: f64,
    /// Seconds from the start of the command to its end, all epochs.
    pub whole: f64,
    /// Share of the test images recognised at the end.
    pub accuracy: f64,
}

/// Throughput of a system with a network.
#[derive(Debug, Clone)]
pub struct Speed {
    /// The network.
    pub model: &'static str,
    /// Which system trained it.
    pub system: Trainer,
    /// Images per second: one worker, two, two strangers; each the median of its rounds.
    pub images: [f64; 3],
    /// Speed of two workers relative to twice that of one: the median of the rounds.
    pub efficiency: f64,
    /// Speed of two workers relative to two strangers: the median of the rounds.
    pub togetherness: f64,
    /// Share of the time in which two workers waited for each other, where that is known.
    pub communication: Option<f64>,
    /// Bytes of the largest of two workers.
    pub memory: u64,
}

/// Runs a system once; returns the reports of all its processes, and how long they took from start to end.
fn train(starter: &Starter, system: Trainer, crew: Crew, options: &[&str]) -> Result<(Vec<Report>, f64), BenchError> {
    let folder = TempDir::new().map_err(BenchError::io("cannot make a folder for reports"))?;
    let jobs = if crew == Crew::Strangers { 2 } else { 1 };
    let files: Vec<_> = (0..jobs).map(|job| folder.path().join(format!("{job}.json"))).collect();
    let mut commands = Vec::new();
    for (job, file) in files.iter().enumerate() {
        let mut command = match system {
            Trainer::Sirtaki | Trainer::Exact => {
                ours(starter, system, crew, &folder.path().join(format!("checkpoints-{job}")))
            }
            Trainer::Ddp => theirs(starter, crew)?,
        };
        command.args(["--data", DATA]).args(options).arg("--json").arg(file);
        commands.push(command);
    }
    let seen = command::watch(&mut commands, LIMIT)?;
    let late = || BenchError::Protocol(format!("{} did not end within {} s", system.name(), LIMIT.as_secs()));
    let whole = seen.ok_or_else(late)?.whole / 1e6;
    let reports = files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    Ok((reports, whole))
}

fn read(file: &Path) -> Result<Report, BenchError> {
    let text = fs::read(file).map_err(BenchError::io("cannot read the report of a training run"))?;
    serde_json::from_slice(&text)
        .map_err(|error| BenchError::Protocol(format!("the report of a training run: {error}")))
}

fn ours(starter: &Starter, system: Trainer, crew: Crew, checkpoints: &Path) -> Command {
    let (workers, all) = if crew == Crew::Two { ("2", "128") } else { ("1", "64") };
    let mut command = Command::new(starter.program("sirtaki"));
    command.args(["train", "--quiet", "-n", workers]);
    match system {
        Trainer::Exact => command.args(["--reproducible", "--global-batch", all]),
        _ => command.args(["--batch-size", "64"]),
    };
    command.arg("--checkpoint-dir").arg(checkpoints);
    command
}

fn theirs(starter: &Starter, crew: Crew) -> Result<Command, BenchError> {
    let python = starter.python().ok_or_else(|| BenchError::Protocol("PyTorch is not installed".into()))?;
    let mut command = Command::new(python);
    if crew == Crew::Two {
        let launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"];
        command.args(launcher);
    }
    command.arg(peer_script("train.py")).env("PYTHONDONTWRITEBYTECODE", "1").env("OMP_NUM_THREADS", "1");
    Ok(command)
}

/// The systems that can be compared.
pub fn systems(starter: &Starter) -> Vec<Trainer> {
    let ddp = starter.python().map(|_: &Path| Trainer::Ddp);
    [Trainer::Sirtaki, Trainer::Exact].into_iter().chain(ddp).collect()
}

/// Two workers of every system to the target, seed after seed.
pub fn races(plan: &TrainPlan, starter: &Starter, say: &dyn Fn(&str)) -> Result<Vec<(Trainer, Vec<Race>)>, BenchError> {
    let racing = systems(starter).into_iter().filter(|&system| system != Trainer::Exact);
    let mut all: Vec<(Trainer, Vec<Race>)> = racing.map(|system| (system, Vec::new())).collect();
    for seed in 1..=plan.seeds {
        for (system, races) in &mut all {
            say(&format!("{} to the target, seed {seed}", system.name()));
            let options = ["--epochs", "4", "--lr", "0.01", "--seed", &seed.to_string()];
            let (reports, whole) = train(starter, *system, Crew::Two, &options)?;
            races.extend(reports.iter().map(|report| Race {
                training: report.seconds_to_target.unwrap_or(f64::INFINITY),
                whole,
                accuracy: report.test_accuracy,
            }));
        }
    }
    Ok(all)
}

/// The mean without the best and the worst; of fewer than three, of all.
pub fn trimmed(times: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = times.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let kept = if sorted.len() < 3 { &sorted[..] } else { &sorted[1..sorted.len() - 1] };
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// Throughput of every system with every network.
pub fn speeds(plan: &TrainPlan, starter: &Starter, say: &dyn Fn(&str)) -> Result<Vec<Speed>, BenchError> {
    let mut speeds = Vec::new();
    for (model, steps) in ["lenet", "cnn"].into_iter().zip(plan.steps) {
        let steps = steps.to_string();
        let options = ["--model", model, "--max-steps", &steps];
        let systems = systems(starter);
        let mut runs: Vec<Vec<[Vec<Report>; 3]>> = vec![Vec::new(); systems.len()];
        for round in 1..=plan.rounds {
            for (system, runs) in systems.iter().zip(&mut runs) {
                say(&format!("{} with {}, round {round}", model, system.name()));
                let run = |crew| train(starter, *system, crew, &options).map(|(reports, _)| reports);
                runs.push([run(Crew::One)?, run(Crew::Two)?, run(Crew::Strangers)?]);
            }
        }
        speeds.extend(systems.iter().zip(&runs).map(|(&system, runs)| speed(model, system, runs)));
    }
    Ok(speeds)
}

/// What it costs to record everything about a training: two workers with timeline, profile and folder, and without, in
/// turns.
pub fn seen(rounds: usize, starter: &Starter, say: &dyn Fn(&str)) -> Result<Verdict, BenchError> {
    let folder = TempDir::new().map_err(BenchError::io("cannot make a folder for timelines"))?;
    let timeline = folder.path().join("timeline.json").display().to_string();
    let without = ["--max-steps", SEEN_STEPS, "--record=no", "--progress=off"];
    let with = ["--max-steps", SEEN_STEPS, "--profile", "--progress=lines", "--timeline", &timeline];
    let (mut pairs, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 1..=rounds {
        say(&format!("training with everything seen and with nothing, round {round}"));
        let mut speeds = [0.0; 2];
        // The machine may get faster or slower meanwhile, so the order changes.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for at in order {
            let options = if at == 0 { &with[..] } else { &without[..] };
            let (reports, _) = train(starter, Trainer::Sirtaki, Crew::Two, options)?;
            speeds[at] = reports[0].samples_per_second;
            pairs[at].push(speeds[at]);
        }
        ratios.push(speeds[1] / speeds[0]);
    }
    let (with, without, ratio) = (median(&pairs[0]), median(&pairs[1]), median(&ratios));
    let text = format!(
        "2 workers, lenet: {with:.0} images/s with timeline, profile and folder, {without:.0} without: {ratio:.3}, to be at \
         most {SEEN:.3} (middle of {rounds} pairs)"
    );
    Ok(Verdict { reached: ratio <= SEEN, text })
}

fn speed(model: &'static str, system: Trainer, runs: &[[Vec<Report>; 3]]) -> Speed {
    let images = |reports: &[Report]| reports.iter().map(|report| report.samples_per_second).sum::<f64>();
    let middle = |value: &dyn Fn(&[Vec<Report>; 3]) -> f64| median(&runs.iter().map(value).collect::<Vec<_>>());
    let together = || runs.iter().flat_map(|run| &run[1]);
    let shares: Vec<f64> = together().filter_map(|report| report.communication_share).collect();
    Speed {
        model,
        system,
        images: [0, 1, 2].map(|crew| middle(&|run| images(&run[crew]))),
        efficiency: middle(&|run| images(&run[1]) / images(&run[0]) / 2.0),
        togetherness: middle(&|run| images(&run[1]) / images(&run[2])),
        communication: (!shares.is_empty()).then(|| median(&shares)),
        memory: together().flat_map(|report| &report.peak_memory).copied().max().unwrap_or(0),
    }
}
