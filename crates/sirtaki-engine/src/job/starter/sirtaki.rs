//! `sirtaki run`, or a user who sets its variables by hand.

use std::net::SocketAddr;

use sirtaki_comm::secure::Secret;

use super::{
    super::{JobError, Lookup, Place, parse::optional, parse::required, parse::text, place::Meeting, variables as v},
    position,
};

/// The place in `SIRTAKI_*`. If one of them is set, the others are required.
pub(crate) fn by_sirtaki(get: Lookup<'_>) -> Result<Option<Place>, JobError> {
    let place = [v::RANK, v::SIZE, v::STORE, v::LOCAL_RANK, v::LOCAL_SIZE, v::CROSS_RANK, v::CROSS_SIZE, v::MEMBER];
    if place.iter().all(|name| text(get, name).is_none()) {
        return Ok(None);
    }
    if let Some(role) = optional(get, v::ROLE, role)?.filter(|role| *role != "worker") {
        return Err(JobError::NoRank { role });
    }
    if let Some(member) = optional(get, v::MEMBER, |text| text.parse().ok().filter(|&number: &u64| number > 0))? {
        let (address, tls, secret) = store(get)?;
        let meeting = Meeting::Rounds { address, secret, tls, member };
        return Ok(Some(Place { rank: 0, size: 1, local: None, cross: None, meeting }));
    }
    let Some(world) = position(get, (v::RANK, v::SIZE), None)? else {
        return Err(JobError::Missing { name: v::RANK, allowed: v::allowed(v::RANK).into() });
    };
    let limit = Some((v::SIZE, world.size));
    let local = position(get, (v::LOCAL_RANK, v::LOCAL_SIZE), limit)?;
    let cross = position(get, (v::CROSS_RANK, v::CROSS_SIZE), limit)?;
    let (address, tls, secret) = store(get)?;
    let meeting = Meeting::Store { address, secret, tls };
    Ok(Some(Place { rank: world.rank, size: world.size, local, cross, meeting }))
}

/// What a process is to its job.
pub(crate) fn role(text: &str) -> Option<&'static str> {
    ["worker", "server", "coordinator"].into_iter().find(|role| *role == text)
}

/// Where the launcher's store is, whether it is encrypted, and what has to be proven there.
pub(crate) fn store(get: Lookup<'_>) -> Result<(SocketAddr, bool, Secret), JobError> {
    let (address, tls) = required(get, v::STORE, |text| {
        let tls = text.starts_with("tls://");
        let address = text.strip_prefix(if tls { "tls://" } else { "tcp://" })?;
        Some((address.parse().ok()?, tls))
    })?;
    let secret = required(get, v::SECRET, |text| Secret::from_hex(text).ok())?;
    Ok((address, tls, secret))
}
