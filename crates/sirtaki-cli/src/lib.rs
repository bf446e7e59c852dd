//! The `sirtaki` command, as a library.
//!
//! # Layout
//!
//! - [`args`]: what can be typed. Nothing but clap.
//! - [`commands`]: one module per command; what was typed becomes what is done.
//! - [`launch`]: starting the processes of a job and never leaving one behind.
//! - [`mod@env`]: the process's environment; what its variables mean is in [`sirtaki_engine::job`].
//! - [`printer`]: the only place that writes to the terminal.

pub mod args;
pub mod commands;
pub mod env;
pub mod launch;
pub mod printer;

use std::{ffi::OsString, io::ErrorKind, process::ExitCode};

use anyhow::Result;
use clap::Parser;

use crate::{
    args::{Arguments, Bench, Command},
    printer::Printer,
};

/// What the binary does: arguments from the process, output to its terminal.
pub fn main() -> ExitCode {
    run(std::env::args_os(), &mut Printer::terminal())
}

/// Runs the command in `arguments`, the program's name first.
pub fn run(arguments: impl IntoIterator<Item = OsString>, printer: &mut Printer) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(usage) => return printer.usage(&usage),
    };
    match dispatch(arguments.command, printer) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            printer.error(&error);
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command, printer: &mut Printer) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => return commands::run::run(*arguments, printer),
        #[cfg(feature = "train")]
        Command::Train(arguments) => return commands::train::run(*arguments, printer),
        #[cfg(feature = "train")]
        Command::TrainWorker(arguments) => commands::train::work(&arguments, printer),
        Command::Agent => launch::agent::work(),
        Command::Completions(arguments) => commands::shell::completions(&arguments, printer),
        Command::Man(arguments) => commands::shell::man(&arguments, printer),
        Command::Doctor(arguments) => commands::doctor::run(&arguments, printer),
        Command::Bench(Bench::Allreduce(arguments)) => commands::bench::run(&arguments, printer),
        Command::BenchWorker(arguments) => commands::bench::work(&arguments),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Whoever read our output (`head`, a closed pager) has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == ErrorKind::BrokenPipe)
}
