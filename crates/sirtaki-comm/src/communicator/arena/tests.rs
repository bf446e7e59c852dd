//! What can only be tested from inside an arena; everything else is tested through [`Communicator`].

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use super::{Arena, Count};
use crate::{CommError, Communicator, DType, Group, Reduction, Settings, SliceMut, rendezvous, secure::Secret};

/// Runs `work` as every rank of an arena that counts from `count`.
fn each(size: usize, count: Count, timeout: Duration, work: impl Fn(usize, Arena) + Sync) {
    let mut settings = Settings::new(Secret::random().expect("random bytes"));
    settings.timeout = timeout;
    let store = Arc::new(rendezvous::MemoryStore::new());
    thread::scope(|scope| {
        for rank in 0..size {
            let (work, store, settings) = (&work, store.clone(), &settings);
            scope.spawn(move || {
                let patience = Duration::from_secs(60);
                let mut exchange = rendezvous::StoreExchange::new(store, "test", rank, size, patience);
                let arena = Arena::counting_from(count, Group::local(rank, size), &mut exchange, settings);
                work(rank, arena.expect("all ranks come"));
            });
        }
    });
}

#[test]
fn operations_and_steps_are_counted_beyond_the_largest_number() {
    let near_the_end = Count { operations: u32::MAX - 9, steps: u32::MAX - 40 };
    each(3, near_the_end, Duration::from_secs(60), |rank, mut comm| {
        for _ in 0..5 {
            for count in [1, 1000, 500_000] {
                let mut data = vec![rank as i32 + 1; count];
                comm.all_reduce((&mut data).into(), Reduction::SUM).unwrap();
                assert!(data.iter().all(|&sum| sum == 6));
                comm.broadcast((&mut data).into(), 2).unwrap();
                let mut parts = vec![rank as i32; 3 * count];
                comm.all_gather((&mut parts).into(), &[count; 3]).unwrap();
                assert!((0..3).all(|from| parts[from * count..(from + 1) * count].iter().all(|&x| x == from as i32)));
                comm.reduce_scatter((&mut parts).into(), &[count; 3], Reduction::SUM).unwrap();
                assert!(parts[rank * count..(rank + 1) * count].iter().all(|&x| x == 3 * rank as i32));
            }
        }
    });
}

#[test]
fn ranks_that_differ_are_noticed_beyond_the_largest_number() {
    let last = Count { operations: u32::MAX, steps: u32::MAX };
    each(3, last, Duration::from_secs(60), |rank, mut comm| {
        let error = comm.all_reduce((&mut vec![1_f32; 5 + rank / 2]).into(), Reduction::SUM).unwrap_err();
        assert!(matches!(error, CommError::Mismatch { rank: 2, .. }), "{error}");
    });
}

#[test]
fn a_rank_that_has_given_up_still_shows_whom_it_waited_for() {
    let given_up = Barrier::new(3);
    each(3, Count::default(), Duration::from_secs(1), |rank, mut comm| {
        if rank < 2 {
            let error = comm.all_reduce((&mut vec![1_f32; 2]).into(), Reduction::SUM).unwrap_err();
            assert!(matches!(error, CommError::Timeout { rank: 2, .. }), "{error}");
        }
        given_up.wait();
        if rank == 0 {
            assert_eq!(comm.me.room.culprit(1), 2);
        }
        given_up.wait();
    });
}

#[test]
fn a_rank_that_comes_too_late_does_not_write_into_a_buffer_that_was_given_up() {
    const BYTES: usize = 1 << 20;
    let given_up = Barrier::new(2);
    each(2, Count::default(), Duration::from_secs(1), |rank, mut comm| {
        let mut buffer = comm.buffer(BYTES).unwrap();
        buffer.fill(rank as u8 + 1);
        let reduce = |comm: &mut Arena, buffer: &mut [u8]| {
            comm.all_reduce(SliceMut::new(DType::U8, buffer).unwrap(), Reduction::SUM)
        };
        if rank == 1 {
            // Its partner has come and gone. It finds the announcement, and does its half of the work.
            given_up.wait();
            reduce(&mut comm, &mut buffer).unwrap_err();
            given_up.wait();
            return;
        }
        let error = reduce(&mut comm, &mut buffer).unwrap_err();
        assert!(matches!(error, CommError::Timeout { rank: 1, .. }), "{error}");
        buffer.fill(9);
        given_up.wait();
        given_up.wait();
        assert!(buffer.len() == BYTES && buffer.iter().all(|&byte| byte == 9), "somebody else wrote into it");
    });
}
