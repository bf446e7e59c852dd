//! Programs that find their place by themselves, under the real starters as far as they are here. Missing MPI launchers
//! are failures, not skips: `apt-get install openmpi-bin mpich` provides them.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use sirtaki_comm::{rendezvous::TcpStore, secure::Secret};
use sirtaki_engine::telemetry::recorder::{Recorder, Stage};
use sirtaki_tests::python::python_with;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_join-rank");

/// A command that sees nothing of whoever runs the tests, and ends.
fn command(cache: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "240"]).args(words).stdin(Stdio::null()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("XDG_CACHE_HOME", cache);
    command
}

fn cache() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// What a command printed, once it has succeeded.
fn output(mut command: Command) -> Vec<String> {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}{errors}", output.status);
    text.lines().map(String::from).collect()
}

/// What `size` ranks of this host say, in order.
fn expected(size: usize, back_end: &str) -> Vec<String> {
    let sum = (1..=size).sum::<usize>() as f32;
    let one = |rank| format!("rank {rank} of {size}, local {rank} of {size}, host 0 of 1, [{sum:?}] over {back_end}");
    (0..size).map(one).collect()
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// Whatever the ranks met in is gone.
fn nothing_left(cache: &Path) {
    let left: Vec<_> =
        walk(cache).into_iter().filter(|path| !path.ends_with("sirtaki") && !path.ends_with("jobs")).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], walk(&path)].concat() } else { vec![path] })
        .collect()
}

#[test]
fn a_process_that_nobody_started_is_a_world_of_one() {
    let cache = cache();
    assert_eq!(output(command(cache.path(), &[PROGRAM])), expected(1, "solo"));
    nothing_left(cache.path());
}

#[test]
fn ranks_find_each_other_under_open_mpi() {
    let cache = cache();
    for size in [1, 2, 3] {
        let words = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", &size.to_string(), PROGRAM];
        let lines = output(command(cache.path(), &words));
        assert_eq!(sorted(lines), expected(size, if size == 1 { "solo" } else { "arena" }));
    }
    nothing_left(cache.path());
}

#[test]
fn ranks_find_each_other_under_mpich() {
    let cache = cache();
    for size in [1, 2, 3] {
        let mut command = command(cache.path(), &["mpirun.mpich", "-n", &size.to_string(), PROGRAM]);
        // MPICH keeps the core while it waits unless told otherwise.
        command.env("MPIR_CVAR_POLLS_BEFORE_YIELD", "1");
        assert_eq!(sorted(output(command)), expected(size, if size == 1 { "solo" } else { "arena" }));
    }
    nothing_left(cache.path());
}

/// One rank without shared memory: MPI carries the data, and the engine's own links need a secret that all know.
#[test]
fn ranks_that_talk_through_mpi_have_an_engine() {
    let cache = cache();
    let words = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", PROGRAM];
    let mut command = command(cache.path(), &words);
    command.env("SIRTAKI_SHM", "0");
    assert_eq!(sorted(output(command)), expected(2, "mpi"));
}

/// A process that starts `size` ranks and waits for them as torchrun does on one host, with the variables it sets.
/// Everything that tells two such jobs apart is the process itself: names and port are torchrun's defaults.
fn like_torchrun(cache: &Path, size: usize) -> Command {
    let script = r#"for RANK in $(seq 0 $((WORLD_SIZE - 1))); do RANK=$RANK LOCAL_RANK=$RANK "$0" & done; wait"#;
    let mut command = command(cache, &["sh", "-c", script, PROGRAM]);
    let size = size.to_string();
    command.env("TORCHELASTIC_RUN_ID", "none").env("TORCHELASTIC_RESTART_COUNT", "0");
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "29500");
    command.env("WORLD_SIZE", &size).env("LOCAL_WORLD_SIZE", &size).env("GROUP_RANK", "0").env("GROUP_WORLD_SIZE", "1");
    command
}

/// The variables of `torchrun`, and `torchrun` itself. With a shell in between, the ranks' parents differ.
#[test]
fn ranks_find_each_other_under_torchrun() {
    let cache = cache();
    let python = python_with("torch");
    let run = [&python, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--no-python"];
    let wrapped = ["sh", "-c", "\"$0\" & wait", PROGRAM];
    let starters = [
        like_torchrun(cache.path(), 3),
        command(cache.path(), &[&run, &[PROGRAM][..]].concat()),
        command(cache.path(), &[&run, &wrapped[..]].concat()),
    ];
    for starter in starters {
        assert_eq!(sorted(output(starter)), expected(3, "arena"));
        nothing_left(cache.path());
    }
}

/// A process with the variables that `srun` sets for a task.
fn like_srun(cache: &Path, rank: usize, size: usize, step: &str) -> Command {
    let mut command = command(cache, &[PROGRAM]);
    let (rank, size) = (rank.to_string(), size.to_string());
    command.env("SLURM_JOB_ID", "4711").env("SLURM_STEP_ID", step).env("SLURM_NODEID", "0");
    command.env("SLURM_PROCID", &rank).env("SLURM_LOCALID", &rank);
    command.env("SLURM_NTASKS", &size).env("SLURM_STEP_NUM_TASKS", &size);
    command.env("SLURM_STEP_NUM_NODES", "1").env("SLURM_STEP_TASKS_PER_NODE", &size);
    command
}

#[test]
fn ranks_find_each_other_with_the_variables_of_srun() {
    let cache = cache();
    let ranks: Vec<_> = (0..3)
        .rev()
        .map(|rank| {
            let command = like_srun(cache.path(), rank, 3, "0");
            thread::spawn(move || output(command))
        })
        .collect();
    let lines = ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect();
    assert_eq!(sorted(lines), expected(3, "arena"));
    nothing_left(cache.path());
}

#[test]
fn two_jobs_at_once_never_clash() {
    let cache = cache();
    for round in 0..100 {
        // Different sizes, so that a rank in the wrong job shows.
        let jobs = [2, 3].map(|size| {
            let command = like_torchrun(cache.path(), size);
            (size, thread::spawn(move || output(command)))
        });
        for (size, job) in jobs {
            assert_eq!(sorted(job.join().unwrap()), expected(size, "arena"), "round {round}");
        }
    }
    nothing_left(cache.path());
}

#[test]
fn a_rank_that_does_not_come_is_named_and_nothing_is_left() {
    let cache = cache();
    for (rank, missing) in [(0, 1), (1, 0)] {
        let mut command = like_srun(cache.path(), rank, 2, "7");
        let output = command.env("SIRTAKI_START_TIMEOUT", "1").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        let expected =
            format!("rank {missing} of 2 did not come there within 1 s\nhint: all hosts have to see the same");
        assert!(text.starts_with("error: the ranks cannot meet in ") && text.contains(&expected), "{text}");
        nothing_left(cache.path());
    }
}

/// The ranks that a launcher with a store would start, with these variables on top; and the store.
fn with_store(
    cache: &Path,
    size: usize,
    more: &[(&str, &str)],
) -> (Vec<Command>, sirtaki_comm::rendezvous::TcpStoreServer) {
    let secret = Secret::random().unwrap();
    let server = TcpStore::serve(IpAddr::V4(Ipv4Addr::LOCALHOST), &secret, false).unwrap();
    let rank = |rank: usize| {
        let mut command = command(cache, &[PROGRAM]);
        command.env("SIRTAKI_RANK", rank.to_string()).env("SIRTAKI_SIZE", size.to_string());
        command.env("SIRTAKI_STORE", format!("tcp://{}", server.address())).env("SIRTAKI_SECRET", secret.to_hex());
        command.envs(more.iter().copied());
        command
    };
    ((0..size).map(rank).collect(), server)
}

#[test]
fn ranks_find_each_other_in_a_launcher_s_store() {
    let cache = cache();
    // Memory that cannot be opened is no reason to fail.
    let (ranks, _server) = with_store(cache.path(), 3, &[("SIRTAKI_RECORD", "1:999"), ("SIRTAKI_SHM", "0")]);
    let ranks: Vec<_> = ranks.into_iter().map(|rank| thread::spawn(move || output(rank))).collect();
    let lines = ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect();
    assert_eq!(sorted(lines), expected(3, "mesh"));
}

#[test]
fn a_launcher_s_word_on_hosts_counts() {
    let cache = cache();
    let place = [
        ("SIRTAKI_LOCAL_RANK", "0"),
        ("SIRTAKI_LOCAL_SIZE", "1"),
        ("SIRTAKI_CROSS_RANK", "0"),
        ("SIRTAKI_CROSS_SIZE", "1"),
    ];
    let (mut ranks, _server) = with_store(cache.path(), 1, &place);
    assert_eq!(output(ranks.remove(0)), expected(1, "solo"));
    let (mut ranks, _server) = with_store(cache.path(), 1, &[("SIRTAKI_LOCAL_RANK", "1"), ("SIRTAKI_LOCAL_SIZE", "2")]);
    let text = String::from_utf8(ranks[0].output().unwrap().stdout).unwrap();
    assert!(
        text.starts_with("error: SIRTAKI_LOCAL_SIZE is `2`, but must be at most 1, which is SIRTAKI_SIZE\nhint: "),
        "{text}"
    );
}

/// A child that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_record_is_written_where_the_launcher_reads_it_after_a_kill() {
    let cache = cache();
    let record = Recorder::create().unwrap();
    let (process, descriptor) = record.address();
    let address = format!("{process}:{descriptor}");
    let (mut ranks, _server) = with_store(cache.path(), 1, &[("SIRTAKI_RECORD", &address)]);
    // Not under `timeout`, which would be the one that is killed.
    let mut command = Command::new(PROGRAM);
    command.arg("stay").env_clear().stdout(Stdio::piped());
    for (name, value) in ranks.remove(0).get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let mut child = Killed(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("rank 0 of 1"), "{line}");
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let records = record.read();
    assert!(records.iter().any(|record| record.stage == Stage::Done && record.name == "ranks"), "{records:?}");
}
