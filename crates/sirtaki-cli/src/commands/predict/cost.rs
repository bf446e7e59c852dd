//! What an all-reduce costs by each algorithm. Pure.
//!
//! The usual model: a message costs a latency plus the time the link needs for its bytes; the algorithms' own modules
//! say how many of each there are. Adding up is not counted: it happens while bytes arrive and is faster than any link
//! the formulas are meant for. A rank that depends on what it is receiving cannot send it on before all of it has
//! arrived, so latencies add up over steps and windows.

use sirtaki_comm::collective::{Algorithm, Topology, all_reduce, choose};

/// The share of a link's nominal bandwidth that headers leave for data: Ethernet, IP and TCP take 90 of 1538 bytes.
pub(super) const PAYLOAD: f64 = 1448.0 / 1538.0;
/// Bytes per second that one process sends and receives through sockets, however fast the link is.
const PROCESS: f64 = 3.5e9;

/// Time as a straight line over bytes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct LinearCost {
    /// For any number of bytes.
    pub fixed: f64,
    /// For each byte.
    pub per_byte: f64,
}

impl LinearCost {
    pub(super) fn at(self, bytes: f64) -> f64 {
        self.fixed + self.per_byte * bytes
    }
}

/// Where the workers are, and the links between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Network {
    /// Seconds that a small message takes from a process to one of another host.
    pub latency: f64,
    /// Bytes per second out of a host, headers included, and as many into it at the same time.
    pub bandwidth: f64,
    /// Workers on a host.
    pub per_host: usize,
    /// An all-reduce inside a host.
    pub local: LinearCost,
    /// The one algorithm to use, if it is not chosen by size.
    pub forced: Option<Algorithm>,
}

/// One all-reduce.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    pub algorithm: Algorithm,
    pub seconds: f64,
}

impl Network {
    /// Hosts that this many workers need.
    pub(super) fn hosts(&self, workers: usize) -> usize {
        workers.div_ceil(self.per_host)
    }

    /// An all-reduce of `bytes` on each of `workers`.
    pub(super) fn all_reduce(&self, bytes: usize, workers: usize) -> Cost {
        let (hosts, size) = (self.hosts(workers), bytes as f64);
        let topology = match (hosts, self.per_host) {
            (1, _) => Topology::Shared,
            (_, 1) => Topology::Network,
            _ => Topology::Layered,
        };
        let algorithm = match self.forced {
            // A forced algorithm applies to the network; a single host has shared memory.
            Some(forced) if hosts > 1 => forced,
            _ => choose(bytes, workers, topology),
        };
        let seconds = match algorithm {
            _ if workers <= 1 => 0.0,
            Algorithm::Flat => self.local.at(size),
            Algorithm::Layered => self.layered(bytes, hosts),
            Algorithm::Ring => self.ring(size, workers, self.bandwidth),
            Algorithm::Direct => {
                let (k, n) = (self.per_host as f64, workers as f64);
                2.0 * self.step(k * (n - k).max(1.0) * size / n, self.bandwidth)
            }
            // Two for each step: up and down. At most one worker of a host communicates with other hosts at a time.
            Algorithm::Tree => 2.0 * steps(workers) * self.step(size, self.bandwidth),
            Algorithm::Doubling | Algorithm::Halving => self.pairs(algorithm, size, workers),
        };
        Cost { algorithm, seconds }
    }

    /// The reduction of a few bytes that lets workers in a known order go on together.
    pub(super) fn vote(&self, workers: usize) -> f64 {
        match self.hosts(workers) {
            _ if workers <= 1 => 0.0,
            1 => self.local.fixed,
            hosts => {
                self.pairs(Algorithm::Doubling, 16.0, hosts) + if self.per_host > 1 { self.local.fixed } else { 0.0 }
            }
        }
    }

    /// A message of this many bytes over a link of this bandwidth.
    fn step(&self, bytes: f64, bandwidth: f64) -> f64 {
        self.latency + bytes / (bandwidth * PAYLOAD).min(PROCESS)
    }

    /// Windows of a piece per rank; in each, `2(n - 1)` steps.
    fn ring(&self, bytes: f64, workers: usize, bandwidth: f64) -> f64 {
        let n = workers as f64;
        let windows = (bytes / (n * all_reduce::PIECE as f64)).ceil().max(1.0);
        let messages = windows * 2.0 * (n - 1.0);
        messages * self.step(bytes / n / windows, bandwidth)
    }

    /// Exchanges with partners at distances of powers of two: of everything, or of ever smaller parts and back.
    fn pairs(&self, algorithm: Algorithm, bytes: f64, workers: usize) -> f64 {
        let whole = 1 << workers.ilog2();
        // All workers of a host send through its link at once.
        let bandwidth = self.bandwidth / self.per_host as f64;
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2)).take_while(|&d| d < whole);
        let seconds: f64 = distances
            .map(|distance| match algorithm {
                Algorithm::Halving => 2.0 * self.step(bytes * distance as f64 / whole as f64, bandwidth),
                _ => self.step(bytes, bandwidth),
            })
            .sum();
        // Workers beyond the power of two first pass everything to a partner and in the end get everything back.
        seconds + if workers == whole { 0.0 } else { 2.0 * self.step(bytes, bandwidth) }
    }

    /// Reduced inside every host, each worker's share across hosts, all shares collected inside again.
    fn layered(&self, bytes: usize, hosts: usize) -> f64 {
        let share = bytes.div_ceil(self.per_host);
        let each = Network { bandwidth: self.bandwidth / self.per_host as f64, per_host: 1, forced: None, ..*self };
        self.local.at(bytes as f64) + each.all_reduce(share, hosts).seconds
    }
}

/// The steps that reach this many workers by doubling.
fn steps(workers: usize) -> f64 {
    f64::from(workers.next_power_of_two().ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 ms and 1 MB/s of data.
    fn network(per_host: usize, forced: Option<Algorithm>) -> Network {
        let local = LinearCost { fixed: 0.5, per_byte: 1e-6 };
        Network { latency: 1e-3, bandwidth: 1e6 / PAYLOAD, per_host, local, forced }
    }

    fn seconds(algorithm: Algorithm, bytes: usize, workers: usize) -> f64 {
        network(1, Some(algorithm)).all_reduce(bytes, workers).seconds
    }

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9, "{one} and {other}");
    }

    #[test]
    fn one_worker_has_nobody_to_talk_to() {
        near(network(1, None).all_reduce(1 << 20, 1).seconds, 0.0);
        near(network(1, None).vote(1), 0.0);
    }

    #[test]
    fn costs_are_those_of_the_algorithms() {
        // 6 steps of 1 ms and of 10 kB.
        near(seconds(Algorithm::Ring, 40_000, 4), 6.0 * (0.001 + 0.01));
        // 8 MiB are 8 windows of 4 pieces of 256 KiB.
        near(seconds(Algorithm::Ring, 8 << 20, 4), 8.0 * 6.0 * (0.001 + 0.262_144));
        near(seconds(Algorithm::Doubling, 1000, 4), 2.0 * 0.002);
        near(seconds(Algorithm::Doubling, 1000, 5), 4.0 * 0.002);
        // Halves, quarters and back: 3/4 of everything each way.
        near(seconds(Algorithm::Halving, 40_000, 4), 4.0 * 0.001 + 2.0 * 0.03);
        near(seconds(Algorithm::Tree, 1000, 4), 4.0 * 0.002);
        near(seconds(Algorithm::Tree, 1000, 5), 6.0 * 0.002);
        near(seconds(Algorithm::Direct, 40_000, 4), 2.0 * (0.001 + 0.03));
    }

    #[test]
    fn the_algorithm_is_the_one_the_communicator_would_choose() {
        let chosen = |bytes, workers, per_host| network(per_host, None).all_reduce(bytes, workers).algorithm;
        assert_eq!(chosen(1000, 4, 1), Algorithm::Doubling);
        assert_eq!(chosen(100_000, 4, 1), Algorithm::Halving);
        assert_eq!(chosen(10 << 20, 4, 1), Algorithm::Ring);
        assert_eq!(chosen(1000, 4, 4), Algorithm::Flat);
        assert_eq!(chosen(1000, 8, 4), Algorithm::Layered);
        // A single host has shared memory, whatever is forced between hosts.
        assert_eq!(network(4, Some(Algorithm::Ring)).all_reduce(1000, 4).algorithm, Algorithm::Flat);
    }

    #[test]
    fn workers_of_a_host_share_its_link() {
        // Inside: 0.5 s and 1 µs a byte. Across 2 hosts: each worker its half, by a ring over half the link.
        let expected = 0.5 + 0.2 + 2.0 * (0.001 + 0.05 / 0.5);
        near(network(2, None).all_reduce(200_000, 4).seconds, expected);
        // Around a ring only one of them sends to another host.
        near(network(2, Some(Algorithm::Ring)).all_reduce(40_000, 4).seconds, 6.0 * 0.011);
        near(network(2, None).vote(8), 0.5 + 2.0 * (0.001 + 32e-6));
        near(network(2, None).vote(2), 0.5);
    }

    #[test]
    fn no_link_is_faster_than_a_process() {
        let fast = Network { bandwidth: 1e12, latency: 0.0, ..network(1, Some(Algorithm::Tree)) };
        near(fast.all_reduce(3_500_000_000, 2).seconds, 2.0);
    }
}
