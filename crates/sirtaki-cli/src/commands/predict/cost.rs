//! What an all-reduce costs by each algorithm. Pure.
//!
//! The usual model: a message costs a latency plus the time the link needs for its bytes; the algorithms' own modules
//! say how many of each there are. Adding up is not counted: it happens while bytes arrive and is faster than any link
//! the formulas are meant for. A rank that depends on what it is receiving cannot send it on before all of it has
//! arrived, so latencies add up over steps and windows.

use sirtaki_comm::collective::{Algorithm, Topology, all_reduce, choose};

use super::topology::Spine;

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
    /// Links of a host with this bandwidth each, of which a stream uses one.
    pub rails: usize,
    /// What groups of hosts share, if not all links can be used at once.
    pub spine: Option<Spine>,
    /// Workers on a host.
    pub per_host: usize,
    /// An all-reduce inside a host.
    pub local: LinearCost,
    /// Seconds of a processor for each message, where a process has many at once; otherwise part of the latency.
    pub per_message: f64,
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
            Algorithm::Ring => self.ring(size, workers),
            Algorithm::Direct => self.direct(size, workers),
            Algorithm::Tree => self.tree(size, workers),
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
                self.each().pairs(Algorithm::Doubling, 16.0, hosts)
                    + if self.per_host > 1 { self.local.fixed } else { 0.0 }
            }
        }
    }

    /// A message of this many bytes over a link of this bandwidth.
    fn step(&self, bytes: f64, bandwidth: f64) -> f64 {
        self.latency + bytes / (bandwidth * PAYLOAD).min(PROCESS)
    }

    /// The bandwidth of one of so many streams of a host.
    fn stream(&self, streams: f64) -> f64 {
        self.bandwidth * (self.rails as f64 / streams).min(1.0)
    }

    /// What connects groups, if these workers are in several.
    fn crossed(&self, workers: usize) -> Option<Spine> {
        self.spine.filter(|spine| self.hosts(workers) > spine.hosts)
    }

    /// Bytes per second of data in and out of a process that has a link of its own.
    pub(super) fn payload(&self) -> f64 {
        (self.bandwidth * PAYLOAD).min(PROCESS)
    }

    /// Bytes per second of data and the latency of each worker, if all communicate with processes elsewhere.
    pub(super) fn outwards(&self, workers: usize) -> (f64, f64) {
        let k = self.per_host.min(workers) as f64;
        let (own, crossed) = (self.stream(k), self.crossed(workers));
        let shared = crossed.map_or(own, |spine| own.min(spine.bandwidth / (k * spine.hosts as f64)));
        ((shared * PAYLOAD).min(PROCESS), self.latency + crossed.map_or(0.0, |spine| spine.latency))
    }

    /// An all-gather around a ring of one worker of each host, which has `bytes` in the end.
    pub(super) fn gather_between_hosts(&self, bytes: usize, workers: usize) -> f64 {
        let hosts = self.hosts(workers);
        let (bandwidth, late) = self.around(hosts * self.per_host);
        let steps = hosts.saturating_sub(1) as f64;
        steps * self.step(bytes as f64 / hosts as f64, bandwidth) + if hosts > 1 { late } else { 0.0 }
    }

    /// The slowest link of a ring, and the latency that it has once around because of what connects groups.
    fn around(&self, workers: usize) -> (f64, f64) {
        match self.crossed(workers) {
            None => (self.bandwidth, 0.0),
            Some(spine) => {
                let groups = spine.groups(self.hosts(workers)) as f64;
                (self.bandwidth.min(spine.bandwidth), groups * spine.latency)
            }
        }
    }

    /// Windows of a piece per rank; in each, `2(n - 1)` steps, twice around.
    fn ring(&self, bytes: f64, workers: usize) -> f64 {
        let n = workers as f64;
        let (bandwidth, late) = self.around(workers);
        let windows = (bytes / (n * all_reduce::PIECE as f64)).ceil().max(1.0);
        windows * 2.0 * ((n - 1.0) * self.step(bytes / n / windows, bandwidth) + late)
    }

    /// All to all, twice.
    fn direct(&self, bytes: f64, workers: usize) -> f64 {
        let (k, n) = (self.per_host as f64, workers as f64);
        let host = self.step(k * (n - k).max(1.0) * bytes / n, self.bandwidth * (self.rails as f64).min(k));
        let group = self.crossed(workers).map_or(0.0, |spine| {
            let inside = k * spine.hosts as f64;
            spine.latency + self.latency + inside * (n - inside).max(0.0) * bytes / n / (spine.bandwidth * PAYLOAD)
        });
        2.0 * (host.max(group) + (n - 2.0).max(0.0) * self.per_message)
    }

    /// Two for each step: up and down. At most one worker of a host communicates with other hosts at a time, and one of a
    /// group with other groups.
    fn tree(&self, bytes: f64, workers: usize) -> f64 {
        let inside = self.step(bytes, self.bandwidth);
        let far = self.crossed(workers).map_or(0.0, |spine| {
            let across = self.step(bytes, self.bandwidth.min(spine.bandwidth)) + spine.latency;
            steps(spine.groups(self.hosts(workers))) * (across - inside)
        });
        2.0 * (steps(workers) * inside + far)
    }

    /// Exchanges with partners at distances of powers of two: of everything, or of ever smaller parts and back.
    fn pairs(&self, algorithm: Algorithm, bytes: f64, workers: usize) -> f64 {
        let whole = 1 << workers.ilog2();
        // All workers of a host send through its link at once.
        let (near, (far, late)) = (self.stream(self.per_host as f64), self.outwards(workers));
        let exchange = |distance: usize, bytes: f64| match self.crossed(workers) {
            Some(spine) if distance >= spine.hosts * self.per_host => late + bytes / far,
            _ => self.step(bytes, near),
        };
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2)).take_while(|&d| d < whole);
        let seconds: f64 = distances
            .map(|distance| match algorithm {
                Algorithm::Halving => 2.0 * exchange(distance, bytes * distance as f64 / whole as f64),
                _ => exchange(distance, bytes),
            })
            .sum();
        // Workers beyond the power of two first pass everything to a partner and in the end get everything back.
        seconds + if workers == whole { 0.0 } else { 2.0 * self.step(bytes, near) }
    }

    /// What one worker of each host has, if all of them communicate at once.
    fn each(&self) -> Network {
        let k = self.per_host as f64;
        let spine = self.spine.map(|spine| Spine { bandwidth: spine.bandwidth / k, ..spine });
        Network { bandwidth: self.stream(k), rails: 1, spine, per_host: 1, forced: None, ..*self }
    }

    /// Reduced inside every host, each worker's share across hosts, all shares collected inside again.
    fn layered(&self, bytes: usize, hosts: usize) -> f64 {
        let share = bytes.div_ceil(self.per_host);
        self.local.at(bytes as f64) + self.each().all_reduce(share, hosts).seconds
    }
}

/// The steps that reach this many workers by doubling.
fn steps(workers: usize) -> f64 {
    f64::from(workers.next_power_of_two().ilog2())
}

#[cfg(test)]
#[path = "cost_tests.rs"]
mod tests;
