//! `sirtaki run` on other hosts, over a real ssh: hosts in network namespaces, and servers on loopback.

use std::{path::Path, process::Command, time::Instant};

use rustix::process::{Signal, kill_process};
use sirtaki_tests::{
    hosts::Hosts,
    launch::{Finished, Launch, is_agent},
    sshd::Sshd,
    wait::until,
};

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");

/// Two hosts with a server each; the launcher runs on the first.
struct Cluster {
    hosts: Hosts,
    servers: Sshd,
}

impl Cluster {
    fn new(prefix: &str) -> Cluster {
        let hosts = Hosts::new(prefix, 2);
        hosts.throttle("slow", 200);
        let servers = Sshd::on(&hosts);
        Cluster { hosts, servers }
    }

    fn start(&self, arguments: &[&str], program: &[&str]) -> Launch {
        let mut command = self.hosts.command(0, SIRTAKI);
        command.args(["run", "--via", "ssh", "--ssh-config", &self.servers.options()[1], "-H", "h0:2,h1:2"]);
        command.args(["--env", "TEST_RUN"]).args(arguments).arg("--").args(program);
        Launch::start(command)
    }

    fn run(&self, arguments: &[&str], script: &str) -> Finished {
        self.start(arguments, &["sh", "-c", script]).ends()
    }

    /// Waits until no agent is left on any host.
    fn is_quiet(&self) {
        for host in 0..2 {
            self.servers.host(host).wait_for(SIRTAKI, false);
        }
    }
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn ranks_run_on_both_hosts_and_the_network_is_told() {
    let cluster = Cluster::new("la");
    let script = "echo $RANK $LOCAL_RANK $SIRTAKI_CROSS_RANK $MASTER_ADDR $GLOO_SOCKET_IFNAME $(hostname)";
    let done = cluster.run(&[], script);
    assert_eq!(done.code, 0, "{}", done.message());
    let address = cluster.hosts.address(0);
    let expected: Vec<String> =
        (0..4).map(|rank| format!("[{rank}] {rank} {} {} {address} fast h{}", rank % 2, rank / 2, rank / 2)).collect();
    assert_eq!(sorted(done.out.clone()), expected);
    let text = done.message();
    assert!(text.contains("h0: network: fast") && text.contains("Gbit/s"), "{text}");
    cluster.is_quiet();
}

#[test]
fn engines_of_both_hosts_work_together() {
    let cluster = Cluster::new("lf");
    let done = cluster.start(&[], &[env!("CARGO_BIN_EXE_join-rank")]).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    let said = |rank: usize| {
        let (local, host) = (rank % 2, rank / 2);
        format!("[{rank}] rank {rank} of 4, local {local} of 2, host {host} of 2, [10.0] over layered")
    };
    assert_eq!(sorted(done.out), (0..4).map(said).collect::<Vec<_>>());
}

#[test]
fn a_failure_on_one_host_ends_the_other() {
    let cluster = Cluster::new("lb");
    let done = cluster.run(&["--grace", "2"], "test $RANK = 3 && exit 9; sleep 1000");
    assert_eq!(done.code, 9, "{}", done.message());
    assert!(done.message().contains("rank 3") && done.message().contains("h1"), "{}", done.message());
    cluster.is_quiet();
}

#[test]
fn nothing_stays_on_any_host_when_the_launcher_is_killed() {
    let cluster = Cluster::new("lc");
    let launch = cluster.start(&["--grace", "1"], &["sh", "-c", "(setsid sleep 1000 &); echo ready; sleep 1000"]);
    launch.prints("ready", 4);
    launch.signal(Signal::KILL);
    launch.vanishes();
    cluster.is_quiet();
}

#[test]
fn nothing_stays_on_another_host_when_its_agent_is_killed() {
    let cluster = Cluster::new("lg");
    let script =
        "(setsid sleep 1000 &); (setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' &); echo ready; sleep 1000";
    let launch = cluster.start(&["--grace", "1"], &["sh", "-c", script]);
    launch.prints("ready", 4);
    let agents = cluster.servers.host(1).find(SIRTAKI);
    kill_process(*agents.iter().find(|pid| is_agent(**pid)).expect("there is an agent"), Signal::KILL).unwrap();
    let done = launch.ends_eventually();
    assert!(done.message().contains("host h1") && done.message().contains("agent"), "{}", done.message());
    cluster.is_quiet();
    cluster.servers.host(1).wait_for("sleep 1000", false);
}

#[test]
fn a_broken_connection_names_the_host_and_leaves_nothing() {
    let cluster = Cluster::new("ld");
    let launch = cluster.start(&["--grace", "1"], &["sh", "-c", "echo ready; sleep 1000"]);
    launch.prints("ready", 4);
    cluster.servers.break_connections(1);
    let done = launch.ends_eventually();
    assert_ne!(done.code, 0);
    assert!(done.message().contains("host h1"), "{}", done.message());
    cluster.is_quiet();
}

#[test]
fn a_cut_cable_is_noticed_on_both_sides() {
    let cluster = Cluster::new("le");
    let launch = cluster.start(&["--grace", "1"], &["sh", "-c", "echo ready; sleep 1000"]);
    launch.prints("ready", 4);
    let cut = Instant::now();
    cluster.hosts.cut(1);
    let done = launch.ends_eventually();
    assert!(done.message().contains("host h1"), "{}", done.message());
    until("an empty host behind the cut", || cluster.servers.host(1).find(SIRTAKI).is_empty());
    assert!(cut.elapsed().as_secs() >= 1);
}

#[test]
fn mistakes_with_hosts_are_told_before_anything_starts() {
    let servers = Sshd::loopback(1);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(SIRTAKI);
        command.args(["run", "--via", "ssh", "--ssh-config", &servers.options()[1]]).args(arguments);
        Launch::start(command).ends()
    };
    let cases: [(&[&str], &str, &str); 4] = [
        (&["-H", "h0,nowhere.invalid", "true"], "host nowhere.invalid", "ssh nowhere.invalid true"),
        (&["-H", "h0", "--remote-sirtaki", "/no/sirtaki", "true"], "/no/sirtaki", "--remote-sirtaki"),
        (&["-H", "h0", "no-such-program"], "no-such-program", "spelling"),
        (
            &[
                "-H",
                "h0",
                "--ssh-identity",
                "/dev/null",
                "--ssh-option",
                "IdentitiesOnly=yes",
                "--ssh-option",
                "IdentityFile=/dev/null",
                "--ssh-option",
                "PubkeyAuthentication=no",
                "true",
            ],
            "Permission denied",
            "ssh-copy-id h0",
        ),
    ];
    for (arguments, named, hint) in cases {
        let done = run(arguments);
        let text = done.message();
        assert_eq!(done.code, 1, "{arguments:?}: {text}");
        assert!(text.contains(named) && text.contains("hint:") && text.contains(hint), "{arguments:?}: {text}");
        assert_eq!(done.err.len(), 2, "{text}");
    }
    let done = run(&["-H", "h0:2", "--", "sh", "-c", "echo $RANK"]);
    assert_eq!((done.code, sorted(done.out)), (0, vec!["[0] 0".to_string(), "[1] 1".into()]), "{:?}", done.err);
}

/// Trains on both hosts with these options, and returns what was said.
fn train(cluster: &Cluster, folder: &Path, hosts: &str, options: &[&str]) -> String {
    let mut command = cluster.hosts.command(0, SIRTAKI);
    command.args(["train", "--via", "ssh", "--ssh-config", &cluster.servers.options()[1], "-H", hosts]);
    command.args(["--env", "TEST_RUN"]).args(options);
    command.args(["--data", concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist")]).current_dir(folder);
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    done.message()
}

#[test]
fn training_runs_on_both_hosts() {
    let cluster = Cluster::new("lt");
    let folder = tempfile::tempdir().unwrap();
    let said = train(&cluster, folder.path(), "h0:1,h1:1", &["--max-steps", "20", "--batch-size", "16"]);
    assert!(said.contains("2 workers with 16 images"), "{said}");
    cluster.is_quiet();
}

#[test]
fn weights_that_are_on_each_host_once_are_those_of_one_worker() {
    let cluster = Cluster::new("lw");
    let folder = tempfile::tempdir().unwrap();
    let weights = |hosts: &str, more: &[&str]| {
        let file = folder.path().join("result.json");
        let same = ["--reproducible", "--shards", "6", "--global-batch", "12", "--max-steps", "3", "--json"];
        train(&cluster, folder.path(), hosts, &[&same[..], &[file.to_str().unwrap()], more].concat());
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        report["weights"].as_str().unwrap().to_owned()
    };
    let alone = weights("h0:1", &[]);
    assert_eq!(weights("h0:2,h1:1", &["--strategy", "central"]), alone);
    cluster.is_quiet();
}
