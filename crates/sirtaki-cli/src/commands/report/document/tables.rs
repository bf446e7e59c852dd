//! What was measured and set, with nothing left out.

use super::{Table, TableRow, gpus};
use crate::commands::report::{
    compare,
    findings::Findings,
    measure::{LIMIT, RESUMED},
    read::{Operation, RecordedRun, RunState},
    words::{bytes, count, duration, figure, grouped, percent, rounded_percent, tidy_percent},
};

pub(super) fn tables(findings: &Findings) -> Vec<Table> {
    let mut tables = scalings(findings);
    if findings.groups.len() > 1 || findings.runs.len() > 1 {
        tables.push(groups(findings));
    }
    tables.push(runs(findings));
    tables.extend(settings(findings));
    tables.extend(operations(findings));
    tables.extend(gpus::table(findings));
    tables.push(machines(findings));
    tables
}

fn row(cells: Vec<String>) -> TableRow {
    TableRow { cells, marked: false }
}

pub(crate) fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".into())
}

/// One table per scaling.
pub(crate) fn scalings(findings: &Findings) -> Vec<Table> {
    let table = |scaling: &compare::ScalingSeries| Table {
        title: format!("{} scaling", if scaling.kind == compare::ScalingKind::Strong { "Strong" } else { "Weak" }),
        note: format!("{}; baseline: {}", scaling.title(), scaling.baseline(&findings.groups)),
        head: vec!["#workers", "group", "#samples/s", "#speed-up", "#efficiency", "#test accuracy", "#runs"],
        more: Vec::new(),
        rows: scaling
            .points
            .iter()
            .map(|point| {
                row(vec![
                    point.workers.to_string(),
                    findings.groups[point.group].letter.clone(),
                    point.throughput.show(grouped),
                    point.speedup.show(|value| format!("{value:.2}")),
                    point.efficiency.show(rounded_percent),
                    or_dash(point.accuracy.as_ref().map(|accuracy| accuracy.show(percent))),
                    point.throughput.values.len().to_string(),
                ])
            })
            .collect(),
    };
    findings.scalings.iter().map(table).collect()
}

fn groups(findings: &Findings) -> Table {
    let cells = |group: &compare::Group| {
        let goal = group.reached.as_ref();
        row(vec![
            group.letter.clone(),
            group.ranks.to_string(),
            format!(
                "{} of {}",
                group.members.iter().filter(|&&run| findings.runs[run].counts()).count(),
                group.members.len()
            ),
            or_dash(group.throughput.as_ref().map(|rate| rate.show(grouped))),
            or_dash(group.accuracy.as_ref().map(|accuracy| accuracy.show(percent))),
            or_dash(goal.map(|goal| tidy_percent(goal.0))),
            or_dash(goal.map(|goal| goal.1.show(duration))),
        ])
    };
    Table {
        title: "Groups".into(),
        note: "Runs that differ in nothing but their seed; mean and range of those that finished".into(),
        head: vec!["group", "#workers", "#finished", "#samples/s", "#test accuracy", "#goal", "#time to goal"],
        more: Vec::new(),
        rows: findings.groups.iter().map(cells).collect(),
    }
}

fn runs(findings: &Findings) -> Table {
    let cells = |(index, run): (usize, &RecordedRun)| {
        let group = &findings.groups[findings.group_of(index)];
        let time =
            group.reached.as_ref().map(|(target, _)| run.time_to(*target).map_or("not reached".into(), duration));
        let state = match &run.state {
            RunState::Failed(why) => format!("failed: {why}"),
            state => state.name().into(),
        };
        let problems = run.problems.iter().map(|problem| format!("; {problem}")).collect::<String>();
        TableRow {
            cells: vec![
                group.letter.clone(),
                run.name.clone(),
                format!("{state}{}{}{problems}", part(run), changes(&run.rounds)),
                run.ranks.to_string(),
                or_dash(run.setting("seed").map(Into::into)),
                or_dash(run.throughput().map(grouped)),
                or_dash(run.test_accuracy().map(percent)),
                or_dash(time),
                or_dash(run.lasted().map(duration)),
                or_dash(run.memory().map(bytes)),
            ],
            marked: !run.counts() || !run.problems.is_empty(),
        }
    };
    let lost = |run: &crate::commands::report::read::Unreadable| {
        let mut cells = vec!["–".to_owned(), run.name.clone(), format!("unreadable: {}", run.why)];
        cells.resize(10, "–".into());
        TableRow { cells, marked: true }
    };
    Table {
        title: "All runs".into(),
        note: findings.census(),
        head: vec![
            "group",
            "run",
            "state",
            "#workers",
            "#seed",
            "#samples/s",
            "#test accuracy",
            "#time to goal",
            "#duration",
            "#memory",
        ],
        more: Vec::new(),
        rows: findings.runs.iter().enumerate().map(cells).chain(findings.unreadable.iter().map(lost)).collect(),
    }
}

fn settings(findings: &Findings) -> Option<Table> {
    let several = findings.groups.len() > 1;
    let cells = |(name, values, differ): (&str, Vec<&str>, bool)| TableRow {
        cells: std::iter::once(name).chain(values).map(Into::into).collect(),
        marked: differ,
    };
    let rows: Vec<TableRow> = compare::table(&findings.groups).into_iter().map(cells).collect();
    let column = |index: usize| if several { findings.groups[index].letter.clone() } else { "value".into() };
    (!rows.is_empty()).then(|| Table {
        title: "Hyper-parameters".into(),
        note: if several { "One column per group; what differs is marked with ≠".into() } else { String::new() },
        head: vec!["setting"],
        more: (0..findings.groups.len()).map(column).collect(),
        rows,
    })
}

/// Of the first run of each group that has a profile.
fn operations(findings: &Findings) -> Option<Table> {
    let mut rows = Vec::new();
    for group in &findings.groups {
        let profile = group.members.iter().find_map(|&member| findings.runs[member].profile.as_ref());
        for operation in profile.iter().flat_map(|profile| &profile.operations) {
            rows.push(row(carried(&group.letter, operation)));
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: "Communication".into(),
        note: "All ranks of a group's first run together; bus bandwidth as nccl-tests count it, waiting for late ranks included".into(),
        head: vec!["group", "operation", "#tensors", "#collectives", "#bytes each", "#time of all ranks", "#bus GB/s"],
        more: Vec::new(),
        rows,
    })
}

fn carried(letter: &str, operation: &Operation) -> Vec<String> {
    let each = operation.collective_bytes / operation.collectives.max(1.0);
    vec![
        letter.into(),
        operation.operation.clone(),
        grouped(operation.tensors),
        grouped(operation.collectives),
        bytes(each),
        duration(operation.seconds),
        or_dash(operation.bus_bytes_per_second.map(|rate| figure(rate / 1e9))),
    ]
}

/// Machines and commands, one row per kind.
fn machines(findings: &Findings) -> Table {
    let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for (index, run) in findings.runs.iter().enumerate() {
        let hosts: std::collections::BTreeSet<&String> = run.hosts.iter().collect();
        let cells = vec![
            or_dash(run.machine.processor.clone()),
            or_dash(run.machine.cores.map(|cores| cores.to_string())),
            or_dash(run.machine.memory_bytes.map(|memory| bytes(memory as f64))),
            if hosts.len() > 4 {
                count(hosts.len(), "host")
            } else {
                or_dash((!hosts.is_empty()).then(|| hosts.into_iter().cloned().collect::<Vec<_>>().join(", ")))
            },
            run.version.clone(),
            run.command.join(" "),
        ];
        let letter = findings.groups[findings.group_of(index)].letter.clone();
        match rows.iter_mut().find(|(known, _)| *known == cells) {
            Some((_, letters)) if letters.contains(&letter) => {}
            Some((_, letters)) => letters.push(letter),
            None => rows.push((cells, vec![letter])),
        }
    }
    Table {
        title: "Machines and commands".into(),
        note: "Processor, cores and memory are those of rank 0's host".into(),
        head: vec!["groups", "processor", "#cores", "#memory", "hosts", "version", "command"],
        more: Vec::new(),
        rows: rows.into_iter().map(|(cells, letters)| row([vec![letters.join(" ")], cells].concat())).collect(),
    }
}

/// Which part of a training a run was, in words.
fn part(run: &RecordedRun) -> String {
    let limit = run.setting(LIMIT).map(|steps| format!("; limited to step {steps}"));
    let resumed = run.setting(RESUMED).map(|step| format!("; went on from step {step}"));
    [resumed, limit].into_iter().flatten().collect()
}

/// How workers came and went: the last changes of them, in words.
fn changes(rounds: &[String]) -> String {
    const SHOWN: usize = 5;
    let changes = rounds.get(1..).unwrap_or_default();
    let last = &changes[changes.len().saturating_sub(SHOWN)..];
    match (changes.len(), last) {
        (0, _) => String::new(),
        (count, last) if count == last.len() => format!("; {}", last.join("; ")),
        (count, last) => format!("; {count} changes of workers, the last of them {}", last.join("; ")),
    }
}
