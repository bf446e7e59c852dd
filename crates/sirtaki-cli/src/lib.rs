//! The `sirtaki` command, as a library.
//!
//! # Layout
//!
//! - [`args`]: what can be typed. Nothing but clap.
//! - [`commands`]: one module per command; each carries out what was typed.
//! - [`launch`]: what people see of a job that [`sirtaki_launch`] runs.
//! - [`mod@env`]: the process's environment; what its variables mean is in [`sirtaki_engine::job`].
//! - [`plot`]: plots as SVG, for reports and benchmarks.
//! - [`printer`]: the only place that writes to the terminal.
//! - [`study`]: hyper-parameter studies in files.

pub mod args;
pub mod commands;
pub mod env;
pub mod launch;
pub mod plot;
pub mod printer;
pub mod study;

use std::{
    ffi::OsString,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use clap::CommandFactory;

use crate::{
    args::{Arguments, Bench, Command, habits},
    printer::Printer,
};

/// What the binary does: arguments from the process, output to its terminal.
pub fn main() -> ExitCode {
    let program = std::env::current_exe().unwrap_or_else(|_| "sirtaki".into());
    let arguments = [program.into_os_string()].into_iter().chain(std::env::args_os().skip(1));
    run(arguments, &mut Printer::terminal()).into()
}

/// Runs the command in `arguments` and returns its exit code. The first is the path of a program that does the same,
/// because the command starts itself again.
pub fn run(arguments: impl IntoIterator<Item = OsString>, printer: &mut Printer) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let program: PathBuf = arguments.first().cloned().unwrap_or_default().into();
    let arguments = match habits::understand(arguments, &Arguments::command(), &env::is_program) {
        Ok(arguments) => arguments,
        Err(advice) => {
            printer.error(&advice.into());
            return 2;
        }
    };
    let arguments = match Arguments::read(arguments) {
        Ok(arguments) => arguments,
        Err(usage) => return printer.usage(&usage),
    };
    match dispatch(arguments.command, &program, printer) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            printer.error(&error);
            1
        }
    }
}

fn dispatch(command: Command, program: &Path, printer: &mut Printer) -> Result<u8> {
    match command {
        Command::Run(arguments) => return commands::run::run(*arguments, program, printer),
        #[cfg(feature = "train")]
        Command::Train(arguments) => return commands::train::run(*arguments, program, printer),
        #[cfg(feature = "train")]
        Command::TrainWorker(arguments) => commands::train::work(&arguments, printer),
        Command::Search(arguments) => return commands::search::run(*arguments, program, printer),
        Command::Infer(arguments) => return commands::infer::run(&arguments, program, printer),
        Command::InferWorker(arguments) => commands::infer::work(&arguments),
        Command::Agent => sirtaki_launch::agent::work(program).map_err(Into::into),
        Command::MpiRelay(arguments) => {
            sirtaki_launch::agent::relay(&arguments.socket, &arguments.ends).map_err(Into::into)
        }
        Command::Completions(arguments) => commands::shell::completions(&arguments, printer),
        Command::Man(arguments) => commands::shell::man(&arguments, printer),
        Command::Report(arguments) => commands::report::run(&arguments, printer),
        Command::Predict(arguments) => commands::predict::run(&arguments, printer),
        Command::Doctor(arguments) => commands::doctor::run(&arguments, printer),
        Command::Bench(Bench::Scaling(arguments)) => {
            return commands::bench::scaling::run(&arguments, program, printer);
        }
        #[cfg(feature = "train")]
        Command::Bench(Bench::Train(arguments)) => return commands::train::bench(*arguments, program, printer),
        Command::Bench(Bench::Allreduce(arguments)) => commands::bench::run(&arguments, program, printer),
        Command::BenchWorker(arguments) => commands::bench::work(&arguments),
    }
    .map(|()| 0)
}

/// Whether the reader of the output (`head`, a pager) has closed it.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == ErrorKind::BrokenPipe)
}
