//! Sirtaki's engine as a benchmark peer: `engine-peer engine|plain RANKS` starts RANKS processes.
//!
//! An order for as many bytes as ResNet-50 has parameters is a training step: its tensors are handed in one by one, in
//! an order that differs from rank to rank and from step to step. Any other order is one tensor. `plain` reduces the
//! same bytes by one call of the communicator below.

use std::{
    path::PathBuf,
    process::{Child, Command, ExitCode},
    sync::Arc,
};

use sirtaki_bench::{
    BenchError,
    protocol::{Hello, SOCKET},
    resnet,
    serve::{Work, answer, serve},
};
use sirtaki_comm::{Communicator, DType, Reduction, Settings, rendezvous, secure::Secret};
use sirtaki_engine::{Engine, Operation, Request, Tensor, Ticket};

/// Where the processes this program starts find the job's secret.
const SECRET: &str = "SIRTAKI_BENCH_SECRET";

struct Steps {
    engine: Engine,
    /// Start and length of each tensor in the buffer, and its name.
    tensors: Vec<(usize, usize, String)>,
    step: u64,
}

impl Steps {
    fn new(engine: Engine) -> Self {
        let mut start = 0;
        let tensor = |(index, length): (usize, usize)| {
            start += length;
            (start - length, length, format!("layer {index}"))
        };
        Self { engine, tensors: resnet::tensors().into_iter().enumerate().map(tensor).collect(), step: 0 }
    }

    fn submit(&self, name: &str, data: &mut [f32]) -> Ticket {
        let request = Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[data.len()]);
        // SAFETY: `run` waits for the ticket before the borrow of the data ends, and hands in no part of it twice.
        let tensor = unsafe { Tensor::foreign(data.as_mut_ptr().cast(), DType::F32, data.len(), Box::new(())) };
        self.engine.submit(request, tensor)
    }
}

impl Work for Steps {
    fn barrier(&mut self) -> Result<(), BenchError> {
        self.engine.barrier("barrier").map_err(failed)
    }

    fn run(&mut self, data: &mut [f32]) -> Result<(), BenchError> {
        let whole = self.tensors.last().map_or(0, |(start, length, _)| start + length);
        if data.len() != whole {
            return self.submit("tensor", data).wait().map(drop).map_err(failed);
        }
        self.step += 1;
        let seed = self.step * 1000 + self.engine.group().rank() as u64;
        let tickets: Vec<Ticket> = resnet::shuffled(self.tensors.len(), seed)
            .into_iter()
            .map(|index| {
                let (start, length, name) = &self.tensors[index];
                self.submit(name, &mut data[*start..start + length])
            })
            .collect();
        // All of them, also after an error: the engine has the memory until they are done.
        let outcomes: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop)).map_err(failed)
    }
}

fn failed(error: sirtaki_engine::EngineError) -> BenchError {
    BenchError::Protocol(error.to_string())
}

fn usage() -> BenchError {
    BenchError::Protocol("use: engine-peer engine|plain RANKS, as the benchmark does".into())
}

fn io(action: &str) -> impl FnOnce(std::io::Error) -> BenchError {
    let action = action.into();
    move |source| BenchError::Io { action, source }
}

/// Starts the other ranks.
fn start_others(
    arguments: &[String],
    size: usize,
    folder: &std::path::Path,
    secret: &Secret,
) -> Result<Vec<Child>, BenchError> {
    let program = std::env::current_exe().map_err(io("cannot find this program"))?;
    let start = |rank: usize| {
        let mut command = Command::new(&program);
        command.args(&arguments[..2]).arg(rank.to_string()).arg(folder).env(SECRET, secret.to_hex());
        command.spawn().map_err(io("cannot start a process"))
    };
    (1..size).map(start).collect()
}

fn work(
    mode: &str,
    world: Box<dyn Communicator>,
    settings: &Settings,
    socket: &std::path::Path,
) -> Result<(), BenchError> {
    let mut world = world;
    if mode == "plain" {
        return serve(&mut *world, "sirtaki-comm", false, socket);
    }
    let (rank, size) = (world.group().rank(), world.group().size());
    let engine = Engine::start(world, settings, sirtaki_engine::Settings::default()).map_err(failed)?;
    answer(socket, &Hello { peer: "sirtaki-engine".into(), rank, size }, &mut Steps::new(engine))
}

/// `engine|plain RANKS`, and for the processes started by the first one also `RANK FOLDER`.
fn run(arguments: &[String]) -> Result<(), BenchError> {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok());
    let mode = arguments.first().filter(|mode| ["engine", "plain"].contains(&mode.as_str())).ok_or_else(usage)?;
    let size = number(1).filter(|&size| size > 0).ok_or_else(usage)?;
    let socket = std::env::var_os(SOCKET).map(PathBuf::from).ok_or_else(usage)?;
    let rank = number(2).unwrap_or(0);
    let own = tempfile::TempDir::new().map_err(io("cannot make a folder to meet in"))?;
    let folder = arguments.get(3).map_or_else(|| own.path().to_path_buf(), PathBuf::from);
    let secret = match std::env::var(SECRET) {
        Ok(hex) => Secret::from_hex(&hex)?,
        Err(_) => Secret::random()?,
    };
    let children = if rank == 0 { start_others(arguments, size, &folder, &secret)? } else { Vec::new() };
    let settings = Settings::new(secret);
    let store = Arc::new(rendezvous::FileStore::new(folder, "engine-peer")?);
    let world = rendezvous::connect(store, rank, size, settings.clone())?;
    let result = work(mode, world, &settings, &socket);
    // They see the same end of their sockets.
    for mut child in children {
        let _ = child.wait();
    }
    result
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr, reason = "a program says on its error output why it ends")]
            {
                eprintln!("engine-peer: {error}");
            }
            ExitCode::FAILURE
        }
    }
}
