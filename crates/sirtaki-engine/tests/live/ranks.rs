//! Ranks as threads, with a real communicator between them.

use std::{sync::Arc, thread, time::Duration};

use sirtaki_comm::{
    DType, Reduction,
    rendezvous::{MemoryStore, connect},
    secure::Secret,
};
use sirtaki_engine::{Engine, Operation, Request, Settings, Tensor, Ticket};

/// Starts one engine per rank and runs `work` as every rank at once.
pub(crate) fn each<R: Send>(size: usize, settings: &Settings, work: impl Fn(&Engine) -> R + Sync) -> Vec<R> {
    let mut links = sirtaki_comm::Settings::new(Secret::random().unwrap());
    links.timeout = Duration::from_secs(60);
    let store = Arc::new(MemoryStore::new());
    thread::scope(|scope| {
        let (links, work, store) = (&links, &work, &store);
        let rank = |rank| {
            scope.spawn(move || {
                let comm = connect(store.clone(), rank, size, links.clone()).unwrap();
                let engine = Engine::start(comm, links, settings.clone()).unwrap();
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
