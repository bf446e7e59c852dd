//! What lies between the GPUs of a group, as far as NVIDIA's management library knows: of this host only, and what could
//! be used, not what NCCL in fact uses.

use std::path::Path;

use sirtaki_comm::{
    Rank,
    device::{GpuLink, Nvml, NvmlDevice},
};

/// In words, for the group in which this is `rank`; `None` if there is nothing to say, or nothing is known.
pub(super) fn describe(library: Option<&Path>, uuids: &[[u8; 16]], hosts: &[&str], rank: Rank) -> Option<String> {
    let mut here: Vec<[u8; 16]> =
        uuids.iter().zip(hosts).filter(|(_, host)| **host == hosts[rank]).map(|(uuid, _)| *uuid).collect();
    here.sort_unstable();
    here.dedup();
    let several_hosts = hosts.iter().any(|host| *host != hosts[rank]);
    let link = if here.len() > 1 { slowest(library, &here) } else { None };
    words(link, several_hosts)
}

fn words(link: Option<GpuLink>, several_hosts: bool) -> Option<String> {
    let here = link.map(|link| format!("GPUs of this host are connected by {}", link.name()));
    match (here, several_hosts) {
        (Some(here), true) => Some(format!("{here}, hosts by the network")),
        (None, true) => Some("hosts are connected by the network".into()),
        (here, false) => here,
    }
}

/// The slowest connection between any two of these GPUs.
fn slowest(library: Option<&Path>, uuids: &[[u8; 16]]) -> Option<GpuLink> {
    let nvml = Nvml::load(library).ok()?;
    let devices = uuids.iter().map(|uuid| nvml.device(*uuid)).collect::<Option<Vec<NvmlDevice>>>()?;
    let pairs =
        devices.iter().enumerate().flat_map(|(at, one)| devices[at + 1..].iter().map(move |other| (one, other)));
    pairs.map(|(one, other)| one.link(other)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said() {
        assert_eq!(words(None, false), None);
        assert_eq!(words(None, true).unwrap(), "hosts are connected by the network");
        let both = "GPUs of this host are connected by PCIe, hosts by the network";
        assert_eq!(words(Some(GpuLink::PciePeer), true).unwrap(), both);
    }
}
