//! Comparing runs: which are the same except for their seed, and which are steps of one scaling.
//!
//! The same work shared by more workers is strong scaling: their batches together stay equal. More workers with the
//! same work each is weak scaling: the batch of each stays equal. Runs of one worker may belong to both. Runs that were cut
//! short, continued from a checkpoint, or changed their workers did a part of the work, and belong to none.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    measure::Part,
    read::RecordedRun,
    spread::{Reached, Spread},
};

/// The setting that makes no difference.
const SEED: &str = "seed";
/// What one worker computes per step.
pub(crate) const EACH: &str = "batch_per_worker";
/// What all workers together compute per step.
pub(crate) const ALL: &str = "global_batch";
/// How work grows with workers, where the run says so.
pub(crate) const KIND: &str = "scaling";
/// Settings that change with the number of workers without making it a different job. The rate depends on the batch.
const FOLLOWING: [&str; 5] = [EACH, ALL, KIND, "lr", "workers"];
/// Variables that say what a run shows of itself, not what it computes.
const SHOWING: [&str; 6] = ["RUN_FOLDER", "TENSORBOARD", "TRACKERS", "TIMELINE", "PROFILE", "COMMAND"];

/// Runs that differ in nothing but their seed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// A short name in plots: `A`, `B`, and so on.
    pub(crate) letter: String,
    /// Workers of each.
    pub(crate) ranks: usize,
    /// Which runs.
    pub(crate) members: Vec<usize>,
    /// Settings and variables that they have in common.
    pub(crate) settings: BTreeMap<String, String>,
    /// Which part of a training they are, if they are not a whole one.
    pub(crate) part: Option<Part>,
    /// Samples per second of those that count.
    pub(crate) throughput: Option<Spread>,
    /// Of those that count.
    pub(crate) accuracy: Option<Spread>,
    /// The accuracy to reach, and how long that took all runs except those that failed or are still running. Of runs that
    /// were continued, nobody knows; of those that were cut short, only if they reached it.
    pub(crate) reached: Option<(f64, Reached)>,
}

/// How work grows with workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScalingKind {
    /// The same work, shared.
    Strong,
    /// The same amount for each.
    Weak,
}

impl ScalingKind {
    /// One word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ScalingKind::Strong => "strong",
            ScalingKind::Weak => "weak",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            ScalingKind::Strong => ALL,
            ScalingKind::Weak => EACH,
        }
    }
}

/// One number of workers in a scaling.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    /// Which group.
    pub(crate) group: usize,
    /// How many.
    pub(crate) workers: usize,
    /// Samples per second.
    pub(crate) throughput: Spread,
    /// Throughput relative to the baseline's mean, multiplied by the baseline's number of workers.
    pub(crate) speedup: Spread,
    /// Speed-up per worker; the baseline's is 1.
    pub(crate) efficiency: Spread,
    /// Test accuracy.
    pub(crate) accuracy: Option<Spread>,
}

/// The same job on several numbers of workers. The first point is the baseline.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScalingSeries {
    /// How work grows.
    pub(crate) kind: ScalingKind,
    /// The batch that stays equal.
    pub(crate) batch: String,
    /// By number of workers.
    pub(crate) points: Vec<Point>,
}

impl ScalingSeries {
    /// What stays equal, for people.
    pub(crate) fn title(&self) -> String {
        match self.kind {
            ScalingKind::Strong => format!("Strong: {} samples per step for all workers together", self.batch),
            ScalingKind::Weak => format!("Weak: {} samples per step for each worker", self.batch),
        }
    }

    /// What everything is compared with, for people.
    pub(crate) fn baseline(&self, groups: &[Group]) -> String {
        let Some(base) = self.points.first() else { return String::new() };
        let rate = super::words::grouped(base.throughput.mean);
        let workers = super::words::count(base.workers, "worker");
        format!("{workers} ({}), {rate} samples/s", groups[base.group].letter)
    }
}

/// Settings with the variables that change what is computed, but not the seed.
fn essence(run: &RecordedRun) -> BTreeMap<String, String> {
    let shows = |name: &str| SHOWING.contains(&name.trim_start_matches("SIRTAKI_").trim_start_matches("HOROVOD_"));
    let variables = run.environment.iter().filter(|(name, _)| !shows(name));
    let settings = run.settings.iter().filter(|(name, _)| *name != SEED);
    let mut essence: BTreeMap<String, String> =
        settings.chain(variables).map(|(name, value)| (name.clone(), value.clone())).collect();
    if run.settings.is_empty() {
        essence.insert("command".into(), run.command.join(" "));
    }
    essence
}

/// What runs of a group have in common: workers, settings, and which part of a training they are.
type Common = (usize, BTreeMap<String, String>, Option<Part>);

/// Groups by workers, then settings.
pub(crate) fn groups(runs: &[RecordedRun], target: Option<f64>) -> Vec<Group> {
    let mut found: BTreeMap<Common, Vec<usize>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        found.entry((run.ranks, essence(run), run.part())).or_default().push(index);
    }
    let group = |(index, ((ranks, settings, part), members)): (usize, (Common, Vec<usize>))| {
        let counting = || members.iter().map(|&member| &runs[member]).filter(|run| run.counts());
        let target = counting().find_map(|run| run.target(target)).filter(|_| part != Some(Part::Continued));
        let times = |target: f64| {
            let times = counting().map(move |run| run.time_to(target));
            Reached::of(times.filter(|time| part != Some(Part::CutShort) || time.is_some()))
        };
        let reached = target.map(|target| (target, times(target)));
        Group {
            letter: letter(index),
            ranks,
            settings,
            part,
            throughput: Spread::of(counting().filter_map(RecordedRun::throughput)),
            accuracy: Spread::of(counting().filter_map(RecordedRun::test_accuracy)),
            reached: reached.filter(|(_, reached)| part.is_none() || reached.runs > 0),
            members: members.clone(),
        }
    };
    found.into_iter().enumerate().map(group).collect()
}

/// `A` to `Z`, `AA`, and so on.
fn letter(mut index: usize) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push((b'A' + (index % 26) as u8) as char);
        if index < 26 {
            return letters.iter().rev().collect();
        }
        index = index / 26 - 1;
    }
}

/// What the points of a scaling have in common: its kind, the batch that stays equal, and all settings that do.
type Family<'a> = (ScalingKind, String, Vec<(&'a str, &'a str)>);

/// The scalings that these groups are points of.
pub(crate) fn scalings(groups: &[Group]) -> Vec<ScalingSeries> {
    let mut found: BTreeMap<Family<'_>, Vec<usize>> = BTreeMap::new();
    for (index, group) in groups.iter().enumerate() {
        if group.throughput.is_none() || group.ranks == 0 || group.part.is_some() {
            continue;
        }
        let following = |name: &str| FOLLOWING.contains(&name) || name.starts_with("OMP_");
        let same: Vec<(&str, &str)> = group
            .settings
            .iter()
            .filter(|(name, _)| !following(name))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        for kind in [ScalingKind::Strong, ScalingKind::Weak] {
            if let Some(batch) = group.settings.get(kind.setting()) {
                found.entry((kind, batch.clone(), same.clone())).or_default().push(index);
            }
        }
    }
    let scaling = |((kind, batch, _), members): ((ScalingKind, String, _), Vec<usize>)| {
        let workers: BTreeSet<usize> = members.iter().map(|&member| groups[member].ranks).collect();
        (workers.len() > 1).then(|| ScalingSeries { kind, batch, points: points(groups, &members) })
    };
    found.into_iter().filter_map(scaling).collect()
}

/// Points against the first one: groups come by workers. Where a number of workers has several groups, such as several
/// rates, each is a point.
fn points(groups: &[Group], members: &[usize]) -> Vec<Point> {
    let base =
        members.first().and_then(|&member| Some((groups[member].throughput.as_ref()?.mean, groups[member].ranks)));
    let Some((rate, workers)) = base else { return Vec::new() };
    let point = |&member: &usize| {
        let group = &groups[member];
        let throughput = group.throughput.clone()?;
        let speedup = throughput.scaled(workers as f64 / rate);
        let efficiency = speedup.scaled(1.0 / group.ranks as f64);
        Some(Point {
            group: member,
            workers: group.ranks,
            throughput,
            speedup,
            efficiency,
            accuracy: group.accuracy.clone(),
        })
    };
    members.iter().filter_map(point).collect()
}

/// Names of settings in which groups differ, or all of them, with each group's value.
pub(crate) fn table(groups: &[Group]) -> Vec<(&str, Vec<&str>, bool)> {
    let names: BTreeSet<&str> = groups.iter().flat_map(|group| group.settings.keys().map(String::as_str)).collect();
    let row = |name| {
        let value = |group: &'_ Group| group.settings.get(name).map_or("", String::as_str).to_owned();
        let differ = groups.iter().any(|group| value(group) != value(&groups[0]));
        let values = groups.iter().map(|group| group.settings.get(name).map_or("–", String::as_str)).collect();
        (name, values, differ)
    };
    names.into_iter().map(row).collect()
}
