//! Tuning while the engine works: measures the steps of adopted orders on rank 0, has the table choose, and keeps what
//! came of it.

use std::{collections::BTreeMap, time::Duration};

use sirtaki_comm::{Communicator, collective::Alternatives};

use crate::{
    Settings,
    message::Knobs,
    owner::Owner,
    saved::{self, Place},
    shared::now,
    tune::{Choice, Tuned, Tuner, Workload},
};

/// Orders that are searched for at most; a job has one or two.
const SEARCHES: usize = 4;
/// Bytes below which there is nothing to win.
const WORTH: u64 = 1 << 20;

/// What rank 0 knows about the speed of steps.
pub(crate) struct Tuning {
    first: Choice,
    alternatives: Alternatives,
    place: Place,
    /// Whether there is a file to save to, which was not found to be somebody else's.
    saves: bool,
    /// From earlier jobs.
    saved: BTreeMap<Workload, Tuned>,
    searches: BTreeMap<Workload, Tuner>,
    /// What the adopted order does.
    workload: Option<Workload>,
    /// The cycle of the adopted order in progress, and when it began.
    cycle: (u64, Duration),
}

impl Tuning {
    /// Reads what earlier jobs found.
    pub(crate) fn new(comm: &dyn Communicator, links: &sirtaki_comm::Settings, settings: &Settings) -> Self {
        let mut transport = comm.name().to_string();
        if links.tls {
            transport += ", tls";
        }
        let mut alternatives = comm.alternatives();
        if let Some(algorithm) = links.algorithm {
            // Who asks for an algorithm may want the same bits every time, which pieces change, too.
            transport += &format!(", {}", algorithm.name());
            alternatives = Alternatives::default();
        }
        let (ranks, hosts) = (comm.group().size(), comm.group().hosts().len());
        let place = Place { version: env!("CARGO_PKG_VERSION").into(), ranks, hosts, transport };
        let mut saves = settings.tuned.is_some();
        let known = settings.tuned.as_ref().map_or(Ok(Vec::new()), |path| saved::load(path, &place));
        let known = known.unwrap_or_else(|problem| {
            (settings.warn)(&problem);
            saves = false;
            Vec::new()
        });
        let possible = |tuned: &Tuned| {
            let Knobs { algorithm, piece } = tuned.choice.knobs;
            algorithm.is_none_or(|algorithm| alternatives.algorithms.contains(&algorithm))
                && piece.is_none_or(|piece| alternatives.pieces.contains(&(piece as usize)))
        };
        let saved = known.into_iter().filter(possible).map(|tuned| (tuned.workload, tuned)).collect();
        let first = Choice { limits: settings.limits, knobs: Knobs::default() };
        let (searches, workload, cycle) = (BTreeMap::new(), None, (0, Duration::ZERO));
        Self { first, alternatives, place, saves, saved, searches, workload, cycle }
    }

    /// What the table should choose from the start.
    pub(crate) fn choices(&self) -> impl Iterator<Item = (Workload, Choice)> {
        self.saved.values().map(|tuned| (tuned.workload, tuned.choice))
    }

    /// An order was adopted; gives what an earlier job found for it, if there was one.
    fn adopted(&mut self, workload: Workload, time: Duration) -> Option<Tuned> {
        (self.workload, self.cycle) = (Some(workload), (0, time));
        if let Some(tuned) = self.saved.get(&workload) {
            return Some(tuned.clone());
        }
        if let Some(tuner) = self.searches.get_mut(&workload) {
            tuner.begin();
        } else if self.searches.len() < SEARCHES && workload.bytes >= WORTH {
            self.searches.insert(workload, Tuner::new(self.first, &self.alternatives));
        }
        None
    }

    /// The adopted order has got this far; gives what to choose for it when that changes, and the outcome at the end.
    fn advanced(&mut self, cycles: u64, time: Duration) -> (Option<(Workload, Choice)>, Option<Tuned>) {
        let (before, began) = self.cycle;
        if cycles == before {
            return (None, None);
        }
        self.cycle = (cycles, time);
        let Some(workload) = self.workload else { return (None, None) };
        let Some(tuner) = self.searches.get_mut(&workload).filter(|tuner| !tuner.is_done()) else {
            return (None, None);
        };
        if cycles != before + 1 {
            return (None, None);
        }
        let change = tuner.step(time.saturating_sub(began)).map(|choice| (workload, choice));
        (change, tuner.is_done().then(|| tuner.outcome(workload)))
    }

    fn save(&self, settings: &Settings, tuned: &Tuned) {
        if let Some(path) = settings.tuned.as_ref().filter(|_| self.saves) {
            saved::save(path, &self.place, tuned).unwrap_or_else(|problem| (settings.warn)(&problem));
        }
    }
}

impl Owner {
    /// An order was adopted: from here on all ranks carry out collectives like this.
    pub(crate) fn adopted(&mut self, knobs: Knobs) {
        if let Err(error) = self.runner.tune(knobs) {
            return self.trouble(&error);
        }
        let shared = self.shared.clone();
        let (Some(tuning), Some(table)) = (&mut self.tuning, shared.table()) else { return };
        let workload = table.workload();
        drop(table);
        if let Some(tuned) = tuning.adopted(workload, now()) {
            shared.tuned_to(tuned);
        }
    }

    /// Measures full cycles of the adopted order. Another choice comes into use when everybody agrees anew.
    pub(crate) fn tune(&mut self) {
        let (Some(tuning), Some(cycles)) = (&mut self.tuning, self.member.cycles()) else { return };
        let (change, outcome) = tuning.advanced(cycles, now());
        if let Some((workload, choice)) = change {
            if let Some(mut table) = self.shared.table() {
                table.choose(workload, choice);
            }
            self.member.deviate();
        }
        if let Some(tuned) = outcome {
            tuning.save(&self.shared.settings, &tuned);
            self.shared.tuned_to(tuned);
        }
    }
}
