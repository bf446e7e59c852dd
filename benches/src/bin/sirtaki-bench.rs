//! `cargo xtask bench comm`: sirtaki beside other libraries on this machine.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark talks to the person who started it")]

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use sirtaki_bench::{
    BenchError,
    comm::{self, Plan, Row, Table},
    goals::Setting,
    plot, python, report, resnet,
    start::Starter,
};

/// Compares sirtaki with other libraries, interleaved, on this machine.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// All-reduce beside Open MPI, PyTorch's Gloo and the machine's own limit
    ///
    /// Every library takes its turn in every round. Times are medians of the slowest rank; a ratio is the median over
    /// rounds of the other's time over ours, so above 1 sirtaki is faster. ✓ and ✗ say whether our goal is reached.
    Comm {
        /// Numbers of ranks on this host
        #[arg(long, value_delimiter = ',', default_value = "2,4")]
        ranks: Vec<usize>,
        /// Bytes to reduce
        #[arg(
            long,
            value_delimiter = ',',
            default_value = "4,64,1024,4096,16384,65536,262144,1048576,4194304,\
            16777216,67108864,268435456"
        )]
        sizes: Vec<usize>,
        /// Turns of every library at every size
        #[arg(long, default_value_t = 15)]
        rounds: usize,
        /// Leave out TCP, over loopback and between namespaces (needs root)
        #[arg(long)]
        no_tcp: bool,
        /// Leave out Gloo, which needs PyTorch
        #[arg(long)]
        no_gloo: bool,
        /// Print the tables as Markdown at the end
        #[arg(long)]
        markdown: bool,
        /// Draw the tables into this SVG file
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// The engine with the 161 tensors of ResNet-50, in an order that differs from rank to rank, and with one of 4 B
    ///
    /// Beside one plain all-reduce of the same bytes, and beside PyTorch's Gloo, tensor by tensor and in flat buckets.
    Engine {
        /// Numbers of ranks on this host
        #[arg(long, value_delimiter = ',', default_value = "2,4")]
        ranks: Vec<usize>,
        /// Turns of every library
        #[arg(long, default_value_t = 15)]
        rounds: usize,
        /// Leave out Gloo, which needs PyTorch
        #[arg(long)]
        no_gloo: bool,
        /// Print the tables as Markdown at the end
        #[arg(long)]
        markdown: bool,
    },
}

fn ranks_of(setting: &Setting) -> usize {
    match setting {
        Setting::Shared(ranks) | Setting::Engine(ranks) => *ranks,
        Setting::Loopback | Setting::Namespaces => 2,
    }
}

fn show(setting: &Setting, row: &Row) {
    println!("{:<36} {}", setting.to_string(), report::line(row, ranks_of(setting)));
    let _ = std::io::stdout().flush();
}

fn say(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("… {text}");
    }
}

fn close(tables: &[Table], markdown: bool) {
    if markdown {
        tables.iter().for_each(|table| println!("\n{}", report::markdown(table, ranks_of(&table.setting))));
    }
    let missed = report::missed(tables);
    println!("\n{} goals missed", missed.len());
    missed.iter().for_each(|text| println!("  {text}"));
}

fn starter(no_gloo: bool) -> Result<Starter, BenchError> {
    let mut programs = std::env::current_exe().map_err(BenchError::io("cannot find this program"))?;
    programs.pop();
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let python = if no_gloo { None } else { python::with_torch(&target, &say) };
    Ok(Starter::new(programs, python))
}

fn run(arguments: Arguments) -> Result<(), BenchError> {
    match arguments.command {
        Command::Comm { ranks, sizes, rounds, no_tcp, no_gloo, markdown, plot } => {
            let plan = Plan { ranks, sizes, rounds: rounds.max(1), tcp: !no_tcp };
            let tables = comm::run(&plan, &mut starter(no_gloo)?, &say, &show)?;
            close(&tables, markdown);
            let Some(file) = plot else { return Ok(()) };
            let action = format!("cannot write {}", file.display());
            std::fs::write(&file, plot::svg(&tables)).map_err(BenchError::io(action))
        }
        Command::Engine { ranks, rounds, no_gloo, markdown } => {
            let step = resnet::tensors().iter().sum::<usize>() * size_of::<f32>();
            let plan = Plan { ranks, sizes: vec![4, step], rounds: rounds.max(1), tcp: false };
            close(&comm::engine(&plan, &mut starter(no_gloo)?, &say, &show)?, markdown);
            Ok(())
        }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
