//! Links that several hosts share: the up-links of a leaf switch, or the line of a site. Pure.
//!
//! Hosts are in groups, in the order of ranks. Streams that leave a group at the same time divide its link among
//! themselves; how many do is up to the algorithm. A ring leaves each group once, so it hardly notices a slow spine, while
//! partners far apart all cross it. Rejected: the single links of a fabric and its routes, since nobody knows them in
//! advance; a dragonfly with even traffic is a fat tree whose oversubscription is the taper of its global links.

use super::failure_table::long;
use crate::args::fabric::Fabric;

/// What connects groups of hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spine {
    /// Hosts of a group.
    pub hosts: usize,
    /// Bytes per second out of a group, headers included, and as many into it.
    pub bandwidth: f64,
    /// Seconds that a message takes longer between groups.
    pub latency: f64,
}

impl Spine {
    /// Groups of so many hosts.
    pub(super) fn groups(&self, hosts: usize) -> usize {
        hosts.div_ceil(self.hosts.max(1))
    }
}

/// Links of a host, and what connects groups of them, for links of this bandwidth and latency.
pub(super) fn links(fabric: Fabric, bandwidth: f64, latency: f64) -> (usize, Option<Spine>) {
    match fabric {
        Fabric::Flat => (1, None),
        Fabric::Rails(rails) => (rails, None),
        Fabric::FatTree { oversubscription, hosts } => {
            (1, Some(Spine { hosts, bandwidth: hosts as f64 * bandwidth / oversubscription, latency: 0.0 }))
        }
        Fabric::WideArea { bandwidth, latency: far, hosts } => {
            (1, Some(Spine { hosts, bandwidth, latency: (far - latency).max(0.0) }))
        }
    }
}

/// The topology for people, where it is not flat.
pub(super) fn description(rails: usize, spine: Option<Spine>) -> Option<String> {
    match spine {
        Some(Spine { hosts, bandwidth, latency }) => {
            let far = if latency > 0.0 { format!(" and {} more", long(latency)) } else { String::new() };
            let rate = (bandwidth * 8e-5).round() / 1e4;
            Some(format!("{hosts} hosts share {rate} Gbit/s{far} to all others, in the order of ranks."))
        }
        None if rails > 1 => Some(format!("Each host has {rails} such links; a stream uses one of them.")),
        None => None,
    }
}
