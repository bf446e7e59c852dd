//! Tasks of the repository: `cargo xtask test`, `cargo xtask bench …`, `cargo xtask docs`.
//!
//! A program instead of scripts, so that it is checked like everything else and works wherever cargo does.
#![allow(clippy::print_stdout, reason = "a task talks to the person who started it")]

mod book;
mod dist;
mod frameworks;
mod fuzz;
mod gpu;
mod hygiene;
mod loom;
mod packages;
mod ptx;
mod publish;
mod python;
mod python_tests;
mod search;
mod shell;
mod side_by_side;
mod steps;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::shell::{Shell, cargo};

/// Tasks of the repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check everything: format, lints, licences, docs, tests, models, fuzzing; cheapest first
    Test {
        /// Steps to run, in the order given; all of them if none is named
        steps: Vec<String>,
        /// Show the steps and what they do
        #[arg(long)]
        list: bool,
    },
    /// Compare with other libraries and launchers: `cargo xtask bench comm`; what encryption costs: `… bench tls`; with
    /// PyTorch's own NCCL on a machine with a GPU: `… bench gpu`; Keras with TensorFlow's strategy: `… bench tensorflow`;
    /// networks in stages beside theory and PyTorch's: `… bench pipeline`;
    /// parameter servers beside PyTorch's remote calls: `… bench server`;
    /// what local SGD needs: `… bench local-sgd`; networks on volumes beside MONAI: `… bench volume`
    Bench {
        /// Passed on to the benchmark program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the Python package into target/wheels
    Wheel,
    /// Make everything that a release consists of, into target/dist: archive of the command, wheels, sources, bill of
    /// materials, checksums
    Dist {
        /// Make it again from a clone in another folder, and compare
        #[arg(long)]
        twice: bool,
    },
    /// Pack wheel, tests, figures and a runner for a machine with a GPU into target/gpu-bundle
    GpuBundle,
    /// Build the book in docs into target/book
    Book,
    /// Regenerate pages and expected texts: the references in docs, the command's help
    Docs,
    /// Recompile the GPU kernels: reduce.cu to reduce.ptx
    Ptx,
}

fn main() -> ExitCode {
    match perform(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn asks_for_help(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument == "--help" || argument == "-h")
}

fn perform(task: Task) -> Result<()> {
    let shell = Shell::at_root()?;
    match task {
        Task::Test { list: true, .. } => {
            steps::list();
            Ok(())
        }
        Task::Test { steps, .. } => steps::run(&shell, &steps),
        Task::Bench { arguments } if arguments == ["gpu"] => gpu::bench(&shell),
        Task::Bench { arguments } if arguments.first().is_some_and(|name| name == "tensorflow") => {
            frameworks::bench_tensorflow(&shell, &arguments[1..])
        }
        Task::Bench { arguments } if arguments.first().is_some_and(|name| name == "local-sgd") => {
            frameworks::bench_local_sgd(&shell, &arguments[1..])
        }
        Task::Bench { arguments } if arguments.first().is_some_and(|name| name == "server") => {
            frameworks::bench_server(&shell, &arguments[1..])
        }
        Task::Bench { arguments } if arguments.first().is_some_and(|name| name == "search") => {
            search::bench(&shell, &arguments[1..])
        }
        Task::Bench { arguments } if arguments.first().is_some_and(|name| name == "volume") => {
            frameworks::bench_volume(&shell, &arguments[1..])
        }
        // Takes root and none of the other libraries.
        Task::Bench { arguments } if arguments == ["tls"] => {
            let example = ["--package", "sirtaki-comm", "--example", "tls_speed"];
            shell.run(cargo(["run", "--release", "--quiet"]).args(example))
        }
        // One program, in the only package that knows Burn.
        Task::Bench { arguments } if arguments.first().is_some_and(|name| name == "pipeline") => {
            let example = ["--package", "sirtaki", "--example", "pipeline_speed", "--"];
            shell.run(cargo(["run", "--release", "--quiet"]).args(example).args(&arguments[1..]))
        }
        Task::Bench { arguments } if arguments.first().is_some_and(|name| name == "elastic") => {
            frameworks::bench_elastic(&shell, &arguments[1..])
        }
        Task::Bench { arguments } => {
            let name = arguments.first().map_or("", String::as_str);
            // Whatever takes its commands from the wheel needs no other build of them: the benchmark itself only waits.
            let profile: &[&str] = if name == "jax" { &["--quiet"] } else { &["--quiet", "--release"] };
            if name != "jax" {
                // `cargo run` would build the benchmark alone, not what it starts.
                let both = ["--package", "sirtaki-cli", "--package", "sirtaki-bench"];
                shell.run(cargo(["build"]).args(profile.to_vec()).args(both))?;
            }
            let measures = (name == "torch" || name == "jax") && !asks_for_help(&arguments);
            let wheel = if measures { vec!["--wheel".into(), python::wheel(&shell)?] } else { Vec::new() };
            let run = cargo(["run"]).args(profile.to_vec()).args(["--package", "sirtaki-bench", "--"]);
            shell.run(run.args(&arguments).args(wheel))
        }
        Task::Wheel => python::wheel(&shell).map(drop),
        Task::Dist { twice } => dist::make(&shell, twice),
        Task::GpuBundle => gpu::bundle(&shell).map(drop),
        Task::Ptx => ptx::write(&shell),
        Task::Book => book::build(&shell),
        Task::Docs => {
            shell.run(book::reference())?;
            let tests = cargo(["test", "--package", "sirtaki-cli", "--lib", "--test", "golden", "--test", "docs"]);
            shell.run(tests.env("BLESS", "1"))
        }
    }
}
