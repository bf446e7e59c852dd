//! From rank, size and a store to a communicator that fits where the ranks are.

use std::sync::Arc;

use super::{Exchange, Network, Store, StoreExchange, choose_network, obstacle, this_member};
use crate::{
    CommError, Communicator, Group, Member, Rank, Settings, Stopper,
    communicator::{
        Arena, Connector, MeshCommunicator, Solo,
        mpi::{Choice, MpiCommunicator},
        settle,
    },
    link::connect_links,
    mesh::Mesh,
};

/// Changes whenever processes of two versions could not work together.
const PROTOCOL: &str = concat!("sirtaki ", env!("CARGO_PKG_VERSION"));

/// What [`connect`] made.
pub struct Connected {
    /// All ranks of the job.
    pub communicator: Box<dyn Communicator>,
    /// Which network it uses and why, in one line; `None` on a single host whose ranks share memory.
    pub network: Option<String>,
}

/// Joins the job of `size` ranks that meet in `store`, as `rank`. Every rank calls it once per store.
pub fn connect(
    store: Arc<dyn Store>,
    rank: Rank,
    size: usize,
    settings: Settings,
) -> Result<Box<dyn Communicator>, CommError> {
    connect_with_report(store, rank, size, settings).map(|made| made.communicator)
}

/// As [`connect`], and reports on the network.
pub fn connect_with_report(
    store: Arc<dyn Store>,
    rank: Rank,
    size: usize,
    settings: Settings,
) -> Result<Connected, CommError> {
    if rank >= size {
        return Err(CommError::Invalid { problem: format!("there is no rank {rank} in a job of {size}") });
    }
    let algorithm = settings.algorithm;
    let mut made = join(store, rank, size, settings)?;
    made.communicator.force(algorithm)?;
    Ok(made)
}

/// Joins the job that an MPI launcher started: shared memory within hosts, MPI between them. Every rank calls it.
///
/// MPI brings the ranks together, so neither a store nor a rank is needed, and no socket is opened. On a single host
/// MPI is then no longer needed and is ended, unless other communicators over it are in use; MPI starts only once in a
/// process, so call this once. With shared memory switched off, or one rank on every host, MPI does everything and no
/// algorithm can be forced.
pub fn connect_over_mpi(settings: &Settings, choice: &Choice) -> Result<Box<dyn Communicator>, CommError> {
    let mut communicator = settle(MpiCommunicator::world(settings, choice)?, settings)?;
    communicator.force(settings.algorithm)?;
    Ok(communicator)
}

fn join(store: Arc<dyn Store>, rank: Rank, size: usize, mut settings: Settings) -> Result<Connected, CommError> {
    let mut exchange = StoreExchange::new(store, "world", rank, size, settings.start_timeout);
    let group = introduce(rank, &mut exchange)?;
    let one_host = group.hosts().len() == 1;
    if size == 1 {
        return Ok(Connected { communicator: Box::new(Solo::new(group)?), network: None });
    }
    let mut network = choose_network(&group, &mut exchange, &settings)?;
    let mut report = (!one_host).then(|| network.report.clone());
    if one_host && settings.shared_memory && size <= Arena::MOST_RANKS {
        let Some(obstacle) = obstacle(&group, &mut exchange)? else {
            let communicator = Box::new(Arena::connect(group, &mut exchange, &settings)?);
            return Ok(Connected { communicator, network: None });
        };
        network.report = format!("network: loopback, since ranks cannot share memory ({obstacle})");
        (settings.shared_memory, report) = (false, Some(network.report.clone()));
    }
    let world = mesh(group, &mut exchange, &settings, network)?;
    Ok(Connected { communicator: settle(Box::new(world), &settings)?, network: report })
}

/// Every rank tells the others who and where it is. Needs one round of `exchange`.
pub fn introduce(rank: Rank, exchange: &mut dyn Exchange) -> Result<Group, CommError> {
    let garbled = |who: String| CommError::Refused { peer: who, reason: "its introduction cannot be read".into() };
    let mine = postcard::to_stdvec(&(PROTOCOL, this_member(rank)?)).map_err(|_| garbled("this process".into()))?;
    let read = |(rank, bytes): (Rank, &Vec<u8>)| {
        let who = format!("rank {rank}");
        let (protocol, member): (String, Member) = postcard::from_bytes(bytes).map_err(|_| garbled(who.clone()))?;
        if protocol != PROTOCOL {
            return Err(CommError::Refused { peer: who, reason: format!("it runs {protocol}, this is {PROTOCOL}") });
        }
        Ok(member)
    };
    let members = exchange.all(&mine)?.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(Group::new(rank, members))
}

fn mesh(
    group: Group,
    exchange: &mut dyn Exchange,
    settings: &Settings,
    network: Network,
) -> Result<MeshCommunicator, CommError> {
    let kept = settings.clone();
    let connector: Connector = Arc::new(move |group, exchange| connect_links(group, exchange, &kept, &network));
    let links = connector(&group, exchange)?;
    let mesh = Mesh::new(group, links, settings.timeout, Stopper::new())?;
    MeshCommunicator::new(mesh, None, connector)
}
