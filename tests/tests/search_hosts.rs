//! `sirtaki search` on other hosts, over a real ssh and in an allocation of a real Slurm.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{collections::BTreeSet, fs, path::Path};

use sirtaki_tests::{hosts::Hosts, launch::Launch, slurm::Slurm, sshd::Sshd};
use tempfile::TempDir;

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");

/// Trials that end when one runs in each of the slots, so that all of them are used.
fn study(slots: usize) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let script = format!(
        "hostname; touch $SIRTAKI_TRIAL_FOLDER/up
until [ $(ls runs/study/*/up | wc -l) -ge {slots} ]; do sleep 0.02; done; echo '{{\"loss\": 1}}'"
    );
    fs::write(place.path().join("trial.sh"), script).unwrap();
    let text = "command = [\"sh\", \"trial.sh\", \"{x}\"]\nobjective = \"minimize loss\"\n[space]\nx = \"0..1.5\"\n";
    fs::write(place.path().join("study.toml"), text).unwrap();
    place
}

/// Where the trials ran.
fn hosts(place: &Path) -> Vec<String> {
    let mut hosts = Vec::new();
    for number in 0.. {
        let Ok(log) = fs::read_to_string(place.join(format!("runs/study/{number:04}/rank-0.log"))) else { break };
        hosts.push(log.lines().next().unwrap().to_owned());
    }
    hosts
}

#[test]
fn trials_run_on_all_hosts_over_ssh() {
    let network = Hosts::new("se", 2);
    let servers = Sshd::on(&network);
    let place = study(4);
    let mut command = network.command(0, SIRTAKI);
    command.current_dir(place.path()).args(["search", "study.toml", "--trials", "6", "-H", "h0:2,h1:2"]);
    let done = Launch::start({
        command.args(["--ssh-config", &servers.options()[1]]);
        command
    })
    .ends();
    assert_eq!((done.code, done.out[0].as_str()), (0, "study study: 6 finished"), "{}", done.message());
    let used: BTreeSet<String> = hosts(place.path()).into_iter().collect();
    assert_eq!(used.len(), 2, "{used:?}");
    for host in 0..2 {
        servers.host(host).wait_for(SIRTAKI, false);
    }
}

#[test]
fn the_slots_of_an_allocation_become_trials() {
    let slurm = Slurm::start("sf", 2);
    let place = study(4);
    let mut command = slurm.command("salloc");
    command.current_dir(place.path()).args(["--quiet", "-N2", "--ntasks-per-node=2", SIRTAKI]);
    command.args(["search", "study.toml", "--trials", "6"]);
    let done = Launch::start(command).ends();
    assert_eq!((done.code, done.out[0].as_str()), (0, "study study: 6 finished"), "{}", done.message());
    let used: BTreeSet<String> = hosts(place.path()).into_iter().collect();
    assert_eq!(used.into_iter().collect::<Vec<_>>(), ["n0", "n1"]);
    assert!(done.message().contains("4 at a time"), "{}", done.message());
    for node in 0..2 {
        slurm.node(node).wait_for(SIRTAKI, false);
    }
}
