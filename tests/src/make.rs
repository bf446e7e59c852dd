//! Makes the communicators of a group whose ranks are threads of this process.

use std::{sync::Arc, thread, time::Duration};

use sirtaki_comm::{
    CommError, Communicator, Group, Member, Settings, Stopper,
    communicator::{Arena, Connector, MeshCommunicator, settle},
    link::connect_links,
    mesh::Mesh,
    rendezvous::{Exchange, MemoryStore, Network, StoreExchange, connect},
    secure::Secret,
};

/// Settings for tests: a timeout that ends a failing check, and that no rank reaches on a busy machine.
pub fn settings() -> Settings {
    let mut settings = Settings::new(Secret::random().unwrap());
    settings.timeout = Duration::from_secs(60);
    settings
}

type Made = Result<Box<dyn Communicator>, CommError>;

/// Runs `join` as every rank at once, with an exchange among them.
fn all(size: usize, join: impl Fn(usize, &mut dyn Exchange) -> Made + Sync) -> Vec<Box<dyn Communicator>> {
    let store = Arc::new(MemoryStore::new());
    thread::scope(|scope| {
        let (join, store) = (&join, &store);
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                scope.spawn(move || {
                    let patience = Duration::from_secs(60);
                    join(rank, &mut StoreExchange::new(store.clone(), "test", rank, size, patience)).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Ranks that share memory.
pub fn arena(size: usize) -> Vec<Box<dyn Communicator>> {
    all(size, |rank, exchange| Ok(Box::new(Arena::connect(Group::local(rank, size), exchange, &settings())?)))
}

fn over_loopback(size: usize, tls: bool) -> Vec<Box<dyn Communicator>> {
    let mut settings = settings();
    (settings.tls, settings.shared_memory) = (tls, false);
    let store = Arc::new(MemoryStore::new());
    all(size, |rank, _| connect(store.clone(), rank, size, settings.clone()))
}

/// Ranks that talk over TCP.
pub fn tcp(size: usize) -> Vec<Box<dyn Communicator>> {
    over_loopback(size, false)
}

/// Ranks that talk over encrypted TCP.
pub fn tls(size: usize) -> Vec<Box<dyn Communicator>> {
    over_loopback(size, true)
}

/// Ranks that claim to be on different hosts, `on_host` of them on each, the last one with what is left.
fn layered(size: usize, on_host: usize) -> Vec<Box<dyn Communicator>> {
    let settings = settings();
    let host = |rank: usize| (rank / on_host).min((size / on_host).saturating_sub(1));
    let member = |rank: usize| Member {
        world_rank: rank,
        host: format!("host{}", host(rank)),
        host_id: format!("test {}", host(rank)),
        pid: std::process::id(),
        cores: Vec::new(),
    };
    all(size, |rank, exchange| {
        let group = Group::new(rank, (0..size).map(member).collect());
        let kept = settings.clone();
        let connector: Connector =
            Arc::new(move |group, exchange| connect_links(group, exchange, &kept, &Network::loopback()));
        let links = connector(&group, exchange)?;
        let mesh = Mesh::new(group, links, settings.timeout, Stopper::new())?;
        settle(Box::new(MeshCommunicator::new(mesh, None, connector)?), &settings)
    })
}

/// Two ranks on every host, except perhaps the last.
pub fn layered_evenly(size: usize) -> Vec<Box<dyn Communicator>> {
    layered(size, 2)
}

/// Three ranks on every host but the last, which has more.
pub fn layered_unevenly(size: usize) -> Vec<Box<dyn Communicator>> {
    layered(size, 3)
}
