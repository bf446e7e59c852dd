//! The peers as the benchmark uses them: started, asked, ended. Needs Debian's `openmpi-bin` and `mpich`.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{path::Path, process::Command, time::Duration};

use sirtaki_bench::{
    BenchError, Peer,
    start::{Place, Starter},
};

const PATIENCE: Duration = Duration::from_secs(60);

fn check(mut peer: Peer) {
    assert_eq!(peer.size(), 2);
    for bytes in [0, 4, 4096] {
        let times = peer.measure(bytes, 3).unwrap();
        assert_eq!(times.len(), 3);
        assert!(times.iter().all(|time| *time >= 0.0 && time.is_finite()), "{times:?}");
    }
}

fn launcher(name: &str, options: &[&str]) -> Vec<Command> {
    let mut command = Command::new(name);
    command.args(options).args(["-n", "2", env!("CARGO_BIN_EXE_mpi-peer")]);
    vec![command]
}

#[test]
fn openmpi_answers() {
    let command = launcher("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"]);
    check(Peer::start("openmpi", command, 2, PATIENCE).unwrap());
}

#[test]
fn mpich_answers() {
    check(Peer::start("mpich", launcher("mpirun.mpich", &[]), 2, PATIENCE).unwrap());
}

#[test]
fn the_machine_answers() {
    for task in ["add", "copy"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_limit-peer"));
        command.args([task, "2"]);
        check(Peer::start(task, vec![command], 2, PATIENCE).unwrap());
    }
}

#[test]
fn sirtaki_answers_in_every_mode() {
    let programs = Path::new(env!("CARGO_BIN_EXE_sirtaki-peer")).parent().unwrap().to_owned();
    let mut starter = Starter::new(programs, None, None);
    for mode in ["arena", "shared", "tcp", "engine", "records", "telemetry"] {
        let mut peer = starter.sirtaki(mode, &Place::here(2)).unwrap();
        let step = sirtaki_bench::resnet::tensors().iter().sum::<usize>() * 4;
        assert_eq!(peer.measure(step, 2).unwrap().len(), 2);
        check(peer);
    }
}

#[test]
fn threads_say_what_a_step_costs() {
    let programs = Path::new(env!("CARGO_BIN_EXE_scale-peer")).parent().unwrap().to_owned();
    let starter = Starter::new(programs, None, None);
    for order in ["agreed", "adopted"] {
        let cost = starter.scale(2, order, 2).unwrap();
        assert!(cost.wall > 0.0 && cost.cpu > 0.0, "{cost:?}");
    }
    assert!(starter.scale(0, "agreed", 2).is_err());
}

#[test]
fn an_idle_engine_can_be_watched() {
    let programs = Path::new(env!("CARGO_BIN_EXE_sirtaki-peer")).parent().unwrap().to_owned();
    let mut peer = Starter::new(programs, None, None).sirtaki("engine", &Place::here(2)).unwrap();
    let before = peer.processor_time().unwrap();
    peer.measure(4096, 100).unwrap();
    assert!(peer.processor_time().unwrap() > before);
}

#[test]
fn a_peer_that_does_not_start_is_reported() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limit-peer"));
    command.arg("nonsense");
    match Peer::start("limit", vec![command], 2, PATIENCE) {
        Err(BenchError::Protocol(problem)) => assert!(problem.contains("limit ended before"), "{problem}"),
        other => panic!("expected an early end, got {other:?}"),
    }
}
