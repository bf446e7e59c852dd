//! Ranks as threads, with links of every kind between them.

use std::{sync::Arc, thread, time::Duration};

use sirtaki_comm::{
    Communicator, DType, Group, Member, Reduction, Stopper,
    communicator::{Connector, MeshCommunicator},
    link::connect_links,
    mesh::Mesh,
    rendezvous::{MemoryStore, Network, StoreExchange, connect},
    secure::Secret,
};
use sirtaki_engine::{Engine, Operation, Request, Settings, Tensor, Ticket};

/// How ranks reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Memory,
    Tcp,
    Tls,
    /// Rank 0 claims to be on a host of its own.
    Hosts,
}

impl Way {
    pub(crate) const ALL: [Way; 4] = [Way::Memory, Way::Tcp, Way::Tls, Way::Hosts];

    fn links(self) -> sirtaki_comm::Settings {
        let mut links = sirtaki_comm::Settings::new(Secret::random().unwrap());
        (links.timeout, links.tls) = (Duration::from_secs(60), self == Way::Tls);
        links.shared_memory = matches!(self, Way::Memory | Way::Hosts);
        links
    }

    fn join(
        self,
        store: &Arc<MemoryStore>,
        rank: usize,
        size: usize,
        links: &sirtaki_comm::Settings,
    ) -> Box<dyn Communicator> {
        if self != Way::Hosts {
            return connect(store.clone(), rank, size, links.clone()).unwrap();
        }
        let member = |rank: usize| Member {
            world_rank: rank,
            host: format!("host{}", rank.min(1)),
            host_id: format!("test {}", rank.min(1)),
            pid: std::process::id(),
            cores: Vec::new(),
        };
        let group = Group::new(rank, (0..size).map(member).collect());
        let mut exchange = StoreExchange::new(store.clone(), "test", rank, size, links.timeout);
        let kept = links.clone();
        let connector: Connector =
            Arc::new(move |group, exchange| connect_links(group, exchange, &kept, &Network::loopback()));
        let made = connector(&group, &mut exchange).unwrap();
        let mesh = Mesh::new(group, made, links.timeout, Stopper::new()).unwrap();
        Box::new(MeshCommunicator::new(mesh, None, connector).unwrap())
    }
}

/// Starts one engine per rank and runs `work` as every rank at once.
pub(crate) fn each<R: Send>(way: Way, size: usize, settings: &Settings, work: impl Fn(&Engine) -> R + Sync) -> Vec<R> {
    let (links, store) = (way.links(), Arc::new(MemoryStore::new()));
    thread::scope(|scope| {
        let (links, work, store) = (&links, &work, &store);
        let rank = |rank| {
            scope.spawn(move || {
                let comm = way.join(store, rank, size, links);
                let engine = Engine::start(comm, links, settings.clone()).unwrap();
                work(&engine)
            })
        };
        let threads: Vec<_> = (0..size).map(rank).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Submits a vector to be added up.
pub(crate) fn sum(engine: &Engine, name: &str, data: Vec<f32>) -> Ticket {
    let request = Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[data.len()]);
    engine.submit(request, Tensor::from_vec(data))
}
