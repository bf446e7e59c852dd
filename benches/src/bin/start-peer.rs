//! `start-peer nothing|engine|mpi|chatter`: a program that is started to measure how soon it gets to work.
//!
//! It does nothing, or one all-reduce by the engine or MPI, and prints the time of the system's monotonic clock, which
//! all processes of a machine share. As `chatter` it prints ten lines per second until it is ended.

use std::{
    io::{self, Write},
    process::ExitCode,
    thread::sleep,
    time::Duration,
};

use sirtaki_bench::{BenchError, command, exit_with};
use sirtaki_comm::communicator::mpi::{
    Choice, load,
    raw::{MpiOp, Threads, Type},
};
use sirtaki_engine::job::Job;
use sirtaki_tests::engines::sum;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn say(line: &str) -> Result<(), BenchError> {
    writeln!(io::stdout(), "{line}").map_err(BenchError::io("cannot print"))
}

fn say_time() -> Result<(), BenchError> {
    say(&command::stamp())
}

fn engine() -> Result<(), BenchError> {
    let problem = |error: &dyn std::error::Error| BenchError::Protocol(error.to_string());
    let world = Job::discover(&variable).and_then(Job::join).map_err(|error| problem(&error))?;
    sum(world.engine(), "first", vec![1.0f32]).wait().map_err(|error| problem(&error))?;
    say_time()
}

fn mpi() -> Result<(), BenchError> {
    let mpi = load(&Choice::from_environment(variable))?.mpi;
    let explain = |code| BenchError::Protocol(mpi.explain(code));
    mpi.init(Threads::Single).map_err(explain)?;
    mpi.all_reduce(&mut 1f32.to_ne_bytes(), Type::F32, MpiOp::Sum, mpi.world()).map_err(explain)?;
    say_time()?;
    mpi.finalize().map_err(explain)
}

fn chatter() -> Result<(), BenchError> {
    for line in 0.. {
        say(&format!("line {line} of a program that has something to say about every step it takes"))?;
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("nothing") => say_time(),
        Some("engine") => engine(),
        Some("mpi") => mpi(),
        Some("chatter") => chatter(),
        _ => Err(BenchError::Protocol("use: start-peer nothing|engine|mpi|chatter, as the benchmark does".into())),
    };
    exit_with("start-peer", result)
}
