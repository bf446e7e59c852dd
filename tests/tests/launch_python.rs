//! Python and the launcher: programs that know nothing of it run under it unchanged, and `sirtaki.run` starts jobs
//! from Python. Its own tests are in `python/tests`; here they get a launcher, and a look at what they leave behind.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use sirtaki_tests::{
    launch::{Finished, Launch},
    python::python_with,
};

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../python").canonicalize().unwrap()
}

fn program(name: &str) -> String {
    folder().join("tests/programs").join(name).display().to_string()
}

/// A command that finds our package and our launcher, and is free of what the tests themselves run under.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SIRTAKI_RUN_")) {
        command.env_remove(name);
    }
    for name in ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.env("SIRTAKI_COMMAND", SIRTAKI).env("PYTHONPATH", folder()).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs a program of ours on two ranks.
fn run(python: &str, name: &str) -> Finished {
    let mut command = command(SIRTAKI);
    command.args(["run", "-n", "2", "--", python, &program(name)]);
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    done
}

/// Runs a class of `test_run.py`; afterwards there must be no process and no file of it.
fn passes(class: &str) {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = command(&python_with("cloudpickle"));
    command.args(["-m", "unittest", "--verbose", &format!("test_run.{class}")]);
    command.current_dir(folder().join("tests")).env("TMPDIR", temporary.path());
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 0, "{}\n{}", done.out.join("\n"), done.message());
    let left: Vec<_> = fs::read_dir(temporary.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

macro_rules! classes {
    ($($test:ident $class:literal)*) => {
        $(#[test] fn $test() { passes($class) })*
        const CLASSES: &[&str] = &[$($class),*];
    };
}

classes! {
    results_come_back "Results"
    failures_come_back "Failures"
    mistakes_are_told "Mistakes"
    functions_travel "Pickling"
    output_is_shown_or_hidden "Output"
    jobs_end_early_and_completely "Ends"
    examples_are_right "Documentation"
}

#[test]
fn every_class_of_failure_is_covered() {
    let text = fs::read_to_string(folder().join("tests/test_run.py")).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("class ")?.strip_suffix("(unittest.TestCase):"));
    assert_eq!(names.collect::<Vec<_>>(), CLASSES);
}

#[test]
fn the_master_port_is_free_and_can_be_reached() {
    let mut done = run("python3", "meet.py");
    done.out.sort();
    assert_eq!(done.out, ["[0] met 1", "[1] said 1"]);
}

/// The end of what a bar of this rank shows.
fn full_bar(rank: usize, place: &str) -> String {
    format!("[{rank}] rank {rank} on a {place}: 20/20 |{}|", "#".repeat(20))
}

/// Whether the cursor goes up anywhere in this text.
fn moves_up(text: &str) -> bool {
    let commands = text.split("\u{1b}[").skip(1);
    commands.map(|command| command.trim_start_matches(|c: char| c.is_ascii_digit())).any(|kind| kind.starts_with('A'))
}

#[test]
fn progress_bars_survive_on_a_terminal() {
    let line = format!("{SIRTAKI} run -n 2 -- python3 {}", program("progress.py"));
    let mut command = command("script");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("NO_COLOR", "1").env("TERM", "xterm");
    let done = Launch::start(command).ends();
    let screen = done.out.join("\n");
    assert_eq!(done.code, 0, "{screen}");
    for rank in 0..2 {
        let bar = full_bar(rank, "terminal");
        let last = screen.rfind(&format!("[{rank}] rank {rank} ")).unwrap_or_else(|| panic!("no bar in {screen:?}"));
        let rest = &screen[last..];
        assert!(rest.starts_with(&bar), "the last state is another one: {rest:?}");
        assert!(!moves_up(rest), "it is drawn over: {rest:?}");
    }
}

#[test]
fn progress_bars_become_lines_without_a_terminal() {
    let mut done = run("python3", "progress.py");
    done.err.sort();
    assert_eq!(done.err, [full_bar(0, "pipe"), full_bar(1, "pipe")]);
}

#[test]
fn pytorch_ddp_runs_unchanged() {
    let done = run(&python_with("torch"), "ddp.py");
    let said = |rank: usize, what: &str| {
        let start = format!("[{rank}] {what} ");
        let line = done.out.iter().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("rank {rank} did not say `{what}`: {done:?}")).to_owned()
    };
    // Different data, so different losses; averaged gradients, so the same weights.
    assert!(said(0, "size").starts_with("2 loss ") && said(0, "size") != said(1, "size"), "{done:?}");
    assert_eq!(said(0, "gradient"), said(1, "gradient"));
}
