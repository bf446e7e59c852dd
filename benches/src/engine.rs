//! The measurements behind `cargo xtask bench engine`: steps compared with other libraries, and what the engine costs
//! by itself.

use std::{thread::sleep, time::Duration};

use serde::{Deserialize, Serialize};
use sirtaki_tests::scale;

use crate::{
    BenchError,
    comm::{Plan, Row, Table, measure},
    goals::Setting,
    peer::median,
    report::{Verdict, time},
    resnet,
    start::{Place, Starter, horovod_name},
};

/// How long a 4-byte tensor may take between two ranks, in microseconds.
const SMALL: f64 = 150.0;
/// How much longer a step may take because of the records.
const RECORDS: f64 = 1.01;
/// How much longer a step may take because of the records, a timeline and a profile.
const TELEMETRY: f64 = 1.02;
/// Steps of each kind per round when the records are measured.
const PAIRS: usize = 10;
/// How often the engines are started for that: where their memory happens to lie makes as much of a difference as the
/// records.
const STARTS: usize = 3;
/// How long an idle engine is watched.
const IDLE: Duration = Duration::from_secs(5);
/// Percentage of a core that an idle rank may use: too little to be distinguished from nothing.
const IDLE_PERCENT: f64 = 0.1;
/// Steps of every number of ranks per round.
const STEPS: usize = 8;

/// Bytes of a step.
pub fn step_bytes() -> usize {
    resnet::tensors().iter().sum::<usize>() * size_of::<f32>()
}

/// A step of ResNet-50's tensors in an order that differs from rank to rank, and one tensor of four bytes: beside one
/// plain all-reduce of the same bytes, PyTorch's Gloo, and Horovod where it is installed.
pub fn steps(
    plan: &Plan,
    starter: &mut Starter,
    say: &dyn Fn(&str),
    show: &dyn Fn(&Setting, &Row),
) -> Result<Vec<Table>, BenchError> {
    let mut tables = Vec::new();
    for &ranks in &plan.ranks {
        say(&format!("starting {ranks} ranks of every library"));
        let place = Place::here(ranks);
        let mut peers = vec![starter.sirtaki("engine", &place)?, starter.sirtaki("arena", &place)?];
        peers.extend(starter.gloo_steps("works", &place)?);
        peers.extend(starter.gloo_steps("buckets", &place)?);
        let mut absent = Vec::new();
        for carrier in ["gloo", "mpi"] {
            match starter.horovod(carrier, ranks)? {
                Some(peer) => peers.push(peer),
                None => absent.push(horovod_name(carrier).to_owned()),
            }
        }
        tables.push(measure(plan, Setting::Engine(ranks), &mut peers, &absent, show)?);
    }
    Ok(tables)
}

/// Whether one small tensor between two ranks is fast enough, where that was measured.
pub fn small(tables: &[Table]) -> Option<Verdict> {
    let table = tables.iter().find(|table| table.setting == Setting::Engine(2))?;
    let micros = table.rows.iter().find(|row| row.bytes == 4)?.columns.first()?.micros;
    let text = format!("{}, 4 B: {} from submit to done, to be at most {}", table.setting, time(micros), time(SMALL));
    Some(Verdict { reached: micros <= SMALL, text })
}

/// What flight record, late arrivals and counting cost, which are always on.
pub fn records(rounds: usize, ranks: usize, starter: &mut Starter) -> Result<Verdict, BenchError> {
    turns(rounds, ranks, starter, ("records", RECORDS))
}

/// What they cost together with a timeline and a profile.
pub fn telemetry(rounds: usize, ranks: usize, starter: &mut Starter) -> Result<Verdict, BenchError> {
    turns(rounds, ranks, starter, ("telemetry", TELEMETRY))
}

/// Two engines in the same processes take turns, step by step: one in this mode, one that records nothing. What is done
/// besides the steps falls into the turns of both, so its processor time is added to those of the first.
fn turns(rounds: usize, ranks: usize, starter: &mut Starter, (mode, most): (&str, f64)) -> Result<Verdict, BenchError> {
    let (mut pairs, mut beside) = (Vec::new(), Duration::ZERO);
    for _ in 0..STARTS {
        let mut peer = starter.sirtaki(mode, &Place::here(ranks))?;
        for _ in 0..rounds.div_ceil(STARTS) {
            let times = peer.measure(step_bytes(), 2 * PAIRS)?;
            pairs.extend(times.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        }
        beside += peer.time_beside()?;
    }
    let middle = |value: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(value).collect::<Vec<_>>());
    let (with, without, ratio) = (middle(|pair| pair.0), middle(|pair| pair.1), middle(|pair| pair.0 / pair.1));
    let beside = beside.as_secs_f64() * 1e6 / pairs.len() as f64;
    let all = ratio + beside / without;
    let text = format!(
        "{ranks} ranks, step with {mode} {}, without {}: {ratio:.3}; with {} beside it {all:.3}, to be at most {most:.3} \
         (middle of {} pairs)",
        time(with),
        time(without),
        time(beside),
        pairs.len()
    );
    Ok(Verdict { reached: all <= most, text })
}

/// What an engine that has worked and has nothing to do uses.
pub fn idle(ranks: usize, starter: &mut Starter) -> Result<Verdict, BenchError> {
    let mut peer = starter.sirtaki("engine", &Place::here(ranks))?;
    peer.measure(step_bytes(), 5)?;
    peer.wake();
    let before = peer.processor_time()?;
    sleep(IDLE);
    let used = (peer.processor_time()? - before) / ranks as u32;
    let percent = used.as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    let text = format!(
        "{ranks} ranks, idle: {} of processor time per rank in {} s, {percent:.3} % of a core, to be at most {IDLE_PERCENT} %",
        time(used.as_secs_f64() * 1e6),
        IDLE.as_secs()
    );
    Ok(Verdict { reached: percent <= IDLE_PERCENT, text })
}

/// What one step costs, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Cost {
    /// From its beginning to its end.
    pub wall: f64,
    /// Processor time of all ranks together.
    pub cpu: f64,
}

/// A step of 1,000 tensors among some number of ranks, as threads.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// How many ranks.
    pub ranks: usize,
    /// A step that is agreed on.
    pub agreed: Cost,
    /// A step whose order is known.
    pub adopted: Cost,
}

/// Measures every number of ranks in every round.
pub fn scales(rounds: usize, ranks: &[usize], starter: &Starter) -> Result<Vec<Scale>, BenchError> {
    let mut costs = vec![(Vec::new(), Vec::new()); ranks.len()];
    for _ in 0..rounds {
        for ((agreed, adopted), &ranks) in costs.iter_mut().zip(ranks) {
            agreed.push(starter.scale(ranks, "agreed", STEPS)?);
            adopted.push(starter.scale(ranks, "adopted", STEPS)?);
        }
    }
    let middle = |costs: &[Cost]| {
        let of = |value: fn(&Cost) -> f64| median(&costs.iter().map(value).collect::<Vec<_>>());
        Cost { wall: of(|cost| cost.wall), cpu: of(|cost| cost.cpu) }
    };
    let scale = |((agreed, adopted), &ranks): (&(Vec<Cost>, Vec<Cost>), &usize)| Scale {
        ranks,
        agreed: middle(agreed),
        adopted: middle(adopted),
    };
    Ok(costs.iter().zip(ranks).map(scale).collect())
}

/// Whether the last costs at most as much per rank as the first.
pub fn linear(scales: &[Scale]) -> Vec<Verdict> {
    let (Some(first), Some(last)) = (scales.first(), scales.last()) else { return Vec::new() };
    let verdict = |name: &str, cost: fn(&Scale) -> f64| {
        let ratio = |scale: &Scale| cost(scale) / scale.ranks as f64;
        let growth = ratio(last) / ratio(first);
        let (few, many, tensors) = (first.ranks, last.ranks, scale::TENSORS);
        let text =
            format!("{tensors} tensors {name}, per rank, {many} ranks over {few}: {growth:.2}, to be at most 1.00");
        Verdict { reached: growth < 1.005, text }
    };
    vec![verdict("agreed on", |scale| scale.agreed.wall), verdict("in a known order", |scale| scale.adopted.wall)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_the_number_of_ranks_is_seen() {
        let cost = |wall| Cost { wall, cpu: 1.0 };
        let scale = |ranks, agreed, adopted| Scale { ranks, agreed: cost(agreed), adopted: cost(adopted) };
        let verdicts = linear(&[scale(8, 8.0, 8.0), scale(64, 64.0, 70.0)]);
        let reached: Vec<bool> = verdicts.iter().map(|verdict| verdict.reached).collect();
        assert_eq!(reached, [true, false]);
    }
}
