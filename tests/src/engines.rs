//! Engines whose ranks are threads of this process.

use std::thread;

use sirtaki_comm::{DType, Element, Reduction};
use sirtaki_engine::{Engine, EngineError, Operation, Output, Request, Settings, Tensor, Ticket};

use crate::{make, team::Make};

/// Starts one engine per rank over the communicators of `make` and runs `work` as every rank at once.
pub fn each<R: Send>(make: Make<'_>, size: usize, settings: &Settings, work: impl Fn(&Engine) -> R + Sync) -> Vec<R> {
    let links = make::settings();
    thread::scope(|scope| {
        let (links, work) = (&links, &work);
        let rank = |comm| {
            scope.spawn(move || {
                let engine = Engine::start(comm, links, settings.clone()).unwrap();
                work(&engine)
            })
        };
        let threads: Vec<_> = make(size).into_iter().map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Hands in a vector under a name.
pub fn submit<T: Element + Send>(engine: &Engine, name: &str, operation: Operation, data: Vec<T>) -> Ticket {
    let request = Request::new(name, operation, T::DTYPE, &[data.len()]);
    engine.submit(request, Tensor::from_vec(data))
}

/// Hands in a vector to be added up.
pub fn sum<T: Element + Send>(engine: &Engine, name: &str, data: Vec<T>) -> Ticket {
    submit(engine, name, Operation::AllReduce(Reduction::SUM), data)
}

/// The vector that resulted from a ticket.
pub fn vector<T: Element + Send>(outcome: Result<Output, EngineError>) -> Vec<T> {
    outcome.unwrap().into_vec().unwrap_or_else(|| panic!("not a tensor of {}", DType::name(T::DTYPE)))
}
