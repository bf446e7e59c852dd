//! All ranks of a group as threads of one process.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Mutex,
    thread,
};

use sirtaki_comm::{Communicator, Stopper};

/// What makes the communicators of a group of a given size, one per rank, in rank order.
pub type Make<'a> = &'a (dyn Fn(usize) -> Vec<Box<dyn Communicator>> + Sync);

/// A group whose ranks are threads.
pub struct Team {
    ranks: Vec<Box<dyn Communicator>>,
}

impl Team {
    /// A group of `size`.
    pub fn new(make: Make<'_>, size: usize) -> Team {
        let ranks = make(size);
        assert_eq!(ranks.len(), size, "the factory makes one communicator per rank");
        for (rank, comm) in ranks.iter().enumerate() {
            assert_eq!((comm.group().rank(), comm.group().size()), (rank, size), "in rank order");
        }
        Team { ranks }
    }

    /// Runs `work` as every rank at once and returns what each one returned.
    ///
    /// If one panics the others are stopped, so that a failing check ends instead of waiting for that rank.
    pub fn each<R: Send>(&mut self, work: impl Fn(&mut dyn Communicator) -> R + Sync) -> Vec<R> {
        let stoppers: Vec<Stopper> = self.ranks.iter().map(|comm| comm.stopper()).collect();
        let first = Mutex::new(None);
        let run = |rank: usize, comm: &mut dyn Communicator| match catch_unwind(AssertUnwindSafe(|| work(comm))) {
            Ok(result) => Some(result),
            Err(panic) => {
                first.lock().unwrap().get_or_insert(panic);
                stoppers.iter().for_each(|stopper| stopper.stop(format!("rank {rank} failed its check")));
                None
            }
        };
        let results: Vec<Option<R>> = thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = self
                .ranks
                .iter_mut()
                .enumerate()
                .map(|(rank, comm)| {
                    let name = format!("rank {rank}");
                    thread::Builder::new().name(name).spawn_scoped(scope, move || run(rank, comm.as_mut())).unwrap()
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        if let Some(panic) = first.lock().unwrap().take() {
            resume_unwind(panic);
        }
        results.into_iter().flatten().collect()
    }
}
