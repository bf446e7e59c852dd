//! A profile: what all ranks have counted, added up and compared. Pure, apart from the functions that measure how fast
//! this machine copies and that deliver a profile.

use std::{hint::black_box, io, path::Path, time::Instant};

use serde_json::{Value, json};
use sirtaki_comm::{Rank, kernel};

use super::{
    counts::{CollectiveKind, Counts, Phase, SIZES, Whole},
    lateness::{Lateness, class_from},
    straggler::{Cause, Straggler},
};
use crate::{Profiling, Warn, files};

/// Bytes that are copied to measure that speed.
const COPIED: usize = 32 << 20;

/// What is known of all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The host of every rank.
    pub hosts: Vec<String>,
    /// What every rank has counted, where that is known.
    pub counts: Vec<Option<Counts>>,
    /// Bytes per second that one process of rank 0's machine copies, if that was measured.
    pub copies: Option<f64>,
    /// How tensors of GPUs travelled and why, in words, if there were any.
    pub device: Option<String>,
}

/// A number of all ranks, compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compared {
    /// The sum over all ranks.
    pub total: f64,
    /// The mean over the ranks that are known.
    pub mean: f64,
    /// The largest.
    pub most: f64,
    /// The rank that has it.
    pub rank: Rank,
}

/// One kind of operation, on all ranks together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Which one.
    pub kind: CollectiveKind,
    /// Tensors.
    pub tensors: u64,
    /// Their bytes.
    pub tensor_bytes: u64,
    /// Collectives that carried them.
    pub collectives: u64,
    /// Their bytes.
    pub collective_bytes: u64,
    /// Seconds in them.
    pub time: Compared,
    /// Seconds of copies around them.
    pub copying: f64,
    /// Bytes per second that every rank's connection carried, as counted by nccl-tests; includes waits for late ranks.
    pub bus: Option<f64>,
}

impl Profile {
    /// The profile of ranks on these hosts.
    pub fn new(hosts: Vec<String>, counts: Vec<Option<Counts>>) -> Self {
        Self { hosts, counts, copies: None, device: None }
    }

    /// The same, with this machine's copying speed for comparison.
    #[must_use]
    pub fn beside_copies(self) -> Self {
        let from = vec![1_u8; COPIED];
        let mut into = vec![0_u8; COPIED];
        let mut seconds = || {
            let start = Instant::now();
            kernel::copy(black_box(&mut into), black_box(&from));
            start.elapsed().as_secs_f64()
        };
        let best = (0..4).map(|_| seconds()).fold(f64::INFINITY, f64::min);
        Self { copies: Some(COPIED as f64 / best), ..self }
    }

    /// Ranks that are known, and what they have counted.
    pub fn known(&self) -> impl Iterator<Item = (Rank, &Counts)> {
        self.counts.iter().enumerate().filter_map(|(rank, counts)| Some((rank, counts.as_ref()?)))
    }

    /// Whether any rank has done anything.
    pub fn is_empty(&self) -> bool {
        self.known().all(|(_, counts)| counts.is_empty())
    }

    /// A number, compared over all ranks.
    pub fn compare(&self, number: impl Fn(&Counts) -> f64) -> Compared {
        let mut compared = Compared { total: 0.0, mean: 0.0, most: 0.0, rank: 0 };
        let mut known = 0;
        for (rank, counts) in self.known() {
            let value = number(counts);
            compared.total += value;
            known += 1;
            if value > compared.most {
                (compared.most, compared.rank) = (value, rank);
            }
        }
        compared.mean = compared.total / f64::from(known.max(1));
        compared
    }

    /// The operations that were used.
    pub fn lines(&self) -> Vec<Line> {
        let sum = |number: &dyn Fn(&Counts) -> u64| self.known().map(|(_, counts)| number(counts)).sum::<u64>();
        let line = |&kind: &CollectiveKind| {
            let time = self.compare(|counts| seconds(counts.nanos(kind)));
            let collective_bytes = sum(&|counts| counts.collective_bytes(kind));
            let bus = collective_bytes as f64 * bus_factor(kind, self.counts.len()) / time.total;
            Line {
                kind,
                tensors: sum(&|counts| counts.tensors(kind)),
                tensor_bytes: sum(&|counts| counts.tensor_bytes(kind)),
                collectives: sum(&|counts| counts.collectives(kind)),
                collective_bytes,
                time,
                copying: seconds(sum(&|counts| counts.copying(kind))),
                bus: (bus.is_finite() && bus > 0.0).then_some(bus),
            }
        };
        CollectiveKind::ALL.iter().map(line).filter(|line| line.collectives > 0).collect()
    }

    /// Tensors, collectives and seconds of a kind by size: the smallest bytes of a class and what is in it.
    pub fn sizes(&self, kind: CollectiveKind) -> Vec<(u64, u64, u64, f64)> {
        let class = |class: usize| {
            let of = |counts: &Counts| counts.of_size(kind, class);
            let sum =
                self.known().map(|(_, counts)| of(counts)).fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
            (smallest(class), sum.0, sum.1, seconds(sum.2))
        };
        (0..SIZES).map(class).filter(|(_, tensors, collectives, _)| tensors + collectives > 0).collect()
    }

    /// The whole profile as JSON.
    pub fn to_json(&self) -> String {
        let lateness = self.lateness();
        let straggler = self.find_straggler(&lateness);
        let rank = |rank: Rank| {
            let mut one = self.rank_as_json(rank);
            if let Some(lateness) = &lateness[rank] {
                let network = straggler.as_ref().filter(|one| one.rank == rank && one.cause == Cause::Network);
                one["lateness"] = lateness_as_json(lateness, network.map_or(0.0, |one| one.seconds));
            }
            one
        };
        let ranks: Vec<Value> = (0..self.counts.len()).map(rank).collect();
        let operations: Vec<Value> = self.lines().iter().map(|line| self.line_as_json(line)).collect();
        let value = json!({
            "format": "sirtaki profile, version 1",
            "ranks": ranks,
            "operations": operations,
            "straggler": straggler.as_ref().map(straggler_as_json),
            "copied_bytes_per_second": self.copies,
            "gpu_path": self.device,
        });
        format!("{value:#}\n")
    }

    fn rank_as_json(&self, rank: Rank) -> Value {
        let Some(counts) = &self.counts[rank] else {
            return json!({ "rank": rank, "host": self.hosts[rank], "known": false });
        };
        let used = CollectiveKind::ALL.into_iter().filter(|&kind| counts.collectives(kind) > 0);
        let operations: Vec<Value> = used
            .map(|kind| {
                json!({
                    "operation": kind.name(),
                    "tensors": counts.tensors(kind),
                    "tensor_bytes": counts.tensor_bytes(kind),
                    "collectives": counts.collectives(kind),
                    "collective_bytes": counts.collective_bytes(kind),
                    "seconds": seconds(counts.nanos(kind)),
                    "copy_seconds": seconds(counts.copying(kind)),
                })
            })
            .collect();
        let phases = Phase::ALL.into_iter().filter(|&phase| counts.phase(phase).0 > 0);
        let phases: Vec<Value> = phases
            .map(|phase| json!({ "phase": phase.name(), "times": counts.phase(phase).0, "seconds": seconds(counts.phase(phase).1) }))
            .collect();
        json!({
            "rank": rank,
            "host": self.hosts[rank],
            "known": true,
            "elapsed_seconds": seconds(counts.whole(Whole::Elapsed)),
            "cpu_seconds": seconds(counts.whole(Whole::Cpu)),
            "communication_seconds": communication(counts),
            "hidden_seconds": seconds(counts.whole(Whole::Hidden)),
            "exposed_seconds": seconds(counts.whole(Whole::Exposed)),
            "waited_seconds": seconds(counts.whole(Whole::Waited)),
            "largest_memory_bytes": counts.whole(Whole::Memory),
            "gpu": self.gpu_as_json(rank),
            "operations": operations,
            "phases": phases,
            "servers": self.staleness_as_json(rank),
        })
    }

    fn line_as_json(&self, line: &Line) -> Value {
        let size = |(bytes, tensors, collectives, seconds): (u64, u64, u64, f64)| json!({ "from_bytes": bytes, "tensors": tensors, "collectives": collectives, "seconds": seconds });
        json!({
            "operation": line.kind.name(),
            "tensors": line.tensors,
            "tensor_bytes": line.tensor_bytes,
            "collectives": line.collectives,
            "collective_bytes": line.collective_bytes,
            "seconds": line.time.total,
            "longest": { "rank": line.time.rank, "seconds": line.time.most },
            "copy_seconds": line.copying,
            "bus_bytes_per_second": line.bus,
            "on_gpus": self.device_line_as_json(line.kind),
            "sizes": self.sizes(line.kind).into_iter().map(size).collect::<Vec<_>>(),
        })
    }
}

fn lateness_as_json(lateness: &Lateness, network: f64) -> Value {
    let classes = lateness.classes.iter().enumerate().filter(|(_, events)| **events > 0);
    let distribution: Vec<Value> =
        classes.map(|(class, events)| json!({ "from_seconds": class_from(class), "events": events })).collect();
    let mut by_phase = json!({ "network": network, "unknown": seconds(lateness.unknown) });
    for phase in Phase::ALL {
        by_phase[phase.name()] = json!(seconds(lateness.by[phase as usize]));
    }
    json!({
        "events": lateness.events,
        "late_events": lateness.late,
        "seconds": seconds(lateness.total),
        "mean_seconds": seconds(lateness.total) / lateness.events.max(1) as f64,
        "most_seconds": seconds(lateness.most),
        "distribution": distribution,
        "by_phase": by_phase,
        "round_trip": lateness.packets.map(|packets| json!({
            "least_seconds": seconds(packets.least),
            "most_seconds": seconds(packets.most),
            "to_rank": packets.to,
        })),
    })
}

fn straggler_as_json(straggler: &Straggler) -> Value {
    json!({
        "rank": straggler.rank,
        "host": straggler.host,
        "phase": straggler.cause.name(),
        "seconds": straggler.seconds,
        "share": straggler.share,
        "sentence": straggler.to_string(),
    })
}

/// Delivers a profile as requested.
pub(super) fn tell(profile: &Profile, wanted: &Profiling, warn: &Warn) {
    warn(&profile.to_string());
    if let Profiling::File(path) = wanted
        && let Err(error) = files::write(path, profile.to_json().as_bytes())
    {
        warn(&no_profile(path, &error));
    }
}

/// The warning that there is no profile.
pub(super) fn no_profile(path: &Path, error: &io::Error) -> String {
    format!("the profile cannot be written to {}: {error}; hint: name another file", path.display())
}

/// The smallest number of bytes in a size class.
fn smallest(class: usize) -> u64 {
    if class == 0 { 0 } else { 1 << (2 * (class - 1)) }
}

/// Seconds in collectives and in the copies around them.
pub(super) fn communication(counts: &Counts) -> f64 {
    CollectiveKind::ALL.iter().map(|&kind| seconds(counts.nanos(kind) + counts.copying(kind))).sum()
}

pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// How many bytes a rank's connection carries per byte of a collective, with the best algorithm.
pub(super) fn bus_factor(kind: CollectiveKind, ranks: usize) -> f64 {
    let others = (ranks.saturating_sub(1)) as f64 / ranks.max(1) as f64;
    match kind {
        CollectiveKind::AllReduce | CollectiveKind::Adasum => 2.0 * others,
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => others,
        CollectiveKind::Broadcast | CollectiveKind::Send | CollectiveKind::Receive if ranks > 1 => 1.0,
        _ => 0.0,
    }
}
