//! Jobs whose workers come and go on several hosts: in network namespaces over ssh, and in allocations of a real Slurm.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use sirtaki_tests::{
    hosts::Hosts,
    launch::{Finished, Launch, is_agent},
    slurm::Slurm,
    sshd::Sshd,
    wait::until,
};
use tempfile::TempDir;

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");
const WORKER: &str = env!("CARGO_BIN_EXE_elastic-rank");
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist");

/// Two hosts with two workers each, and the file that ends them.
struct TwoHosts {
    hosts: Hosts,
    servers: Sshd,
    folder: TempDir,
}

impl TwoHosts {
    fn new(prefix: &str) -> Self {
        let hosts = Hosts::new(prefix, 2);
        let servers = Sshd::on(&hosts);
        Self { hosts, servers, folder: tempfile::tempdir().unwrap() }
    }

    fn start(&self, options: &[&str]) -> Launch {
        let mut command = self.hosts.command(0, SIRTAKI);
        command.args(["run", "--via", "ssh", "--ssh-config", &self.servers.options()[1], "-H", "h0:2,h1:2"]);
        command.args(["--env", "TEST_RUN", "--min-ranks", "1", "--cooldown", "0.1,0.1"]).args(options);
        command.arg("--").arg(WORKER).arg(self.folder.path().join("stop"));
        let launch = Launch::start(command);
        launch.prints("round 1 rank", 4);
        launch
    }

    fn stop(&self, launch: Launch) -> Finished {
        stop(self.folder.path(), launch)
    }
}

fn stop(folder: &Path, launch: Launch) -> Finished {
    fs::write(folder.join("stop"), "").unwrap();
    let done = launch.ends_eventually();
    assert_eq!(done.code, 0, "{}", done.message());
    done
}

fn done(finished: &Finished) -> usize {
    finished.out.iter().filter(|line| line.contains("done after")).count()
}

#[test]
fn workers_of_another_host_are_replaced_there() {
    let two = TwoHosts::new("ea");
    let launch = two.start(&[]);
    let workers = two.servers.host(1).find(WORKER);
    assert_eq!(workers.len(), 2);
    kill_process(workers[0], Signal::KILL).unwrap();
    launch.says("on h1 lost (was killed by SIGKILL)");
    launch.says("on h1 has come");
    launch.says("4 workers go on");
    assert_eq!(done(&two.stop(launch)), 4);
}

#[test]
fn the_workers_of_a_host_that_is_lost_are_missed_and_the_others_go_on() {
    let two = TwoHosts::new("eb");
    let launch = two.start(&[]);
    let agents = two.servers.host(1).find(SIRTAKI);
    kill_process(*agents.iter().find(|pid| is_agent(**pid)).unwrap(), Signal::KILL).unwrap();
    launch.says("2 workers go on");
    assert_eq!(done(&two.stop(launch)), 2);
    two.servers.host(1).wait_for(WORKER, false);
}

#[test]
fn a_host_behind_a_cut_cable_is_given_up() {
    let two = TwoHosts::new("ec");
    let launch = two.start(&["--timeout", "8", "--grace", "1"]);
    two.hosts.cut(1);
    launch.says("2 workers go on");
    assert_eq!(done(&two.stop(launch)), 2);
    until("an empty host behind the cut", || two.servers.host(1).find(WORKER).is_empty());
}

#[test]
fn an_allocation_may_shrink() {
    let slurm = Slurm::start("ed", 2);
    let folder = tempfile::tempdir().unwrap();
    let mut command = slurm.command("salloc");
    command.args(["--quiet", "--no-kill", "-N2", "--ntasks-per-node=2", SIRTAKI, "run", "--min-ranks", "1"]);
    command.arg("--").arg(WORKER).arg(folder.path().join("stop"));
    let launch = Launch::start(command);
    launch.prints("round 1 rank", 4);
    slurm.says("scontrol", &["update", "NodeName=n1", "State=DOWN", "Reason=broken"]);
    launch.says("2 workers go on");
    assert_eq!(done(&stop(folder.path(), launch)), 2);
}

/// Options of a training that takes a while, and whose result does not depend on who is there.
fn exact(command: &mut Command, json: &str) {
    command.args(["--reproducible", "--shards", "4", "--global-batch", "8", "--max-steps", "400", "--json", json]);
    command.args(["--data", DATA]);
}

/// A report; nothing while there is none.
fn report(folder: &Path, json: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.join(json)).unwrap_or_default()).unwrap_or_default()
}

#[test]
#[ignore = "Slurm lets a requeued job wait for minutes; `cargo xtask test elastic-changes` runs it"]
fn a_notice_to_all_saves_the_training_and_a_requeued_job_goes_on() {
    let slurm = Slurm::start("ee", 2);
    let folder = tempfile::tempdir().unwrap();
    let mut script = Command::new(SIRTAKI);
    script.args(["train", "--elastic", "--checkpoint-dir", "mine", "--resume"]);
    exact(&mut script, "job.json");
    let words: Vec<String> = script.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let text = format!("#!/bin/sh\n{SIRTAKI} {}\n", words.join(" "));
    fs::write(folder.path().join("job.sh"), text).unwrap();
    let log = folder.path().join("log");
    let submitted = slurm
        .command("sbatch")
        .current_dir(folder.path())
        .args(["--parsable", "--requeue", "--open-mode=append", "-N2", "--ntasks-per-node=1", "-o", "log", "job.sh"])
        .output()
        .unwrap();
    let job = String::from_utf8_lossy(&submitted.stdout).trim().to_owned();
    let read = || fs::read_to_string(&log).unwrap_or_default();
    until("training", || read().contains("training lenet"));
    // What `--signal=USR1@60` sends before the end of the time.
    slurm.says("scancel", &["--signal=USR1", &job]);
    until("the end of the interrupted training", || read().contains("to continue: "));
    slurm.says("scontrol", &["requeue", &job]);
    let mut hurried = Instant::now();
    until("the requeued job", || {
        // Slurm lets it wait for two minutes; whoever asks for more haste all the time keeps it from starting.
        if hurried.elapsed() > Duration::from_secs(5) {
            slurm.says("scontrol", &["update", &format!("JobId={job}"), "StartTime=now"]);
            hurried = Instant::now();
        }
        read().contains("continuing after step")
    });
    until("the end of the training", || report(folder.path(), "job.json")["interrupted"] == false);
    let mut alone = Command::new(SIRTAKI);
    alone.current_dir(folder.path()).args(["train", "-n", "1"]);
    exact(&mut alone, "alone.json");
    let finished = Launch::start(alone).ends();
    assert_eq!(finished.code, 0, "{}", finished.message());
    let [one, other] = ["job.json", "alone.json"].map(|json| report(folder.path(), json)["weights"].clone());
    assert!(one.is_string() && one == other, "{one} {other}");
}
