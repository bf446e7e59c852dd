//! The programs that people copy: they run on several processes, learn, and leave what they say.

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
