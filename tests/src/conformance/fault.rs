//! Calls that cannot work: each ends with an error that says why, on every rank.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use sirtaki_comm::{CommError, Communicator, ReduceOp, Reduction};

use crate::team::{Make, Team};

fn assert_invalid(what: &str, result: Result<(), CommError>) {
    assert!(matches!(result, Err(CommError::Invalid { .. })), "{what}: {result:?} instead of an invalid call");
}

/// Wrong arguments are refused before anything is sent, and the next call works.
pub fn invalid_calls_do_no_harm(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut data = vec![0f32; size];
    let (short, long) = (vec![1; size - 1], vec![2; size]);
    let sum = Reduction::SUM;
    assert_invalid("too few counts", comm.all_gather((&mut data).into(), &short));
    assert_invalid("counts beyond the buffer", comm.all_gather((&mut data).into(), &long));
    assert_invalid("too few counts", comm.reduce_scatter((&mut data).into(), &short, sum));
    assert_invalid("counts beyond the buffer", comm.reduce_scatter((&mut data).into(), &long, sum));
    assert_invalid("no such root", comm.broadcast((&mut data).into(), size));
    assert_invalid("no such root", comm.reduce((&mut data).into(), sum, size));
    assert_invalid("no such root", comm.gather((&mut data).into(), &vec![1; size], size));
    assert_invalid("no such root", comm.scatter((&mut data).into(), &vec![1; size], size));
    assert_invalid("too few counts", comm.gather((&mut data).into(), &short, 0));
    assert_invalid("too few counts", comm.scatter((&mut data).into(), &short, 0));
    assert_invalid("send to nobody", comm.send((&data).into(), size));
    assert_invalid("send to myself", comm.send((&data).into(), rank));
    assert_invalid("receive from nobody", comm.receive((&mut data).into(), size));
    assert_invalid("receive from myself", comm.receive((&mut data).into(), rank));
    let (out, ones) = (vec![0f32; size], vec![1; size]);
    assert_invalid("send too much", comm.all_to_all((&out).into(), &long, (&mut data).into(), &ones));
    assert_invalid("receive too much", comm.all_to_all((&out).into(), &ones, (&mut data).into(), &long));
    let mut other = vec![0i32; size];
    assert_invalid("two types", comm.all_to_all((&out).into(), &ones, (&mut other).into(), &ones));
    let mut data = vec![1i64; 5];
    comm.all_reduce((&mut data).into(), sum).unwrap();
    assert_eq!(data, [size as i64; 5], "the communicator still works");
}

/// No rank leaves a barrier before the last one has come.
pub fn barrier_waits_for_all(make: Make<'_>, sizes: &[usize]) {
    for &size in sizes {
        let arrived = AtomicUsize::new(0);
        Team::new(make, size).each(|comm| {
            for round in 1..30 {
                if round % 10 == comm.group().rank() {
                    thread::sleep(Duration::from_millis(3));
                }
                arrived.fetch_add(1, Ordering::SeqCst);
                comm.barrier().unwrap();
                assert!(arrived.load(Ordering::SeqCst) >= round * size, "left before all had come");
            }
        });
    }
}

/// Has one rank make a different call from all others. All ranks must learn of it, and which rank it was.
fn mismatch(
    make: Make<'_>,
    sizes: &[usize],
    usual: fn(&mut dyn Communicator) -> Result<(), CommError>,
    odd: fn(&mut dyn Communicator) -> Result<(), CommError>,
) {
    for &size in sizes.iter().filter(|size| **size > 1) {
        for culprit in [0, size - 1] {
            let results = Team::new(make, size).each(|comm| {
                // Some ranks come to the next call while others are still in this one, which has to succeed everywhere.
                usual(comm).unwrap();
                let call = if comm.group().rank() == culprit { odd } else { usual };
                (call(comm), usual(comm))
            });
            for (rank, (result, later)) in results.into_iter().enumerate() {
                let what = format!("rank {rank} of {size}, culprit {culprit}");
                match result {
                    Err(CommError::Mismatch { ref differences, .. }) => {
                        assert!(differences.contains(&format!("rank {culprit} ")), "{what}: {differences}");
                    }
                    other => panic!("{what}: {other:?} instead of a mismatch"),
                }
                assert!(later.is_err(), "{what}: a broken communicator must stay broken");
            }
        }
    }
}

fn sum_of(comm: &mut dyn Communicator, count: usize) -> Result<(), CommError> {
    comm.all_reduce((&mut vec![1f32; count]).into(), Reduction::SUM)
}

fn reduce_five(comm: &mut dyn Communicator, reduction: Reduction) -> Result<(), CommError> {
    comm.all_reduce((&mut vec![1f32; 5]).into(), reduction)
}

fn usual(comm: &mut dyn Communicator) -> Result<(), CommError> {
    sum_of(comm, 5)
}

/// One rank brings more elements, few or many.
pub fn mismatch_of_count(make: Make<'_>, sizes: &[usize]) {
    mismatch(make, sizes, usual, |comm| sum_of(comm, 6));
    mismatch(make, sizes, usual, |comm| sum_of(comm, 1 << 20));
    mismatch(make, sizes, |comm| sum_of(comm, 1 << 20), |comm| sum_of(comm, 0));
}

/// One rank brings another type of the same size.
pub fn mismatch_of_type(make: Make<'_>, sizes: &[usize]) {
    mismatch(make, sizes, usual, |comm| comm.all_reduce((&mut vec![1i32; 5]).into(), Reduction::SUM));
}

/// One rank calls something else.
pub fn mismatch_of_operation(make: Make<'_>, sizes: &[usize]) {
    mismatch(make, sizes, usual, |comm| comm.broadcast((&mut vec![1f32; 5]).into(), 0));
    mismatch(make, sizes, usual, |comm| comm.barrier());
    mismatch(make, sizes, |comm| comm.barrier(), usual);
}

/// One rank wants the product.
pub fn mismatch_of_reduction(make: Make<'_>, sizes: &[usize]) {
    mismatch(make, sizes, usual, |comm| reduce_five(comm, Reduction::new(ReduceOp::Product)));
}

/// One rank scales.
pub fn mismatch_of_factors(make: Make<'_>, sizes: &[usize]) {
    mismatch(make, sizes, usual, |comm| reduce_five(comm, Reduction::SUM.scaled(2.0, 1.0)));
}

/// One rank uses itself, or its neighbour, as the root.
pub fn mismatch_of_root(make: Make<'_>, sizes: &[usize]) {
    fn broadcast(comm: &mut dyn Communicator, root: usize) -> Result<(), CommError> {
        comm.broadcast((&mut vec![1f32; 300]).into(), root)
    }
    mismatch(make, sizes, |comm| broadcast(comm, 0), |comm| broadcast(comm, 1));
    mismatch(make, sizes, |comm| broadcast(comm, 1), |comm| broadcast(comm, 0));
}

/// One rank cuts the same buffer at other places.
pub fn mismatch_of_counts(make: Make<'_>, sizes: &[usize]) {
    fn gather(comm: &mut dyn Communicator, first: usize) -> Result<(), CommError> {
        let mut counts = vec![4; comm.group().size()];
        (counts[0], counts[1]) = (first, 8 - first);
        let mut all = vec![0f32; counts.iter().sum()];
        comm.all_gather((&mut all).into(), &counts)
    }
    mismatch(make, sizes, |comm| gather(comm, 4), |comm| gather(comm, 3));
}

/// Waits until all others are freed; if that does not happen, joins them, so that the check fails instead of hanging.
fn stay_away(comm: &mut dyn Communicator, freed: &AtomicUsize) {
    let others = comm.group().size() - 1;
    let patience = Instant::now() + Duration::from_secs(60);
    while freed.load(Ordering::SeqCst) < others {
        if Instant::now() > patience {
            let _ = (comm.barrier(), comm.barrier());
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A rank that waits for another is freed from outside.
pub fn stopper_ends_a_wait(make: Make<'_>, sizes: &[usize]) {
    for &size in sizes.iter().filter(|size| **size > 1) {
        let freed = AtomicUsize::new(0);
        let results = Team::new(make, size).each(|comm| {
            if comm.group().rank() == size - 1 {
                stay_away(comm, &freed);
                return None;
            }
            let stopper = comm.stopper();
            let result = thread::scope(|scope| {
                scope.spawn(move || {
                    // Most of the time the wait has begun by then; it makes no difference to the outcome.
                    thread::sleep(Duration::from_millis(50));
                    stopper.stop("the test says so");
                });
                comm.barrier()
            });
            let later = comm.barrier();
            freed.fetch_add(1, Ordering::SeqCst);
            Some((result, later))
        });
        for (result, later) in results.into_iter().flatten() {
            for result in [result, later] {
                let text = result.expect_err("nobody can pass this barrier").to_string();
                assert!(text.contains("the test says so"), "{text}");
            }
        }
    }
}
