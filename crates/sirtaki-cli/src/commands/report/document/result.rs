//! The result in a title, one sentence and a few figures. Speed never comes without accuracy.

use super::Key;
use crate::commands::report::{
    compare::{Group, ScalingKind, ScalingSeries},
    findings::Findings,
    read::{RecordedRun, RunState},
    words::{bytes, count, duration, figure, grouped, percent, rounded_percent, tidy_percent},
};

/// The model, if all runs have the same.
fn model(findings: &Findings) -> Option<&str> {
    let mut models = findings.runs.iter().map(|run| run.setting("model"));
    let first = models.next()??;
    models.all(|model| model == Some(first)).then_some(first)
}

pub(super) fn title(findings: &Findings) -> String {
    match findings.runs.as_slice() {
        [run] => run.name.clone(),
        runs => {
            let what = model(findings).map_or(String::new(), |model| format!(" of {model}"));
            format!("{}{what} compared", count(runs.len() + findings.unreadable.len(), "run"))
        }
    }
}

pub(super) fn sentence(findings: &Findings) -> String {
    match (findings.runs.as_slice(), findings.scalings.is_empty()) {
        ([run], _) => one(run),
        (_, false) => findings.scalings.first().map_or(String::new(), scaled),
        _ => quickest(findings).unwrap_or_else(|| "No run has finished with figures that could be compared.".into()),
    }
}

/// What one run reached.
fn one(run: &RecordedRun) -> String {
    let who = run.setting("model").unwrap_or("The program");
    let workers = count(run.ranks, "worker");
    let speed = run.throughput().map(|rate| format!("{} samples per second", grouped(rate)));
    let accuracy = run.test_accuracy().map(percent);
    let lasted = run.lasted().map_or(String::new(), |seconds| format!(" in {}", duration(seconds)));
    let reached = match (accuracy, speed) {
        (Some(accuracy), Some(speed)) => format!("reached {accuracy} test accuracy{lasted} on {workers}, at {speed}"),
        (Some(accuracy), None) => format!("reached {accuracy} test accuracy{lasted} on {workers}"),
        (None, Some(speed)) => format!("saw {speed} on {workers}{lasted}; no test accuracy was recorded"),
        (None, None) => format!("ran on {workers}{lasted} and recorded neither speed nor accuracy"),
    };
    match &run.state {
        RunState::Finished => format!("{who} {reached}."),
        RunState::Failed(why) => format!("{who} {reached}, and then failed: {why}"),
        RunState::Unfinished => format!("{who} {reached}. It has not ended, or was killed."),
    }
}

fn scaled(scaling: &ScalingSeries) -> String {
    let (Some(first), Some(last)) = (scaling.points.first(), scaling.points.last()) else { return String::new() };
    let accuracy = match (&first.accuracy, &last.accuracy) {
        (Some(before), Some(after)) => {
            format!("Test accuracy: {} before, {} after.", percent(before.mean), percent(after.mean))
        }
        _ => "Test accuracy was not recorded.".into(),
    };
    let kind = match scaling.kind {
        ScalingKind::Strong => "Sharing the same work",
        ScalingKind::Weak => "With as much work for each",
    };
    format!(
        "{kind}, {} are {} times as fast as {}, {} efficient. {accuracy}",
        count(last.workers, "worker"),
        figure(last.speedup.mean / first.workers.max(1) as f64),
        first.workers,
        rounded_percent(last.efficiency.mean)
    )
}

/// The group that reached its goal first, or else the fastest.
fn quickest(findings: &Findings) -> Option<String> {
    let mean = |group: &Group| group.reached.as_ref().and_then(|(target, reached)| Some((*target, reached.mean?)));
    let groups = findings.groups.iter();
    let timed = groups.clone().filter_map(|group| Some((group, mean(group)?)));
    if let Some((group, (target, seconds))) = timed.min_by(|a, b| a.1.1.total_cmp(&b.1.1)) {
        let (target, seconds) = (tidy_percent(target), duration(seconds));
        let what =
            if findings.groups.len() == 1 { String::new() } else { format!("Group {} was first: ", group.letter) };
        return Some(format!("{what}{target} test accuracy after {seconds} on {}.", count(group.ranks, "worker")));
    }
    let rate = |group: &Group| group.throughput.as_ref().map(|rate| rate.mean);
    let (group, rate) = groups.filter_map(|group| Some((group, rate(group)?))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let accuracy = group.accuracy.as_ref().map_or("unknown".into(), |accuracy| percent(accuracy.mean));
    Some(format!("Group {} was fastest: {} samples per second, test accuracy {accuracy}.", group.letter, grouped(rate)))
}

pub(super) fn keys(findings: &Findings) -> Vec<Key> {
    match findings.runs.as_slice() {
        [run] => of_one(findings, run),
        _ => of_several(findings),
    }
}

fn key(name: &'static str, value: Option<String>, detail: impl Into<String>) -> Option<Key> {
    value.map(|value| Key { name, value, detail: detail.into() })
}

fn of_one(findings: &Findings, run: &RecordedRun) -> Vec<Key> {
    let epochs = run.setting("epochs").map_or(String::new(), |epochs| format!("after {epochs} epochs"));
    let reached = findings.groups.first().and_then(|group| group.reached.as_ref());
    let (time, target) = match reached {
        Some((target, reached)) => {
            (Some(reached.show(duration)), format!("to {} test accuracy", tidy_percent(*target)))
        }
        None => (None, String::new()),
    };
    let keys = [
        key("Test accuracy", run.test_accuracy().map(percent), epochs),
        key("Time to accuracy", time, target),
        key("Throughput", run.throughput().map(grouped), "samples/s of all workers, tests included"),
        key("Duration", run.lasted().map(duration), run.state.name()),
        key("Workers", Some(run.ranks.to_string()), count(hosts(run), "host")),
        key("Memory", run.memory().map(bytes), "of the largest rank"),
    ];
    keys.into_iter().flatten().collect()
}

fn hosts(run: &RecordedRun) -> usize {
    let hosts: std::collections::BTreeSet<&String> = run.hosts.iter().collect();
    hosts.len().max(1)
}

fn of_several(findings: &Findings) -> Vec<Key> {
    let mut keys = Vec::new();
    for scaling in &findings.scalings {
        let Some((first, last)) = scaling.points.first().zip(scaling.points.last()) else { continue };
        let name = if scaling.kind == ScalingKind::Strong { "Strong scaling" } else { "Weak scaling" };
        let (from, to) = (first.workers, count(last.workers, "worker"));
        let times = format!("{}×", figure(last.speedup.mean / from.max(1) as f64));
        let efficiency = rounded_percent(last.efficiency.mean);
        keys.extend(key(name, Some(times), format!("{from} to {to}; {efficiency} efficiency")));
    }
    let best = |a: &&Group, b: &&Group| {
        let rate = |group: &Group| group.throughput.as_ref().map_or(0.0, |rate| rate.mean);
        rate(a).total_cmp(&rate(b))
    };
    if let Some(group) = findings.groups.iter().max_by(best) {
        let detail = format!("samples/s, group {}, {}", group.letter, count(group.ranks, "worker"));
        keys.extend(key("Throughput", group.throughput.as_ref().map(|rate| grouped(rate.mean)), detail));
        let detail = format!("of the fastest, group {}", group.letter);
        keys.extend(key("Test accuracy", group.accuracy.as_ref().map(|accuracy| percent(accuracy.mean)), detail));
    }
    let quickest = findings
        .groups
        .iter()
        .filter_map(|group| group.reached.as_ref().and_then(|(target, reached)| Some((group, target, reached.mean?))))
        .min_by(|a, b| a.2.total_cmp(&b.2));
    if let Some((group, target, seconds)) = quickest {
        let detail = format!("to {}, group {}", tidy_percent(*target), group.letter);
        keys.extend(key("Time to accuracy", Some(duration(seconds)), detail));
    }
    let finished = findings.runs.iter().filter(|run| run.counts()).count();
    let given = findings.runs.len() + findings.unreadable.len();
    keys.extend(key("Runs", Some(format!("{finished} of {given}")), "finished"));
    keys
}
