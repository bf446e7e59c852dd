//! Sirtaki's own benchmark peer: `sirtaki-peer arena|shared|tcp|engine|records|telemetry RANK SIZE STORE [INTERFACE]`, the job's
//! secret in SIRTAKI_SECRET. It keeps to one core, as do ranks that `sirtaki` starts. As `records` it has two engines
//! that take turns: one with the defaults, one that keeps no flight record and does not note which ranks are late. As
//! `telemetry` the first of them also keeps a timeline and a profile.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use rustix::thread::{CpuSet, sched_setaffinity};
use sirtaki_bench::{
    BenchError, exit_with,
    protocol::{Hello, SOCKET},
    serve::{answer, serve},
    steps::{Steps, Turns},
};
use sirtaki_comm::{
    Settings,
    rendezvous::{FileStore, connect},
    secure::Secret,
};
use sirtaki_engine::{Engine, Profiling};

fn usage() -> BenchError {
    let text = "use: sirtaki-peer arena|shared|tcp|engine|records|telemetry RANK SIZE STORE [INTERFACE], as the benchmark does";
    BenchError::Protocol(text.into())
}

fn pin(rank: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(rank % cores);
    // If the machine does not allow it, the peer runs on any core.
    let _ = sched_setaffinity(None, &set);
}

fn usual() -> sirtaki_engine::Settings {
    sirtaki_engine::Settings::default()
}

/// Settings with which nothing is recorded.
fn blind() -> sirtaki_engine::Settings {
    sirtaki_engine::Settings { record: false, ..usual() }
}

fn run(arguments: &[String]) -> Result<(), BenchError> {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok()).ok_or_else(usage);
    let (mode, rank, size) = (arguments.first().ok_or_else(usage)?.as_str(), number(1)?, number(2)?);
    let folder = arguments.get(3).ok_or_else(usage)?;
    let secret = std::env::var("SIRTAKI_SECRET").map_err(|_| usage())?;
    let socket = std::env::var_os(SOCKET).map(PathBuf::from).ok_or_else(usage)?;
    pin(rank);
    let mut settings = Settings::new(Secret::from_hex(&secret)?);
    settings.shared_memory = mode != "tcp";
    settings.interface = arguments.get(4).cloned();
    let world = |job: &str| -> Result<_, BenchError> {
        Ok(connect(Arc::new(FileStore::new(folder, job)?), rank, size, settings.clone())?)
    };
    let engine = |job: &str, choices: sirtaki_engine::Settings| {
        Engine::start(world(job)?, &settings, choices).map_err(|error| BenchError::Protocol(error.to_string()))
    };
    let hello = Hello { peer: mode.into(), rank, size };
    match mode {
        "engine" => answer(&socket, &hello, &mut Steps::new(engine("bench", usual())?)),
        "records" => answer(&socket, &hello, &mut Turns::new(engine("bench", usual())?, engine("without", blind())?)),
        "telemetry" => {
            let timeline = Some(Path::new(folder).join("timeline.json"));
            let telemetry = sirtaki_engine::Settings { timeline, profile: Some(Profiling::Said), ..usual() };
            answer(&socket, &hello, &mut Turns::new(engine("bench", telemetry)?, engine("without", blind())?))
        }
        _ => serve(&mut *world("bench")?, mode, mode == "shared", &socket),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    exit_with("sirtaki-peer", run(&arguments))
}
