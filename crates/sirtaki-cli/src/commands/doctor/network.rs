//! Network interfaces: state, speed and addresses.
//!
//! All of it is read from files of the kernel, since asking the C library takes unsafe code. The kernel lists IPv4
//! addresses without their interface, which follows from the routes: an address lies in the network of its interface.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::finding::Finding;

/// One line per interface.
pub(super) fn examine() -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let routes = routes(&read("/proc/net/route"));
    let mut addresses = ipv4(&read("/proc/net/fib_trie"), &routes);
    addresses.extend(ipv6(&read("/proc/net/if_inet6")));
    let Ok(folder) = fs::read_dir("/sys/class/net") else {
        return vec![Finding::absent("interfaces", "/sys/class/net cannot be read")];
    };
    let mut names: Vec<String> =
        folder.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort_by_key(|name| (name != "lo", name.clone()));
    names.iter().map(|name| interface(name, &addresses)).collect()
}

fn interface(name: &str, addresses: &[(String, IpAddr)]) -> Finding {
    let read = |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).unwrap_or_default();
    let mut words: Vec<String> =
        addresses.iter().filter(|(owner, _)| owner == name).map(|(_, address)| address.to_string()).collect();
    let reachable = !words.is_empty();
    if !reachable {
        words.push("no address".into());
    }
    // Virtual interfaces have no speed; the file is missing, empty or says -1.
    if let Some(speed) = read("speed").trim().parse::<i64>().ok().filter(|&speed| speed > 0) {
        words.push(if speed >= 1000 { format!("{} Gbit/s", speed as f64 / 1000.0) } else { format!("{speed} Mbit/s") });
    }
    words.push(format!("MTU {}", read("mtu").trim()));
    let state = read("operstate");
    if state.trim() == "down" {
        return Finding::absent(format!("interface {name}"), format!("down, {}", words.join(", ")));
    }
    let title = format!("interface {name}");
    if reachable { Finding::ok(title, words.join(", ")) } else { Finding::absent(title, words.join(", ")) }
}

/// Networks and the interface that leads there, as the kernel prints them: numbers in the machine's byte order.
fn routes(table: &str) -> Vec<(String, u32, u32)> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let network = u32::from_str_radix(words.next()?, 16).ok()?;
        let mask = u32::from_str_radix(words.nth(5)?, 16).ok()?;
        (mask != 0).then(|| (name, u32::from_be(network), u32::from_be(mask)))
    };
    table.lines().skip(1).filter_map(parse).collect()
}

/// This machine's IPv4 addresses.
fn ipv4(trie: &str, routes: &[(String, u32, u32)]) -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.starts_with("/32 host LOCAL")
            && let Some(address) = last
        {
            let lies_in = |(_, network, mask): &&(String, u32, u32)| u32::from(address) & mask == *network;
            let route = routes.iter().filter(lies_in).max_by_key(|(_, _, mask)| *mask);
            let name = if address.is_loopback() { Some("lo") } else { route.map(|(name, ..)| name.as_str()) };
            let entry = (name.unwrap_or("?").to_owned(), IpAddr::V4(address));
            if !found.contains(&entry) {
                found.push(entry);
            }
        }
    }
    found
}

/// This machine's IPv6 addresses.
fn ipv6(table: &str) -> Vec<(String, IpAddr)> {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        Some((words.next_back()?.to_owned(), IpAddr::V6(Ipv6Addr::from(address))))
    };
    table.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";

    #[test]
    fn addresses_find_their_interface() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.2.0\n        /24 link UNICAST\n     |-- 10.0.2.15\n\
                    \x20       /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.9.9.9\n\
                    \x20       /32 host LOCAL\n";
        let found = ipv4(trie, &routes(ROUTES));
        let expected = [("eth0", [10, 0, 2, 15]), ("lo", [127, 0, 0, 1]), ("?", [10, 9, 9, 9])];
        assert_eq!(found, expected.map(|(name, address)| (name.to_owned(), IpAddr::from(address))));
    }

    #[test]
    fn longer_addresses_too() {
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(ipv6(table), [("lo".to_owned(), "::1".parse().unwrap())]);
    }
}
