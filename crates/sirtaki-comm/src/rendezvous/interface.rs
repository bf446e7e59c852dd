//! This host's network interfaces, and which of them the user means.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::CommError;

/// An address of this host that others may be able to call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The interface's name, such as `eth0`.
    pub interface: String,
    /// One of its addresses.
    pub address: IpAddr,
}

/// The addresses of all interfaces that are up, without loopback and addresses that mean nothing on other hosts.
pub fn candidates() -> Result<Vec<Candidate>, CommError> {
    let all = if_addrs::get_if_addrs().map_err(|error| CommError::io("cannot list the network interfaces", error))?;
    let mut found: Vec<Candidate> = all
        .into_iter()
        .filter(|interface| interface.is_oper_up() && !interface.is_loopback() && usable(interface.ip()))
        .map(|interface| Candidate { address: interface.ip(), interface: interface.name })
        .collect();
    found.sort_by(|a, b| (a.address.is_ipv6(), &a.interface).cmp(&(b.address.is_ipv6(), &b.interface)));
    found.dedup();
    Ok(found)
}

/// Whether an address can be called from another host: not link-local, which needs an interface with it.
fn usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_unspecified() && !v4.is_link_local() && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => {
            let routed = v6.segments()[0] & 0xe000 == 0x2000;
            routed || v6.is_unique_local()
        }
    }
}

/// The candidate that `wish` names: an interface, one of its addresses, or a network such as `10.0.2.0/24`.
pub fn select(candidates: &[Candidate], wish: &str) -> Result<Candidate, CommError> {
    let wish = wish.trim();
    let network = parse_network(wish);
    let fits = |candidate: &&Candidate| {
        candidate.interface == wish || network.is_some_and(|network| contains(network, candidate.address))
    };
    candidates.iter().find(fits).cloned().ok_or_else(|| {
        let list: Vec<String> = candidates.iter().map(|c| format!("{} ({})", c.interface, c.address)).collect();
        let list = if list.is_empty() { "none that is up".into() } else { list.join(", ") };
        CommError::Invalid {
            problem: format!("there is no network interface, address or network {wish:?} here; there is: {list}"),
        }
    })
}

/// An address (a network of one) or a network in the form `address/bits`.
fn parse_network(text: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(width), str::parse).ok()?;
    (bits <= width).then_some((address, bits))
}

fn contains((network, bits): (IpAddr, u32), address: IpAddr) -> bool {
    let number = |v6: Ipv6Addr| u128::from(v6);
    let (network, address, bits) = match (network, address) {
        (IpAddr::V4(n), IpAddr::V4(a)) => (number(n.to_ipv6_mapped()), number(a.to_ipv6_mapped()), bits + 96),
        (IpAddr::V6(n), IpAddr::V6(a)) => (number(n), number(a), bits),
        _ => return false,
    };
    bits == 0 || (network ^ address) >> (128 - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Candidate> {
        [("eth0", "10.0.1.7"), ("eth1", "10.0.2.7"), ("ib0", "fd00::7")]
            .map(|(interface, address)| Candidate { interface: interface.into(), address: address.parse().unwrap() })
            .into()
    }

    #[test]
    fn a_network_is_chosen_by_name_address_or_subnet() {
        for (wish, interface) in [
            ("eth1", "eth1"),
            ("10.0.1.7", "eth0"),
            ("10.0.2.0/24", "eth1"),
            ("10.0.0.0/8", "eth0"),
            ("0.0.0.0/0", "eth0"),
            ("fd00::/8", "ib0"),
            (" fd00::7 ", "ib0"),
        ] {
            assert_eq!(select(&some(), wish).unwrap().interface, interface, "{wish}");
        }
    }

    #[test]
    fn an_unknown_network_lists_the_known_ones() {
        for wish in ["eth7", "10.0.3.0/24", "10.0.1.0/33", "", "10.0.1.7/x", "::/0/"] {
            let text = select(&some(), wish).unwrap_err().to_string();
            assert!(text.contains("eth0 (10.0.1.7), eth1 (10.0.2.7), ib0 (fd00::7)"), "{wish}: {text}");
        }
    }

    #[test]
    fn only_addresses_that_others_can_call_are_candidates() {
        for (address, expected) in [
            ("10.1.2.3", true),
            ("169.254.0.1", false),
            ("0.0.0.0", false),
            ("fe80::1", false),
            ("fd12::1", true),
            ("2001:db8::1", true),
            ("::1", false),
        ] {
            assert_eq!(usable(address.parse().unwrap()), expected, "{address}");
        }
        assert!(candidates().unwrap().iter().all(|candidate| !candidate.address.is_loopback()));
    }
}
