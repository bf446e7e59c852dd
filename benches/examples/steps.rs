//! One interleaved measurement of training steps and of one small tensor: `cargo run --release --example steps`.
//!
//! Needs a Python with PyTorch for Gloo, named by PYTHON; without, only our own rows are printed.

#![allow(clippy::print_stdout, reason = "a program prints its results")]

use std::{
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use sirtaki_bench::{BenchError, Peer, peer::median, resnet};
use sirtaki_engine::recorder::{Phase, Recorder};

const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS: usize = 5;

fn engine(mode: &str, size: usize) -> Result<Peer, BenchError> {
    let name = "engine-peer";
    let program = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.parent()?.join(name)));
    let mut command = Command::new(program.unwrap_or_else(|| PathBuf::from(name)));
    command.args([mode, &size.to_string()]);
    Peer::start(mode, vec![command], size, PATIENCE)
}

fn gloo(form: &str, size: usize, folder: &std::path::Path) -> Option<Peer> {
    let python = std::env::var("PYTHON").ok()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/gloo_step_peer.py");
    let meeting = folder.join(format!("{form}{size}"));
    let rank = |rank: usize| {
        let mut command = Command::new(&python);
        command.arg(script).env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string()).env("STEP_FORM", form);
        command.env("INIT_METHOD", format!("file://{}", meeting.display())).env("GLOO_SOCKET_IFNAME", "lo");
        command
    };
    Peer::start(&format!("gloo {form}"), (0..size).map(rank).collect(), size, PATIENCE).ok()
}

/// Microseconds that a rank's flight record takes in a step: three notes per tensor.
fn recording() -> Result<f64, BenchError> {
    let recorder = Recorder::create()?;
    let (steps, tensors) = (1000, resnet::tensors().len() as u64);
    let start = Instant::now();
    for number in 0..steps * tensors * 3 {
        recorder.note(Phase::Done, number, number, 4, "layer4.2.conv3.weight");
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / steps as f64)
}

fn main() -> Result<(), BenchError> {
    println!("flight record: {:.1} us per step and rank", recording()?);
    let folder = tempfile::TempDir::new().map_err(|source| BenchError::Io { action: "a folder".into(), source })?;
    let step: usize = resnet::tensors().iter().sum::<usize>() * 4;
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    for &size in if sizes.is_empty() { &[2, 4][..] } else { &sizes } {
        let mut peers = vec![engine("engine", size)?, engine("plain", size)?];
        peers.extend(["works", "buckets"].iter().filter_map(|form| gloo(form, size, folder.path())));
        let mut times: Vec<(Vec<f64>, Vec<f64>)> = peers.iter().map(|_| Default::default()).collect();
        for _ in 0..ROUNDS {
            for (peer, (steps, small)) in peers.iter_mut().zip(&mut times) {
                steps.extend(peer.measure(step, 10)?);
                small.extend(peer.measure(4, 200)?);
            }
        }
        println!("{size} ranks        step of 161 tensors   one of 4 bytes");
        for (peer, (steps, small)) in peers.iter().zip(&times) {
            println!("{:16} {:12.1} ms {:15.1} us", peer.name(), median(steps) / 1000.0, median(small));
        }
    }
    Ok(())
}
