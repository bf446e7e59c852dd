//! `-h`: the options that most people need, on one screen. `--help` has all of them.
//!
//! It is the same command with everything else hidden, so what it parses does not change.

use clap::{Command, CommandFactory, builder::Resettable};

use super::Arguments;

/// The options of a command that `-h` shows, with fewer words, and what stands below them.
struct Brief {
    command: &'static str,
    options: &'static [(&'static str, &'static str)],
    below: &'static str,
}

const RUN: Brief = Brief {
    command: "run",
    options: &[
        ("ranks", "Number of processes"),
        ("hosts", "Hosts and processes on each, such as a:4,b:4"),
        ("hostfile", "The same from a file"),
        ("env", "Set a variable, or pass it on to other hosts"),
        ("horovod", "Run a script written for Horovod"),
        ("mpi", "Start through Open MPI's mpirun"),
        ("timeline", "Record a timeline for ui.perfetto.dev"),
        ("profile", "Print where the time went"),
        ("record", "Record the run for `sirtaki report`"),
        ("dashboard", "Show progress on a web page"),
        ("verbose", "Say more"),
        ("dry_run", "Show what would be started"),
        ("help", "Print this summary (-h) or all options (--help)"),
    ],
    below: "\
Examples:
  sirtaki run -n 4 -- python train.py              on this machine
  sirtaki run -H a:4,b:4 -- python train.py        on two hosts, over ssh",
};

const TRAIN: Brief = Brief {
    command: "train",
    options: &[
        ("ranks", "Number of workers [default: one per core]"),
        ("hosts", "Hosts and workers on each, such as a:4,b:4"),
        ("model", "lenet, cnn, mlp, resnet18, resnet50, transformer, msd"),
        ("data", "Images, IDX, CIFAR, npz, CSV, a text or volumes"),
        ("epochs", "Passes over the training samples"),
        ("batch_size", "Images, rows or sequences per worker and step"),
        ("lr", "Learning rate of one worker"),
        ("optimizer", "Optimizer: sgd, adam, adamw or lars"),
        ("precision", "Precision: f32, bf16 or f16"),
        ("resume", "Continue from the newest checkpoint"),
        ("dashboard", "Show progress on a web page"),
        ("help", "Print this summary (-h) or all options (--help)"),
    ],
    below: "\
Example:
  sirtaki train -n 2 --model cnn --epochs 6",
};

const BENCH_TRAIN: Brief = Brief {
    command: "bench train",
    options: &[
        ("ranks", "Number of workers [default: one per core]"),
        ("hosts", "Hosts and workers on each, such as a:4,b:4"),
        ("model", "Network, such as resnet50 or cnn"),
        ("synthetic", "Made-up images instead of a data set"),
        ("data", "Data set"),
        ("image_size", "Height and width of images"),
        ("batch_size", "Images per worker and step"),
        ("num_warmup_batches", "Steps before the first round"),
        ("num_batches_per_iter", "Steps of a round"),
        ("num_iters", "Rounds"),
        ("json", "Write the result to a file"),
        ("help", "This summary (-h), or all options (--help)"),
    ],
    below: "\
Example:
  sirtaki bench train --model resnet50 --synthetic",
};

const SEARCH: Brief = Brief {
    command: "search",
    options: &[
        ("file", "The file that describes the study"),
        ("train", "Search settings of `sirtaki train` instead"),
        ("slots", "Trials at a time"),
        ("hosts", "Hosts and ranks on each, such as a:4,b:4"),
        ("resume", "Continue the study where it ended"),
        ("help", "Print this summary (-h) or all options (--help)"),
    ],
    below: "\
Example:
  sirtaki search study.toml -n 4",
};

const INFER: Brief = Brief {
    command: "infer",
    options: &[
        ("model", "Network in an ONNX file"),
        ("input", "Volume to read: zarr, HDF5, npy, TIFF, NIfTI, MRC or raw"),
        ("output", "Volume to write"),
        ("ranks", "Number of workers [default: one per core]"),
        ("hosts", "Hosts and workers on each, such as a:4,b:4"),
        ("content", "What to write: values, argmax or probabilities"),
        ("mask", "Volume that is zero where nothing is wanted"),
        ("roi", "Region of the output, such as 0:64,:,:"),
        ("tolerance", "Smaller halos with at most this error"),
        ("join", "Work with others on the same output"),
        ("dry_run", "Show tiles, memory and time"),
        ("help", "Print this summary (-h) or all options (--help)"),
    ],
    below: "\
Example:
  sirtaki infer net.onnx in.zarr out.zarr -n 4 --output argmax",
};

const MAIN: &str = "\
Examples:
  sirtaki train                              handwritten digits, on all cores
  sirtaki run -n 4 -- python train.py        a job of 4 processes";

/// The command whose help fits on one screen.
pub(super) fn command() -> Command {
    let mut whole = Arguments::command().after_help(MAIN);
    whole.build();
    [RUN, TRAIN, BENCH_TRAIN, SEARCH, INFER].iter().fold(whole, |whole, brief| {
        let path: Vec<&'static str> = brief.command.split(' ').collect();
        below(whole, &path, brief)
    })
}

/// Shortens the command at this path, if there is one.
fn below(command: Command, path: &[&'static str], brief: &Brief) -> Command {
    match path {
        [] => shorten(command, brief),
        [first, rest @ ..] => match command.find_subcommand(first) {
            Some(_) => command.mut_subcommand(first, |command| below(command, rest, brief)),
            None => command,
        },
    }
}

fn shorten(command: Command, brief: &Brief) -> Command {
    let shown = |id: &str| brief.options.iter().find(|(name, _)| *name == id).map(|(_, help)| *help);
    let command = command.mut_args(|option| match shown(option.get_id().as_str()) {
        Some(help) => {
            let option = option.help(help).help_heading(Resettable::Reset);
            if option.get_possible_values().is_empty() { option } else { option.value_name("NAME") }
        }
        None => option.hide(true),
    });
    let order = |command: Command, (place, (name, _)): (usize, &(&'static str, &str))| {
        command.mut_arg(name, |option| option.display_order(place))
    };
    brief.options.iter().enumerate().fold(command, order).after_help(brief.below)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_summary_is_one_screen_and_parses_alike() {
        super::command().debug_assert();
        for path in [
            vec!["sirtaki", "-h"],
            vec!["sirtaki", "run", "-h"],
            vec!["sirtaki", "train", "-h"],
            vec!["sirtaki", "bench", "train", "-h"],
            vec!["sirtaki", "search", "-h"],
            vec!["sirtaki", "infer", "-h"],
        ] {
            let text = super::command().try_get_matches_from(&path).unwrap_err().to_string();
            assert!(text.lines().count() <= 24, "{path:?} has {} lines:\n{text}", text.lines().count());
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{path:?}:\n{text}");
        }
    }
}
