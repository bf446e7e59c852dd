//! `sirtaki run` inside allocations of a real Slurm, and its signals.

use sirtaki_tests::{launch::Launch, slurm::Slurm};

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// The launcher in an allocation of its own.
fn start(slurm: &Slurm, allocation: &[&str], arguments: &[&str]) -> Launch {
    let mut command = slurm.command("salloc");
    command.arg("--quiet").args(allocation).args([SIRTAKI, "run"]).args(arguments);
    Launch::start(command)
}

#[test]
fn an_allocation_gives_hosts_and_slots() {
    let slurm = Slurm::start("sa", 2);
    let script = "echo $RANK of $WORLD_SIZE on $(hostname)";
    let done = start(&slurm, &["-N2", "--ntasks-per-node=2"], &["--", "sh", "-c", script]).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    let expected: Vec<String> = (0..4).map(|rank| format!("[{rank}] {rank} of 4 on n{}", rank / 2)).collect();
    assert_eq!(sorted(done.out.clone()), expected);
    assert!(done.message().contains("network: "), "{}", done.message());
    let done = start(&slurm, &["-N2", "-n2"], &["-n", "3", "--", "true"]).ends();
    assert!(done.code != 0 && done.message().contains("hint:"), "{}", done.message());
    let failing =
        start(&slurm, &["-N2", "-n2"], &["--grace", "2", "--", "sh", "-c", "test $RANK = 1 && exit 5; sleep 1000"]);
    let done = failing.ends();
    assert_eq!(done.code, 5, "{}", done.message());
    for node in 0..2 {
        slurm.node(node).wait_for(SIRTAKI, false);
    }
}

#[test]
fn programs_started_by_srun_itself_find_each_other() {
    let slurm = Slurm::start("sc", 2);
    let cache = tempfile::tempdir().unwrap();
    let mut command = slurm.command("srun");
    command.args(["--quiet", "-N2", "--ntasks-per-node=2", env!("CARGO_BIN_EXE_join-rank")]);
    command.env("XDG_CACHE_HOME", cache.path());
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 0, "{} {:?}", done.message(), done.out);
    let said = |rank: usize| {
        let (local, host) = (rank % 2, rank / 2);
        format!("rank {rank} of 4, local {local} of 2, host {host} of 2, [10.0] over layered")
    };
    assert_eq!(sorted(done.out), (0..4).map(said).collect::<Vec<_>>());
}

#[test]
fn the_schedulers_warning_and_its_end_reach_every_rank() {
    let slurm = Slurm::start("sb", 2);
    let script = "trap 'echo warned; exit 0' USR1; echo ready; while true; do sleep 0.1; done";
    let launch = start(&slurm, &["-N2", "-n2"], &["--", "sh", "-c", script]);
    launch.prints("ready", 2);
    let job = slurm.says("squeue", &["-h", "-o", "%A"]).trim().to_owned();
    slurm.says("scancel", &["--signal=USR1", &job]);
    let done = launch.ends();
    // A rank may be warned twice: Slurm signals the processes of its steps itself, the launcher passes on its own.
    for warned in ["[0] warned", "[1] warned"] {
        assert!(done.out.iter().any(|line| line == warned), "{done:?}");
    }
    let launch = start(&slurm, &["-N2", "-n2"], &["--grace", "2", "--", "sh", "-c", "echo ready; sleep 1000"]);
    launch.prints("ready", 2);
    let job = slurm.says("squeue", &["-h", "-o", "%A"]).trim().to_owned();
    slurm.says("scancel", &[&job]);
    launch.vanishes();
    for node in 0..2 {
        slurm.node(node).wait_for(SIRTAKI, false);
    }
}

#[test]
fn training_uses_all_of_an_allocation() {
    let slurm = Slurm::start("st", 2);
    let folder = tempfile::tempdir().unwrap();
    let mut command = slurm.command("salloc");
    command.args(["--quiet", "-N2", "--ntasks-per-node=1", SIRTAKI, "train", "--max-steps", "20"]);
    command.args(["--batch-size", "16", "--data", concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist")]);
    command.current_dir(folder.path());
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    assert!(done.message().contains("2 workers with 16 images"), "{}", done.message());
}
