//! The same as data: every figure of the report, in seconds, bytes and shares, for other programs.

use serde_json::{Map, Value, json};

use super::{
    compare::{Group, Point, ScalingSeries},
    document::Document,
    findings::Findings,
    read::{RecordedRun, RunState},
    spread::Spread,
};

/// All of it.
pub(crate) fn write(findings: &Findings, document: &Document) -> String {
    let letter = |index: usize| findings.groups[findings.group_of(index)].letter.as_str();
    let runs: Vec<Value> =
        findings.runs.iter().enumerate().map(|(index, one)| run(one, letter(index), findings)).collect();
    let unreadable: Vec<Value> =
        findings.unreadable.iter().map(|one| json!({ "name": one.name, "why": one.why })).collect();
    let value = json!({
        "format": "sirtaki report, version 1",
        "title": document.title,
        "sentence": document.sentence,
        "notes": document.notes,
        "runs": runs,
        "unreadable": unreadable,
        "groups": findings.groups.iter().map(|one| group(one, findings)).collect::<Vec<_>>(),
        "scaling": findings.scalings.iter().map(|one| scaling(one, findings)).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

fn run(run: &RecordedRun, letter: &str, findings: &Findings) -> Value {
    let group = findings.groups.iter().find(|group| group.letter == letter);
    let target = group.and_then(|group| group.reached.as_ref()).map(|reached| reached.0);
    json!({
        "name": run.name,
        "group": letter,
        "state": run.state.name(),
        "failed": match &run.state { RunState::Failed(why) => Some(why), _ => None },
        "problems": run.problems,
        "started": run.started,
        "seconds": run.lasted(),
        "workers": run.ranks,
        "hosts": run.hosts,
        "version": run.version,
        "command": run.command,
        "settings": run.settings,
        "rounds": run.rounds,
        "samples_per_second": run.throughput(),
        "test_accuracy": run.test_accuracy(),
        "target_accuracy": target,
        "seconds_to_accuracy": target.and_then(|target| run.time_to(target)),
        "largest_memory_bytes": run.memory(),
        "largest_gpu_memory_bytes": run.gpu_memory(),
    })
}

fn spread(spread: Option<&Spread>) -> Value {
    spread.map_or(
        Value::Null,
        |spread| json!({ "mean": spread.mean, "least": spread.low(), "most": spread.high(), "values": spread.values }),
    )
}

fn group(group: &Group, findings: &Findings) -> Value {
    let names: Vec<&str> = group.members.iter().map(|&member| findings.runs[member].name.as_str()).collect();
    let reached = group.reached.as_ref().map(|(target, reached)| {
        json!({
            "accuracy": target,
            "mean_seconds": reached.mean,
            "seconds": reached.times,
            "reached": reached.times.len(),
            "runs": reached.runs,
        })
    });
    json!({
        "group": group.letter,
        "workers": group.ranks,
        "runs": names,
        "settings": group.settings.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>(),
        "samples_per_second": spread(group.throughput.as_ref()),
        "test_accuracy": spread(group.accuracy.as_ref()),
        "time_to_accuracy": reached,
    })
}

fn scaling(scaling: &ScalingSeries, findings: &Findings) -> Value {
    let letter = |point: &Point| findings.groups[point.group].letter.clone();
    let point = |point: &Point| {
        json!({
            "workers": point.workers,
            "group": letter(point),
            "samples_per_second": spread(Some(&point.throughput)),
            "speedup": spread(Some(&point.speedup)),
            "efficiency": spread(Some(&point.efficiency)),
            "test_accuracy": spread(point.accuracy.as_ref()),
        })
    };
    json!({
        "kind": scaling.kind.name(),
        "batch": scaling.batch,
        "baseline": scaling.points.first().map(letter),
        "points": scaling.points.iter().map(point).collect::<Vec<_>>(),
    })
}
