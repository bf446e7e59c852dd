//! The comparison behind `cargo xtask bench comm`: all-reduce of `f32`, size by size, library after library, in many
//! rounds, so that all of them see the same conditions.

use sirtaki_tests::hosts::Hosts;

use crate::{
    BenchError, Peer,
    goals::{Goal, Setting, goal},
    peer::median,
    start::{Place, Starter},
};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Numbers of ranks over shared memory.
    pub ranks: Vec<usize>,
    /// Also over TCP, on loopback and between namespaces.
    pub tcp: bool,
    /// Bytes.
    pub sizes: Vec<usize>,
    /// Times that every library takes its turn.
    pub rounds: usize,
}

/// One library at one size.
#[derive(Debug, Clone)]
pub struct Column {
    /// The library.
    pub name: String,
    /// Microseconds: the median of all rounds.
    pub micros: f64,
    /// Its time divided by sirtaki's in the same round: the median of all rounds. Above one, sirtaki is faster.
    pub ratio: f64,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
}

impl Column {
    /// Whether the goal was reached; true where there is none.
    pub fn reached(&self) -> bool {
        self.goal.is_none_or(|goal| goal.is_reached(self.ratio))
    }
}

/// All libraries at one size. The first is sirtaki.
#[derive(Debug, Clone)]
pub struct Row {
    /// Bytes on every rank.
    pub bytes: usize,
    /// Per library.
    pub columns: Vec<Column>,
    /// Libraries that are not installed here.
    pub absent: Vec<String>,
}

/// One setting with all its sizes.
#[derive(Debug, Clone)]
pub struct Table {
    /// What it was.
    pub setting: Setting,
    /// Size by size.
    pub rows: Vec<Row>,
}

/// Runs everything. `show` gets every row as soon as it is known, `say` a message about what is going on.
pub fn run(
    plan: &Plan,
    starter: &mut Starter,
    say: &dyn Fn(&str),
    show: &dyn Fn(&Setting, &Row),
) -> Result<Vec<Table>, BenchError> {
    let mut tables = Vec::new();
    for &ranks in &plan.ranks {
        say(&format!("starting {ranks} ranks of every library"));
        let place = Place::here(ranks);
        let mut peers = vec![
            starter.sirtaki("arena", &place)?,
            starter.sirtaki("shared", &place)?,
            starter.open_mpi(ranks)?,
            starter.limit("add", ranks)?,
            starter.limit("copy", ranks)?,
        ];
        peers.extend(starter.gloo(&place)?);
        tables.push(measure(plan, Setting::Shared(ranks), &mut peers, &[], show)?);
    }
    if plan.tcp {
        let mut peers = vec![starter.sirtaki("tcp", &Place::here(2))?];
        peers.extend(starter.gloo(&Place::here(2))?);
        tables.push(measure(plan, Setting::Loopback, &mut peers, &[], show)?);
        drop(peers);
        let hosts = Hosts::new("ben", 2);
        let namespaces = (0..2).map(|host| Some(hosts.name(host))).collect();
        let place = Place { namespaces, interface: "fast".into() };
        let mut peers = vec![starter.sirtaki("tcp", &place)?];
        peers.extend(starter.gloo(&place)?);
        tables.push(measure(plan, Setting::Namespaces, &mut peers, &[], show)?);
    }
    Ok(tables)
}

/// Calls per turn: many short ones, few long ones.
fn iterations(bytes: usize) -> usize {
    ((2 << 20) / bytes.max(1)).clamp(1, 100)
}

/// Asks `peers`, the first of which is sirtaki's, in turn. `absent` are those that were asked for but are not
/// installed.
pub(crate) fn measure(
    plan: &Plan,
    setting: Setting,
    peers: &mut [Peer],
    absent: &[String],
    show: &dyn Fn(&Setting, &Row),
) -> Result<Table, BenchError> {
    let mut rows = Vec::new();
    for &bytes in &plan.sizes {
        let mut times = vec![Vec::new(); peers.len()];
        for round in 0..plan.rounds {
            for turn in 0..peers.len() {
                // No library always follows the same one.
                let index = (turn + round) % peers.len();
                times[index].push(median(&peers[index].measure(bytes, iterations(bytes))?));
            }
        }
        let row = Row { bytes, columns: columns(&setting, bytes, peers, &times), absent: absent.to_vec() };
        show(&setting, &row);
        rows.push(row);
    }
    Ok(Table { setting, rows })
}

fn columns(setting: &Setting, bytes: usize, peers: &[Peer], times: &[Vec<f64>]) -> Vec<Column> {
    let column = |(peer, theirs): (&Peer, &Vec<f64>)| {
        let ratios: Vec<f64> = theirs.iter().zip(&times[0]).map(|(theirs, ours)| theirs / ours).collect();
        let name = peer.name().to_owned();
        let goal = goal(setting, bytes, &name);
        // The goal for sirtaki's own memory is a distance from the limit, so it is measured against that.
        let ratio = match (name.as_str(), peers.iter().position(|peer| peer.name() == "add")) {
            ("shared", Some(limit)) => {
                median(&times[limit].iter().zip(theirs).map(|(limit, ours)| limit / ours).collect::<Vec<_>>())
            }
            _ => median(&ratios),
        };
        Column { name, micros: median(theirs), ratio, goal }
    };
    peers.iter().zip(times).map(column).collect()
}
