//! Ranks as threads, with a real communicator between them.

use std::{sync::Arc, thread, time::Duration};

use sirtaki_comm::{
    Communicator, DType, Reduction,
    rendezvous::{MemoryStore, connect},
    secure::Secret,
};
use sirtaki_engine::{Engine, Operation, Request, Settings, Tensor, Ticket};

/// Starts one engine per rank and runs `work` as every rank at once.
pub(crate) fn each<R: Send>(size: usize, settings: &Settings, work: impl Fn(&Engine) -> R + Sync) -> Vec<R> {
    each_with(size, |_| settings.clone(), |comm, _| comm, work)
}

/// The same, with settings and a communicator of each rank's own.
pub(crate) fn each_with<R: Send>(
    size: usize,
    settings: impl Fn(usize) -> Settings + Sync,
    wrap: impl Fn(Box<dyn Communicator>, usize) -> Box<dyn Communicator> + Sync,
    work: impl Fn(&Engine) -> R + Sync,
) -> Vec<R> {
    let mut links = sirtaki_comm::Settings::new(Secret::random().unwrap());
    links.timeout = Duration::from_secs(60);
    let store = Arc::new(MemoryStore::new());
    thread::scope(|scope| {
        let (links, settings, wrap, work, store) = (&links, &settings, &wrap, &work, &store);
        let rank = |rank| {
            scope.spawn(move || {
                let comm = connect(store.clone(), rank, size, links.clone()).unwrap();
                let engine = Engine::start(wrap(comm, rank), links, settings(rank)).unwrap();
                work(&engine)
            })
        };
        let threads: Vec<_> = (0..size).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Submits a number to be added up.
pub(crate) fn sum(engine: &Engine, name: &str, number: i64) -> Ticket {
    let request = Request::new(name, Operation::AllReduce(Reduction::SUM), DType::I64, &[1]);
    engine.submit(request, Tensor::from_vec(vec![number]))
}
