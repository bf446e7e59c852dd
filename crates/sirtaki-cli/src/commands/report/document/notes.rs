//! What to keep in mind when reading the figures: everything that makes a comparison weaker than it looks is stated, so
//! that readers do not have to ask.

use std::collections::BTreeSet;

use sirtaki_engine::machine::is_busy;

use crate::commands::report::{
    compare::{Group, ScalingSeries},
    findings::Findings,
    measure::Part,
    read::RecordedRun,
    spread::ENOUGH,
    words::{count, percent, rounded_percent},
};

/// Loss of test accuracy above which it is mentioned.
const LOST: f64 = 0.005;
/// Spread of throughput among the runs of a group above which it is mentioned.
const APART: f64 = 0.15;
/// Efficiencies below this need an explanation.
const LOW: f64 = 0.8;

pub(super) fn notes(findings: &Findings) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(failures(findings));
    notes.extend(parts(findings));
    notes.extend(seeds(findings));
    notes.extend(apart(findings));
    notes.extend(machines(findings));
    notes.extend(findings.scalings.iter().flat_map(|scaling| about(findings, scaling)));
    notes.extend(busy(findings));
    if findings.runs.len() > 1 && findings.scalings.is_empty() {
        notes.push("These runs form no scaling series: no two differ only in the number of workers.".into());
    }
    if findings.runs.iter().any(|run| run.counts() && run.test_accuracy().is_none()) {
        notes.push("Some runs recorded no test accuracy; their speed says nothing of what they learned.".into());
    }
    notes
}

fn failures(findings: &Findings) -> Option<String> {
    let rest = findings.runs.iter().filter(|run| !run.counts()).count() + findings.unreadable.len();
    let given = findings.runs.len() + findings.unreadable.len();
    let counted = "They are listed below and drawn as far as they went, but are in no mean.";
    (rest > 0).then(|| format!("{rest} of {} did not finish or cannot be read. {counted}", count(given, "run")))
}

/// Runs that are no whole training are in no scaling.
fn parts(findings: &Findings) -> Option<String> {
    let of = |part: Part, what: &str| {
        let runs = findings.runs.iter().filter(|run| run.part() == Some(part)).count();
        let letters: Vec<&str> = findings
            .groups
            .iter()
            .filter(|group| group.part == Some(part))
            .map(|group| group.letter.as_str())
            .collect();
        let groups = if findings.groups.len() > 1 { format!(" ({})", letters.join(", ")) } else { String::new() };
        (runs > 0).then(|| format!("{}{groups} {what}", count(runs, "run")))
    };
    let parts = [
        of(Part::CutShort, "stopped after a number of steps that was set"),
        of(Part::Continued, "went on from a checkpoint"),
        of(Part::Changed, "changed workers on the way"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        let what = "Such runs did not do the whole work on one number of workers and are not compared as scaling";
        let time = "and the time to an accuracy of a run that went on is not compared either";
        let went_on = findings.runs.iter().any(|run| run.part() == Some(Part::Continued));
        format!("{}. {what}{}.", parts.join("; "), if went_on { format!(", {time}") } else { String::new() })
    })
}

fn seeds(findings: &Findings) -> Option<String> {
    let few: Vec<&str> = findings
        .groups
        .iter()
        .filter(|group| group.throughput.as_ref().is_some_and(|rate| rate.values.len() < 2))
        .map(|group| group.letter.as_str())
        .collect();
    let several = findings.groups.len() > 1;
    match few.as_slice() {
        [] => findings.groups.iter().any(|group| group.members.len() >= ENOUGH).then(|| {
            format!("Means of groups with {ENOUGH} or more runs leave out the best and the worst run; ranges show all.")
        }),
        _ if !several => Some("One run: nothing is known of how much another one would differ.".into()),
        letters => {
            Some(format!("Groups with a single finished run ({}) say nothing of their spread.", letters.join(", ")))
        }
    }
}

fn apart(findings: &Findings) -> Option<String> {
    let wide =
        |group: &&Group| group.throughput.as_ref().is_some_and(|rate| rate.high() - rate.low() > APART * rate.mean);
    let letters: Vec<&str> = findings.groups.iter().filter(wide).map(|group| group.letter.as_str()).collect();
    (!letters.is_empty()).then(|| {
        let share = rounded_percent(APART);
        format!(
            "The speed of equal runs differs by more than {share} in groups {}: was the machine busy?",
            letters.join(", ")
        )
    })
}

fn machines(findings: &Findings) -> Vec<String> {
    let differ = |what: &str, of: &dyn Fn(&RecordedRun) -> String| {
        let values: BTreeSet<String> = findings.runs.iter().map(of).filter(|value| !value.is_empty()).collect();
        let list: Vec<String> = values.iter().cloned().collect();
        (values.len() > 1).then(|| format!("Runs were made {what}: {}.", list.join("; ")))
    };
    let machine = |run: &RecordedRun| run.machine.processor.clone().unwrap_or_default();
    let mut notes: Vec<String> = Vec::new();
    notes.extend(differ("on different processors", &machine));
    notes.extend(differ("with different versions of Sirtaki", &|run| run.version.clone()));
    let crowded = findings.runs.iter().filter(|run| {
        let one_host = run.hosts.iter().all(|host| Some(host) == run.hosts.first());
        one_host && run.machine.cores.is_some_and(|cores| run.ranks as u64 > cores)
    });
    let crowded = crowded.count();
    if crowded > 0 {
        notes.push(format!("{} had more workers than the machine has cores.", count(crowded, "run")));
    }
    notes
}

/// Notes that other programs competed for the cores, if that may be why an efficiency is low.
pub(crate) fn busy(findings: &Findings) -> Vec<String> {
    let competed = |run: &RecordedRun| {
        let here = run.hosts.iter().filter(|host| Some(*host) == run.hosts.first()).count();
        run.load.filter(|&load| run.counts() && is_busy(load, here))
    };
    let mut notes = Vec::new();
    for scaling in &findings.scalings {
        for point in scaling.points.iter().filter(|point| point.efficiency.mean < LOW) {
            let loads = findings.groups[point.group].members.iter().filter_map(|&run| competed(&findings.runs[run]));
            if let Some(load) = loads.reduce(f64::max) {
                notes.push(format!(
                    "In {} scaling with {}, other programs kept the machine busy (load {load:.1}), which lowers the \
                     efficiency of {}.",
                    scaling.kind.name(),
                    count(point.workers, "worker"),
                    rounded_percent(point.efficiency.mean)
                ));
            }
        }
    }
    notes
}

fn about(findings: &Findings, scaling: &ScalingSeries) -> Vec<String> {
    let mut notes = Vec::new();
    let kind = scaling.kind.name();
    let (Some(first), Some(last)) = (scaling.points.first(), scaling.points.last()) else { return notes };
    if let (Some(before), Some(after)) = (&first.accuracy, &last.accuracy)
        && before.mean - after.mean > LOST
    {
        notes.push(format!(
            "In {kind} scaling accuracy falls from {} to {}: the speed-up does not buy the same result.",
            percent(before.mean),
            percent(after.mean)
        ));
    }
    let rate = |group: usize| findings.groups[group].settings.get("lr");
    if scaling.points.iter().any(|point| rate(point.group) != rate(first.group)) {
        notes.push(format!("In {kind} scaling the learning rate changes with the number of workers."));
    }
    if first.workers > 1 {
        let workers = count(first.workers, "worker");
        notes.push(format!("The baseline of {kind} scaling has {workers}: what one worker does is not known."));
    }
    if scaling.points.iter().any(|point| point.efficiency.mean > 1.05) {
        notes.push(format!("Efficiency above 100 % in {kind} scaling means that the baseline was slow for its size."));
    }
    notes
}
