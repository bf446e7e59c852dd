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
    plot, python, report,
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
}

fn ranks_of(setting: &Setting) -> usize {
    if let Setting::Shared(ranks) = setting { *ranks } else { 2 }
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

fn run(arguments: Arguments) -> Result<(), BenchError> {
    let Command::Comm { ranks, sizes, rounds, no_tcp, no_gloo, markdown, plot } = arguments.command;
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target");
    let python = if no_gloo { None } else { python::with_torch(&target, &say) };
    let plan = Plan { ranks, sizes, rounds: rounds.max(1), tcp: !no_tcp };
    let tables = comm::run(&plan, &mut Starter::new(python), &say, &show)?;
    close(&tables, markdown);
    if let Some(file) = plot {
        let action = format!("cannot write {}", file.display());
        std::fs::write(&file, plot::svg(&tables)).map_err(BenchError::io(action))?;
    }
    Ok(())
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
