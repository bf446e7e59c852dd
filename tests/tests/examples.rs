//! The programs that people copy: they run on several processes, learn, and leave what they say.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{path::Path, process::Command};

use sirtaki_tests::launch::Launch;

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");

#[test]
fn mnist_is_learned_by_two_processes_in_one_epoch() {
    // Cargo puts examples beside programs, and builds them with the workspace's tests.
    let program = Path::new(SIRTAKI).with_file_name("examples").join("mnist");
    assert!(program.exists(), "build it with `cargo build -p sirtaki --example mnist`");
    let (folder, data) = (tempfile::tempdir().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/mnist"));
    let mut command = Command::new(SIRTAKI);
    command.args(["run", "-n", "2", "--"]).arg(program).arg(data.canonicalize().unwrap()).current_dir(folder.path());
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    let said = done.out.first().and_then(|line| line.strip_prefix("[0] ")?.split_once(" %"));
    let accuracy: f64 = said.unwrap().0.parse().unwrap();
    assert!(accuracy >= 98.0, "{:?}", done.out);
    assert!(folder.path().join("lenet.bpk").exists());
}

/// What the transformer says on so many processes.
fn transformer(processes: &str, mesh: &str) -> Vec<String> {
    let program = Path::new(SIRTAKI).with_file_name("examples").join("transformer");
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    let line = |number: usize| format!("{number} times {number} is {}.\n", number * number);
    std::fs::write(&text, (0..700).map(line).collect::<String>()).unwrap();
    let mut command = Command::new(SIRTAKI);
    command.args(["run", "-n", processes, "--oversubscribe", "--"]).arg(program).arg(&text).arg(mesh);
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    done.out
}

#[test]
fn a_transformer_in_stages_learns_what_one_process_learns() {
    let one = transformer("1", "data=1,pipe=1,tensor=1");
    let loss = |line: &String| line.rsplit(' ').next().and_then(|loss| loss.parse::<f64>().ok());
    let [first, last] = [one.first(), one.last()].map(|line| line.and_then(loss).unwrap());
    assert!(last < 0.7 * first, "{one:?}");
    assert_eq!(transformer("4", "data=2,pipe=2,tensor=1"), one);
    let parts = transformer("4", "data=1,pipe=2,tensor=2");
    assert_eq!(parts.len(), one.len());
    for (parts, one) in parts.iter().zip(&one) {
        let [parts, one] = [parts, one].map(|line| loss(line).unwrap());
        assert!((parts - one).abs() < 0.02 * one, "{parts} and {one}");
    }
}
