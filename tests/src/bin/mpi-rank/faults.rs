//! Ranks that differ, stay away or stop: every rank must report it, and name the right one.

use std::{
    thread::{sleep, spawn},
    time::Duration,
};

use sirtaki_comm::{CommError, Communicator, Reduction};

use crate::world;

/// How long a rank waits for another: long enough that none is late on a busy machine unless it is meant to be.
const PATIENCE: Duration = Duration::from_secs(8);

/// Every fault on a world of its own; in between the ranks wait for each other on one that stays whole.
pub(crate) fn all() -> Result<Box<dyn Communicator>, CommError> {
    let mut whole = world(Duration::from_secs(60), usize::MAX)?;
    let faults: [fn(&mut dyn Communicator, &mut dyn Communicator); 6] =
        [other_count, other_operation, other_exchange, other_message, silence, stop];
    for fault in faults {
        whole.barrier()?;
        let mut comm = world(PATIENCE, usize::MAX)?;
        fault(&mut *comm, &mut *whole);
        assert!(comm.barrier().is_err(), "a failed communicator stays failed");
        whole.barrier()?;
    }
    Ok(whole)
}

fn expect_mismatch(result: Result<(), CommError>, blamed: usize, words: &[&str]) {
    match result {
        Err(CommError::Mismatch { rank, differences }) => {
            assert_eq!(rank, blamed, "{differences}");
            words.iter().for_each(|word| assert!(differences.contains(word), "no `{word}` in: {differences}"));
        }
        other => panic!("expected a mismatch, got {other:?}"),
    }
}

fn other_count(comm: &mut dyn Communicator, _: &mut dyn Communicator) {
    let last = comm.group().size() - 1;
    let count = if comm.group().rank() == last { 11 } else { 10 };
    let result = comm.all_reduce((&mut vec![1f32; count]).into(), Reduction::SUM);
    expect_mismatch(result, last, &["of 10 f32", "of 11 f32", &format!("rank {last} ")]);
}

fn other_operation(comm: &mut dyn Communicator, _: &mut dyn Communicator) {
    let last = comm.group().size() - 1;
    let mut data = vec![1f64; 5];
    let result = if comm.group().rank() == last { comm.broadcast((&mut data).into(), 0) } else { comm.barrier() };
    expect_mismatch(result, last, &["broadcast of 5 f64 with root 0", "barrier"]);
}

/// Rank 0 sends the last rank one element more than it expects; no other rank could know.
fn other_exchange(comm: &mut dyn Communicator, _: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut sent = vec![2; size];
    if rank == 0 {
        sent[size - 1] += 1;
    }
    let out = vec![1i32; sent.iter().sum()];
    let mut into = vec![0i32; 2 * size];
    let result = comm.all_to_all((&out).into(), &sent, (&mut into).into(), &vec![2; size]);
    expect_mismatch(result, 0, &["sends 3 elements to rank", "expects 2"]);
}

/// A long message that is received too short; the others, which wait for both, hear of it.
fn other_message(comm: &mut dyn Communicator, _: &mut dyn Communicator) {
    let result = match comm.group().rank() {
        0 => comm.send((&vec![1f32; 5000]).into(), 1),
        1 => comm.receive((&mut vec![1f32; 4000]).into(), 0),
        _ => comm.barrier(),
    };
    expect_mismatch(result, 1, &["of 5000 f32", "of 4000 f32"]);
}

/// Rank 1 does not come. All others name it; when it comes at last it hears the same.
fn silence(comm: &mut dyn Communicator, whole: &mut dyn Communicator) {
    let early = (comm.group().rank() != 1).then(|| comm.all_reduce((&mut vec![1u8; 3]).into(), Reduction::SUM));
    whole.barrier().expect("everybody has had enough");
    let result = early.unwrap_or_else(|| comm.all_reduce((&mut vec![1u8; 3]).into(), Reduction::SUM));
    match result {
        Err(CommError::Timeout { rank: 1, operation, .. }) => assert!(operation.contains("all_reduce(sum) of 3 u8")),
        other => panic!("expected a timeout of rank 1, got {other:?}"),
    }
}

/// Rank 0 is stopped from another thread while it waits; the others hear of it when they come.
fn stop(comm: &mut dyn Communicator, whole: &mut dyn Communicator) {
    if comm.group().rank() == 0 {
        let stopper = comm.stopper();
        let thread = spawn(move || {
            sleep(Duration::from_millis(200));
            stopper.stop("enough");
        });
        let result = comm.barrier();
        assert!(matches!(&result, Err(CommError::Stopped { reason }) if reason == "enough"), "{result:?}");
        thread.join().expect("the thread does not panic");
        whole.barrier().expect("everybody waits here");
    } else {
        whole.barrier().expect("everybody waits here");
        let result = comm.barrier();
        assert!(matches!(&result, Err(CommError::Stopped { reason }) if reason.contains("enough")), "{result:?}");
    }
}
