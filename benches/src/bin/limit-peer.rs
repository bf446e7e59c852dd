//! The machine's own limit as a benchmark peer: `limit-peer add|copy RANKS` starts RANKS processes.

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use sirtaki_bench::{
    BenchError, exit_with,
    limit::{Limit, Task},
    protocol::{Hello, SOCKET},
    serve::answer,
};

fn usage() -> BenchError {
    BenchError::Protocol("use: limit-peer add|copy RANKS, as the benchmark does".into())
}

/// `add|copy RANKS`, and for the processes started by the first one also `RANK PID DESCRIPTOR`.
fn run(arguments: &[String]) -> Result<(), BenchError> {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok());
    let task = match arguments.first().map(String::as_str) {
        Some("add") => Task::Add,
        Some("copy") => Task::Copy,
        _ => return Err(usage()),
    };
    let size = number(1).filter(|&size| size > 0).ok_or_else(usage)?;
    let socket = std::env::var_os(SOCKET).map(PathBuf::from).ok_or_else(usage)?;
    let rank = number(2).unwrap_or(0);
    let mut children = Vec::new();
    let mut limit = match (number(3), number(4)) {
        (Some(pid), Some(descriptor)) => Limit::join((pid as u32, descriptor as i32), size, task)?,
        _ => {
            let limit = Limit::create(size, task)?;
            let (pid, descriptor) = limit.address();
            for rank in 1..size {
                let program = std::env::current_exe().map_err(|source| io("cannot find this program", source))?;
                let mut command = Command::new(program);
                command.args(&arguments[..2]).args([rank.to_string(), pid.to_string(), descriptor.to_string()]);
                children.push(command.spawn().map_err(|source| io("cannot start a process", source))?);
            }
            limit
        }
    };
    let peer = format!("limit-{}", arguments[0]);
    let result = answer(&socket, &Hello { peer, rank, size }, &mut limit);
    // The children end by themselves: their sockets are closed as well.
    for mut child in children {
        let _ = child.wait();
    }
    result
}

fn io(action: &str, source: std::io::Error) -> BenchError {
    BenchError::Io { action: action.into(), source }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    exit_with("limit-peer", run(&arguments))
}
