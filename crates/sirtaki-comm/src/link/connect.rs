//! Connecting all members of a group to each other.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::mpsc,
    time::{Duration, Instant},
};

use super::{Link, TcpLink, TlsLink};
use crate::{
    CommError, Group, Rank, Settings,
    rendezvous::{Exchange, Network},
    secure::{
        Access, Gate, SecureStream, fresh_id,
        handshake::{Acceptor, Claim, Purpose},
    },
};

/// How long a member's address may refuse connections. A listener published it, so not for long.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// Links to all other members, in rank order, with `None` for this rank.
///
/// Every member listens at a port of the system's choice, on loopback if all members share a host and otherwise on
/// `network`'s address, and calls the members of lower rank. All listeners are closed on return.
pub fn connect_links(
    group: &Group,
    exchange: &mut dyn Exchange,
    settings: &Settings,
    network: &Network,
) -> Result<Vec<Option<Box<dyn Link>>>, CommError> {
    let deadline = Instant::now() + settings.start_timeout;
    let access = Access::from_settings(settings)?;
    let bind = if group.hosts().len() == 1 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { network.address };
    let (listener, own) = Gate::bind(bind)?;
    let mine = postcard::to_stdvec(&(own, fresh_id()?)).map_err(|error| garbled(group.rank(), group, &error))?;
    let everybody = exchange.all(&mine)?;
    let published = decode(group, &everybody)?;
    let id = published[0].1;
    let (sender, arrivals) = mpsc::channel();
    let me = Acceptor { purpose: Purpose::Link, group: id, rank: group.rank() as u32 };
    let gate = Gate::open(listener, access.clone(), me, move |stream, claim| {
        let _ = sender.send((stream, claim));
    })?;
    let mut links: Vec<Option<Box<dyn Link>>> = (0..group.size()).map(|_| None).collect();
    for (rank, &(address, _)) in published.iter().enumerate().take(group.rank()) {
        let claim = Claim { purpose: Purpose::Link, rank: me.rank, group: id, to: rank as u32 };
        let patience = Instant::now() + REFUSAL_PATIENCE;
        let stream =
            access.call_patiently(address, &claim, patience, deadline).map_err(|e| unreachable(group, rank, e))?;
        links[rank] = Some(link_over(stream, settings)?);
    }
    await_callers(group, &gate, &arrivals, &mut links, settings, deadline)?;
    Ok(links)
}

/// A link over a proven connection, ready for use.
pub fn link_over(stream: SecureStream, settings: &Settings) -> Result<Box<dyn Link>, CommError> {
    let what = |error: io::Error| CommError::io("cannot set up a connection", error);
    let (socket, session) = stream.into_parts();
    Ok(match session {
        None => Box::new(TcpLink::new(socket, settings.timeout).map_err(what)?),
        Some(session) => Box::new(TlsLink::new(socket, session, settings.timeout).map_err(what)?),
    })
}

fn await_callers(
    group: &Group,
    gate: &Gate,
    arrivals: &mpsc::Receiver<(SecureStream, Claim)>,
    links: &mut [Option<Box<dyn Link>>],
    settings: &Settings,
    deadline: Instant,
) -> Result<(), CommError> {
    while let Some(missing) = (group.rank() + 1..group.size()).find(|&rank| links[rank].is_none()) {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((stream, claim)) = arrivals.recv_timeout(left) else {
            return Err(absent(group, missing, gate, settings.start_timeout));
        };
        let rank = claim.rank as usize;
        // A rank that is connected stays: a second caller with the same rank is a mistake or worse.
        if rank > group.rank() && links.get(rank).is_some_and(Option::is_none) {
            links[rank] = Some(link_over(stream, settings)?);
        }
    }
    Ok(())
}

/// All members' addresses and group ids.
fn decode(group: &Group, everybody: &[Vec<u8>]) -> Result<Vec<(SocketAddr, [u8; 16])>, CommError> {
    if everybody.len() != group.size() {
        let problem = format!("{} ranks published an address in a group of {}", everybody.len(), group.size());
        return Err(CommError::Invalid { problem });
    }
    let parse = |(rank, bytes): (Rank, &Vec<u8>)| postcard::from_bytes(bytes).map_err(|e| garbled(rank, group, &e));
    everybody.iter().enumerate().map(parse).collect()
}

fn garbled(rank: Rank, group: &Group, error: &postcard::Error) -> CommError {
    let reason = format!("its published address cannot be read ({error}); do all ranks run the same version?");
    CommError::Refused { peer: group.describe(rank), reason }
}

fn unreachable(group: &Group, rank: Rank, error: CommError) -> CommError {
    match error {
        CommError::Refused { peer, reason } => {
            CommError::Refused { peer: format!("{} at {peer}", group.describe(rank)), reason }
        }
        CommError::Io { action, source } => {
            CommError::Io { action: format!("{}: {action}", group.describe(rank)), source }
        }
        other => other,
    }
}

fn absent(group: &Group, rank: Rank, gate: &Gate, waited: Duration) -> CommError {
    let refused = gate.refusals();
    let refused = if refused.is_empty() { String::new() } else { format!("; meanwhile: {}", refused.join("; ")) };
    CommError::Timeout {
        rank: group.world_rank(rank),
        who: group.describe(rank),
        operation: format!("connecting to {} at {}{refused}", group.describe(group.rank()), gate.address()),
        waited,
    }
}

#[cfg(test)]
mod tests;
