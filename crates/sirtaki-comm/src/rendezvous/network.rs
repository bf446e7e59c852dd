//! At which of its addresses each host should be called: the fastest that all other hosts reach.
//!
//! One rank of every host, its first, publishes the host's addresses and answers probes on them. The first rank of
//! every other host tries them all; the one before it in a ring also measures. All ranks hear all results and decide by
//! the same pure function, so they come to the same conclusion, even if it is an error.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    thread,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Exchange,
    interface::{self, Candidate},
    probe,
};
use crate::{
    CommError, Group, Settings,
    secure::{Access, Gate, fresh_id},
};

/// The network a process uses for links to other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// This host's address to listen on.
    pub address: IpAddr,
    /// The interface that has it.
    pub interface: String,
    /// The decision in one line, for people.
    pub report: String,
}

impl Network {
    /// For groups that stay on one host.
    pub fn loopback() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            interface: "lo".into(),
            report: "network: loopback (all ranks on one host)".into(),
        }
    }
}

/// What the first rank of a host publishes: its addresses with the ports where it answers probes, or what is wrong.
type Offer = Result<Published, String>;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Published {
    id: [u8; 16],
    candidates: Vec<Candidate>,
    /// One port per candidate; none where the choice is the user's.
    ports: Vec<u16>,
}

/// Per host and candidate: bits per second, 0 for "reached, not measured", `None` for "not reached".
type Findings = Vec<Vec<Option<u64>>>;

/// Chooses this host's address for the group's links. All members call it; it needs two rounds of `exchange`. Where
/// every host has only one address, there is nothing to choose and nothing is measured.
pub fn choose_network(group: &Group, exchange: &mut dyn Exchange, settings: &Settings) -> Result<Network, CommError> {
    choose(group, exchange, settings, false)
}

/// As [`choose_network`], but measures even where there is nothing to choose.
pub fn measure_network(group: &Group, exchange: &mut dyn Exchange, settings: &Settings) -> Result<Network, CommError> {
    choose(group, exchange, settings, true)
}

fn choose(group: &Group, exchange: &mut dyn Exchange, settings: &Settings, always: bool) -> Result<Network, CommError> {
    let hosts = group.hosts();
    if hosts.len() == 1 {
        return Ok(Network::loopback());
    }
    let access = Access::from_settings(settings)?;
    let leader = hosts.iter().position(|ranks| ranks[0] == group.rank());
    let (offer, listeners) = match leader {
        Some(_) => prepare(settings),
        None => (Ok(Published::default()), Vec::new()),
    };
    let gates = match &offer {
        Ok(published) => listeners.into_iter().map(|l| probe::answer(l, &access, published.id)).collect(),
        Err(_) => Ok(Vec::new()),
    }?;
    let offers: Vec<Offer> = round(group, exchange, &offer)?;
    let offers = collect(group, &hosts, offers)?;
    let probing = always || offers.iter().any(|offer| offer.candidates.len() > 1);
    let findings = match leader {
        Some(own) if probing => explore(&access, &offers, own, always),
        _ => Findings::new(),
    };
    let all: Vec<Findings> = round(group, exchange, &findings)?;
    drop::<Vec<Gate>>(gates);
    let names: Vec<String> = hosts.iter().map(|ranks| group.members()[ranks[0]].host.clone()).collect();
    let findings: Vec<&Findings> = hosts.iter().map(|ranks| &all[ranks[0]]).collect();
    let candidates: Vec<&[Candidate]> = offers.iter().map(|offer| offer.candidates.as_slice()).collect();
    let chosen = decide(&names, &candidates, &findings)?;
    let own = hosts.iter().position(|ranks| ranks.contains(&group.rank())).unwrap_or(0);
    let wished = settings.interface.is_some();
    Ok(describe(candidates[own], chosen[own], wished, &words(&names, candidates[own], &findings, own)))
}

/// This host's offer and the listeners for probes.
fn prepare(settings: &Settings) -> (Offer, Vec<TcpListener>) {
    let attempt = || -> Result<(Published, Vec<TcpListener>), CommError> {
        let all = interface::candidates()?;
        let candidates = match &settings.interface {
            Some(wish) => vec![interface::select(&all, wish)?],
            None => all,
        };
        let mut offer = Published { id: fresh_id()?, ..Published::default() };
        let mut listeners = Vec::new();
        for candidate in candidates {
            // An address may be about to disappear; the others still count.
            let Ok((listener, address)) = Gate::bind(candidate.address) else { continue };
            offer.ports.push(address.port());
            offer.candidates.push(candidate);
            listeners.push(listener);
        }
        Ok((offer, listeners))
    };
    match attempt() {
        Ok((offer, listeners)) => (Ok(offer), listeners),
        Err(CommError::Invalid { problem }) => (Err(problem), Vec::new()),
        Err(error) => (Err(error.to_string()), Vec::new()),
    }
}

/// Tries all addresses of all other hosts at once, then measures those of the next host one after another.
fn explore(access: &Access, offers: &[Published], own: usize, always: bool) -> Findings {
    let next = (own + 1) % offers.len();
    let mut findings: Findings = thread::scope(|threads| {
        let attempts: Vec<Vec<_>> = offers
            .iter()
            .enumerate()
            .map(|(host, offer)| {
                let tries = offer.candidates.iter().zip(&offer.ports).filter(|_| host != own);
                tries
                    .map(|(candidate, &port)| {
                        let address = SocketAddr::new(candidate.address, port);
                        threads.spawn(move || probe::try_address(access, address, offer.id, false))
                    })
                    .collect()
            })
            .collect();
        attempts.into_iter().map(|host| host.into_iter().map(|t| t.join().unwrap_or(None)).collect()).collect()
    });
    let offer = &offers[next];
    if always || offer.candidates.len() > 1 {
        for (at, (candidate, &port)) in offer.candidates.iter().zip(&offer.ports).enumerate() {
            if findings[next][at].is_some() {
                let address = SocketAddr::new(candidate.address, port);
                findings[next][at] = probe::try_address(access, address, offer.id, true);
            }
        }
    }
    findings
}

/// For every host, the fastest candidate that all others reach.
fn decide(names: &[String], candidates: &[&[Candidate]], findings: &[&Findings]) -> Result<Vec<usize>, CommError> {
    let unmeasured = findings.iter().all(|of| of.is_empty());
    if unmeasured && candidates.iter().all(|candidates| candidates.len() == 1) {
        return Ok(vec![0; candidates.len()]);
    }
    let choose = |host: usize| {
        let speeds = speeds(candidates[host], findings, host);
        let places = 0..candidates[host].len();
        let reached = places.rev().filter(|&at| cut_off(names, findings, host, at).is_empty());
        reached.max_by_key(|&at| speeds[at]).ok_or_else(|| {
            let each = candidates[host].iter().enumerate().map(|(at, candidate)| {
                let missing = cut_off(names, findings, host, at).join(", ");
                format!("{} {} not from {missing}", candidate.interface, candidate.address)
            });
            let reason = format!("no address of it is reached by all other hosts: {}", join(each, ", "));
            CommError::Unavailable { what: format!("a network to host {}", names[host]), reason }
        })
    };
    (0..candidates.len()).map(choose).collect()
}

/// The hosts that do not reach candidate `at` of `host`.
fn cut_off<'a>(names: &'a [String], findings: &[&Findings], host: usize, at: usize) -> Vec<&'a str> {
    let others = (0..findings.len()).filter(|&other| other != host);
    others.filter(|&other| finding(findings[other], host, at).is_none()).map(|other| names[other].as_str()).collect()
}

fn finding(findings: &Findings, host: usize, at: usize) -> Option<u64> {
    findings.get(host)?.get(at).copied().flatten()
}

/// The measured speed of every candidate of `host`; 0 where nobody measured.
fn speeds(candidates: &[Candidate], findings: &[&Findings], host: usize) -> Vec<u64> {
    let best = |at| findings.iter().filter_map(|of| finding(of, host, at)).max().unwrap_or(0);
    (0..candidates.len()).map(best).collect()
}

/// What was found about every candidate of `host`, for people.
fn words(names: &[String], candidates: &[Candidate], findings: &[&Findings], host: usize) -> Vec<String> {
    let speeds = speeds(candidates, findings, host);
    let word = |at: usize| {
        let measured = (speeds[at] > 0).then(|| format!("{:.1} Gbit/s", speeds[at] as f64 / 1e9));
        let missing = cut_off(names, findings, host, at).join(", ");
        let missing = (!missing.is_empty()).then(|| format!("not reached from {missing}"));
        join(measured.into_iter().chain(missing), " but ")
    };
    (0..candidates.len()).map(word).collect()
}

fn describe(candidates: &[Candidate], chosen: usize, wished: bool, words: &[String]) -> Network {
    let Candidate { interface, address } = candidates[chosen].clone();
    let measured = match words[chosen].as_str() {
        "" => String::new(),
        words => format!(", {words} measured"),
    };
    let why = match (wished, candidates.len()) {
        (true, _) => format!("as asked for{measured}"),
        (false, 1) => format!("the only one{measured}"),
        (false, count) => {
            let others = (0..count).filter(|&at| at != chosen);
            let others = others.map(|at| format!("{} {}", candidates[at].interface, words[at]));
            format!("{} measured; {}", words[chosen], join(others, ", "))
        }
    };
    Network { report: format!("network: {interface} {address} ({why})"), address, interface }
}

fn join(parts: impl Iterator<Item = String>, between: &str) -> String {
    parts.collect::<Vec<_>>().join(between)
}

/// The offers by host; if one is missing, an error that is the same everywhere.
fn collect(group: &Group, hosts: &[Vec<usize>], offers: Vec<Offer>) -> Result<Vec<Published>, CommError> {
    let mut offers: Vec<Option<Offer>> = offers.into_iter().map(Some).collect();
    hosts
        .iter()
        .map(|ranks| {
            let who = group.describe(ranks[0]);
            match offers[ranks[0]].take() {
                Some(Ok(offer)) if !offer.candidates.is_empty() && offer.ports.len() == offer.candidates.len() => {
                    Ok(offer)
                }
                Some(Err(problem)) => Err(CommError::Invalid { problem: format!("{who}: {problem}") }),
                _ => Err(CommError::Unavailable {
                    what: format!("a network to {who}"),
                    reason: "its host has no interface that is up with an address for other hosts".into(),
                }),
            }
        })
        .collect()
}

/// One round of `exchange` with values instead of bytes.
fn round<T: Serialize + DeserializeOwned>(
    group: &Group,
    exchange: &mut dyn Exchange,
    mine: &T,
) -> Result<Vec<T>, CommError> {
    let bad = |rank, error: postcard::Error| CommError::Refused {
        peer: group.describe(rank),
        reason: format!("what it says about its network cannot be read ({error}); do all ranks run the same version?"),
    };
    let bytes = postcard::to_stdvec(mine).map_err(|error| bad(group.rank(), error))?;
    let all = exchange.all(&bytes)?;
    let values: Vec<T> = all
        .iter()
        .enumerate()
        .map(|(rank, bytes)| postcard::from_bytes(bytes).map_err(|error| bad(rank, error)))
        .collect::<Result<_, _>>()?;
    if values.len() != group.size() {
        let problem = format!("{} answers in a group of {}", values.len(), group.size());
        return Err(CommError::Invalid { problem });
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(addresses: &[(&str, &str)]) -> Vec<Candidate> {
        let candidate =
            |&(name, address): &(&str, &str)| Candidate { interface: name.into(), address: address.parse().unwrap() };
        addresses.iter().map(candidate).collect()
    }

    fn names() -> Vec<String> {
        ["a", "b", "c"].map(String::from).into()
    }

    #[test]
    fn the_fastest_address_that_all_reach_wins() {
        let a = host(&[("eth0", "10.0.1.1"), ("eth1", "10.0.2.1"), ("eth2", "10.0.3.1")]);
        let one = host(&[("eth0", "10.0.1.2")]);
        let candidates: Vec<&[Candidate]> = vec![&a, &one, &one];
        let from_a = vec![vec![], vec![Some(0)], vec![Some(0)]];
        let from_b = vec![vec![Some(0), Some(0), None], vec![], vec![Some(0)]];
        let from_c = vec![vec![Some(100_000_000), Some(9_400_000_000), Some(99_000_000_000)], vec![Some(0)], vec![]];
        let findings = [&from_a, &from_b, &from_c];
        let chosen = decide(&names(), &candidates, &findings).unwrap();
        assert_eq!(chosen, [1, 0, 0]);
        let network = describe(&a, 1, false, &words(&names(), &a, &findings, 0));
        let expected = "network: eth1 10.0.2.1 \
                        (9.4 Gbit/s measured; eth0 0.1 Gbit/s, eth2 99.0 Gbit/s but not reached from b)";
        assert_eq!(network.report, expected);
        assert_eq!(network.interface, "eth1");
    }

    #[test]
    fn a_host_that_somebody_cannot_reach_is_named() {
        let a = host(&[("eth0", "10.0.1.1"), ("eth1", "10.0.2.1")]);
        let one = host(&[("eth0", "10.0.1.2")]);
        let candidates: Vec<&[Candidate]> = vec![&a, &one, &one];
        let from_a = vec![vec![], vec![Some(0)], vec![Some(0)]];
        let from_b = vec![vec![Some(0), None], vec![], vec![Some(0)]];
        let from_c = vec![vec![None, Some(1)], vec![Some(0)], vec![]];
        let text = decide(&names(), &candidates, &[&from_a, &from_b, &from_c]).unwrap_err().to_string();
        assert!(text.contains("host a") && text.contains("eth0 10.0.1.1 not from c"), "{text}");
        assert!(text.contains("eth1 10.0.2.1 not from b"), "{text}");
    }

    #[test]
    fn nothing_is_measured_where_nothing_can_be_chosen() {
        let one = host(&[("eth0", "10.0.1.2")]);
        let candidates: Vec<&[Candidate]> = vec![&one, &one];
        let none = Findings::new();
        assert_eq!(decide(&names()[..2], &candidates, &[&none, &none]).unwrap(), [0, 0]);
        assert_eq!(describe(&one, 0, false, &[String::new()]).report, "network: eth0 10.0.1.2 (the only one)");
        assert_eq!(describe(&one, 0, true, &[String::new()]).report, "network: eth0 10.0.1.2 (as asked for)");
        let measured = describe(&one, 0, true, &["9.4 Gbit/s".into()]).report;
        assert_eq!(measured, "network: eth0 10.0.1.2 (as asked for, 9.4 Gbit/s measured)");
    }
}
