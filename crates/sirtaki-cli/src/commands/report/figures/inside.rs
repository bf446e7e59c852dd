//! What happened inside: time split, messages, lateness, memory. From each run's profile.

use super::Figure;
use crate::{
    commands::report::{
        compare::Group,
        findings::Findings,
        read::{Profile, RankProfile},
        words::{bytes, count, duration, grouped},
    },
    plot::{BarRow, Bars, Chart, Scale, Series},
};

/// Up to this many ranks get a row each.
const ROWS: usize = 16;
/// Parts of a step, then what is left of the time.
const PARTS: [&str; 7] =
    ["input", "forward", "backward", "optimizer", "other", "communication, waited for", "communication, hidden"];
/// Most groups beside each other in a row of bars.
const BESIDE: usize = 6;
/// What a rank did while others waited.
const LATE: [&str; 6] = ["input", "forward", "backward", "optimizer", "other", "network"];

/// All figures for which there is data.
pub(super) fn figures(findings: &Findings) -> Vec<Figure> {
    [split(findings), memory(findings), messages(findings), late_by_phase(findings), late(findings)]
        .into_iter()
        .flatten()
        .collect()
}

/// Some ranks that have a row together.
struct RankGroup<'a> {
    name: String,
    ranks: Vec<&'a RankProfile>,
    /// The entry of the legend that they belong to.
    key: Option<usize>,
}

/// Ranks, if there are few, or else groups, or else the runs of the only group.
fn rows(findings: &Findings) -> (Vec<RankGroup<'_>>, &'static str) {
    let of = |run: usize| findings.runs[run].profile.iter().flat_map(|profile| &profile.ranks);
    let ordered = || findings.groups.iter().flat_map(|group| group.members.iter().copied());
    let name = |run: usize| match (findings.groups.len(), findings.runs.len()) {
        (_, 1) => String::new(),
        (1, _) => findings.label_of(run),
        _ => {
            let group = &findings.groups[findings.group_of(run)];
            let seed = findings.runs[run].setting("seed").filter(|_| group.members.len() > 1);
            format!("{}{}", group.letter, seed.map_or(String::new(), |seed| format!(" seed {seed}")))
        }
    };
    if ordered().map(|run| of(run).count()).sum::<usize>() <= ROWS {
        let each = |run| {
            let row = move |rank: &RankProfile| format!("{} rank {}", name(run), rank.rank).trim().to_owned();
            of(run).map(move |rank| RankGroup { name: row(rank), ranks: vec![rank], key: findings.key_of(run) })
        };
        return (ordered().flat_map(each).collect(), "One row per rank.");
    }
    let (rows, which): (Vec<RankGroup<'_>>, _) = if findings.groups.len() > 1 {
        let together = |(index, group): (usize, &Group)| RankGroup {
            name: findings.name_of(index),
            ranks: group.members.iter().flat_map(|&run| of(run)).collect(),
            key: Some(index),
        };
        (findings.groups.iter().enumerate().map(together).collect(), "All ranks of all runs of a group, averaged.")
    } else {
        let named = |run| if findings.runs.len() == 1 { "all ranks".into() } else { name(run) };
        let row = |run| RankGroup { name: named(run), ranks: of(run).collect(), key: findings.key_of(run) };
        (ordered().map(row).collect(), "All ranks of a run, averaged.")
    };
    (rows.into_iter().filter(|row| !row.ranks.is_empty()).take(2 * ROWS).collect(), which)
}

fn named(parts: &[&str]) -> Vec<String> {
    parts.iter().map(|&part| part.to_owned()).collect()
}

fn mean(ranks: &[&RankProfile], value: impl Fn(&RankProfile) -> f64) -> f64 {
    ranks.iter().map(|rank| value(rank)).sum::<f64>() / ranks.len().max(1) as f64
}

fn phase(rank: &RankProfile, name: &str) -> f64 {
    rank.phases.iter().filter(|phase| phase.phase == name).map(|phase| phase.seconds).sum()
}

fn split(findings: &Findings) -> Option<Figure> {
    let (rows, which) = rows(findings);
    let row = |RankGroup { name, ranks, key }: RankGroup<'_>| {
        let mut bar: Vec<(usize, f64)> =
            (0..4).map(|part| (part, mean(&ranks, |rank| phase(rank, PARTS[part])))).collect();
        let known: f64 = bar.iter().map(|part| part.1).sum();
        let elapsed = mean(&ranks, |rank| rank.elapsed_seconds);
        bar.push((4, (elapsed - known).max(0.0)));
        let exposed = mean(&ranks, |rank| rank.exposed_seconds);
        let communication = vec![(5, exposed), (6, mean(&ranks, |rank| rank.hidden_seconds))];
        BarRow { name, bars: vec![bar, communication], note: duration(elapsed), key }
    };
    let rows: Vec<BarRow> = rows.into_iter().map(row).collect();
    let total: f64 = rows.iter().flat_map(|row| row.bars.iter().flatten()).map(|part| part.1).sum();
    let title = "Where the time went".to_owned();
    let bars =
        Bars { title: title.clone(), x: ("time per rank", Scale::Time), parts: named(&PARTS), rows, show: duration };
    let note = format!(
        "{which} Upper bar: parts of training, and all other time. Lower bar: communication meanwhile, waited for or hidden behind computation."
    );
    (total > 0.0).then(|| Figure::new(title, note, bars.draw()))
}

fn memory(findings: &Findings) -> Option<Figure> {
    let (rows, which) = rows(findings);
    let largest = rows.iter().flat_map(|row| &row.ranks).map(|rank| rank.largest_memory_bytes).fold(0.0, f64::max);
    let (unit, label) =
        if largest < 2.0 * 1024_f64.powi(3) { (1024_f64.powi(2), "MiB") } else { (1024_f64.powi(3), "GiB") };
    let row = |RankGroup { name, ranks, key }: RankGroup<'_>| {
        let value = ranks.iter().map(|rank| rank.largest_memory_bytes).fold(0.0, f64::max);
        BarRow { name, bars: vec![vec![(0, value / unit)]], note: bytes(value), key }
    };
    let rows: Vec<BarRow> = rows.into_iter().map(row).collect();
    let title = "Memory".to_owned();
    let x = (
        if label == "MiB" { "largest memory of a rank (MiB)" } else { "largest memory of a rank (GiB)" },
        Scale::Plain,
    );
    let bars = Bars { title: title.clone(), x, parts: Vec::new(), rows, show: |value| grouped(value) };
    let note = format!("{} The most that any process had at any time.", which.replace(", averaged", ""));
    (largest > 0.0).then(|| Figure::new(title, note, bars.draw()))
}

/// Runs that represent their group: the first of each that has a profile.
fn speakers(findings: &Findings) -> Vec<(usize, &Profile)> {
    let first = |(index, group): (usize, &Group)| {
        let profile = group.members.iter().find_map(|&member| findings.runs[member].profile.as_ref());
        profile.map(|profile| (index, profile))
    };
    findings.groups.iter().enumerate().filter_map(first).collect()
}

/// By the smallest bytes of a class, per rank.
fn sizes(profile: &Profile, of: impl Fn(&(f64, f64, f64)) -> f64) -> Vec<(f64, f64)> {
    let ranks = profile.ranks.len().max(1) as f64;
    let mut classes: Vec<(f64, f64, f64)> = Vec::new();
    for size in profile.operations.iter().flat_map(|operation| &operation.sizes) {
        match classes.iter_mut().find(|class| class.0 == size.from_bytes) {
            Some(class) => (class.1, class.2) = (class.1 + size.tensors, class.2 + size.collectives),
            None => classes.push((size.from_bytes, size.tensors, size.collectives)),
        }
    }
    classes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let point = |class: &(f64, f64, f64)| (class.0.max(1.0), of(class) / ranks);
    classes.iter().map(point).filter(|point| point.1 > 0.0).collect()
}

/// One row per class of sizes, one bar per kind of message or per group.
fn messages(findings: &Findings) -> Option<Figure> {
    let speakers = speakers(findings);
    let kinds: Vec<(String, Vec<(f64, f64)>)> = match speakers.as_slice() {
        [(_, profile)] => vec![
            ("collectives".into(), sizes(profile, |class| class.2)),
            ("tensors".into(), sizes(profile, |class| class.1)),
        ],
        several => several
            .iter()
            .take(BESIDE)
            .map(|&(group, profile)| (findings.groups[group].letter.clone(), sizes(profile, |class| class.2)))
            .collect(),
    };
    let mut classes: Vec<f64> = kinds.iter().flat_map(|kind| &kind.1).map(|class| class.0).collect();
    classes.sort_by(f64::total_cmp);
    classes.dedup();
    let row = |&class: &f64| {
        let times = |kind: &[(f64, f64)]| kind.iter().find(|known| known.0 == class).map_or(0.0, |known| known.1);
        let values: Vec<f64> = kinds.iter().map(|kind| times(&kind.1)).collect();
        BarRow {
            name: format!("from {}", bytes(class)),
            note: if values.len() == 2 {
                values.iter().map(|&value| grouped(value)).collect::<Vec<_>>().join(", ")
            } else {
                String::new()
            },
            bars: values.into_iter().enumerate().map(|bar| vec![bar]).collect(),
            key: None,
        }
    };
    let title = "Message sizes".to_owned();
    let bars = Bars {
        title: title.clone(),
        x: ("messages per rank", Scale::Plain),
        rows: classes.iter().map(row).collect(),
        parts: kinds.into_iter().map(|kind| kind.0).collect(),
        show: |value| format!("{} messages", grouped(value)),
    };
    let note = match speakers.len() {
        1 => "Tensors as the program handed them in, and the collectives that carried them, several together.".into(),
        more if more > BESIDE => format!("Collectives of the first run of the first {BESIDE} groups."),
        _ => "Collectives of the first run of each group.".to_owned(),
    };
    (!classes.is_empty()).then(|| Figure::new(title, format!("By size, in powers of four. {note}"), bars.draw()))
}

fn late_by_phase(findings: &Findings) -> Option<Figure> {
    let (rows, which) = rows(findings);
    let seconds = |rank: &RankProfile, part: &str| {
        let by_phase = rank.lateness.as_ref().map(|late| &late.by_phase);
        let known = |name: &str| LATE.contains(&name) && name != "other";
        by_phase.map_or(0.0, |phases| match part {
            "other" => phases.iter().filter(|(name, _)| !known(name)).map(|(_, seconds)| seconds).sum(),
            part => phases.get(part).copied().unwrap_or(0.0),
        })
    };
    let row = |RankGroup { name, ranks, key }: RankGroup<'_>| {
        let bar: Vec<(usize, f64)> =
            (0..LATE.len()).map(|part| (part, mean(&ranks, |rank| seconds(rank, LATE[part])))).collect();
        let events = mean(&ranks, |rank| {
            rank.lateness.as_ref().map_or(0.0, |late| late.late_events.unwrap_or(late.events) as f64)
        });
        BarRow { name, bars: vec![bar], note: format!("{} times", grouped(events)), key }
    };
    let rows: Vec<BarRow> = rows.into_iter().map(row).collect();
    let total: f64 = rows.iter().flat_map(|row| row.bars.iter().flatten()).map(|part| part.1).sum();
    let title = "Who kept the others waiting".to_owned();
    let bars = Bars {
        title: title.clone(),
        x: ("lateness of a rank", Scale::Time),
        parts: named(&LATE),
        rows,
        show: duration,
    };
    let sentences: Vec<&str> = findings
        .runs
        .iter()
        .filter_map(|run| Some(run.profile.as_ref()?.straggler.as_ref()?.sentence.as_str()))
        .filter(|sentence| !sentence.is_empty())
        .collect();
    let said = match sentences.as_slice() {
        [] => String::new(),
        [one] => format!(" {one}"),
        several => format!(" {} had a straggler.", count(several.len(), "run")),
    };
    let note = format!("{which} Time behind the first rank, by what the late one did meanwhile.{said}");
    (total > 0.0).then(|| Figure::new(title, note, bars.draw()))
}

fn late(findings: &Findings) -> Option<Figure> {
    let line = |name: String, style, key, ranks: &[&RankProfile]| {
        let mut classes: Vec<(f64, f64)> = Vec::new();
        for class in ranks.iter().flat_map(|rank| &rank.lateness).flat_map(|late| &late.distribution) {
            match classes.iter_mut().find(|known| known.0 == class.from_seconds.max(1e-6)) {
                Some(known) => known.1 += class.events,
                None => classes.push((class.from_seconds.max(1e-6), class.events)),
            }
        }
        classes.retain(|class| class.1 > 0.0);
        classes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let tip = |point: &(f64, f64)| format!("from {}: {} times", duration(point.0), grouped(point.1));
        let marks = Some(classes.iter().map(tip).collect());
        Series { name, style, marks, points: classes, key, ..Series::default() }
    };
    let speakers = speakers(findings);
    let series: Vec<Series> = match speakers.as_slice() {
        [(_, profile)] if profile.ranks.len() <= 8 => {
            profile.ranks.iter().map(|rank| line(format!("rank {}", rank.rank), rank.rank, None, &[rank])).collect()
        }
        several => several
            .iter()
            .map(|&(group, profile)| {
                let ranks: Vec<&RankProfile> = profile.ranks.iter().collect();
                line(findings.groups[group].letter.clone(), group, findings.key_of_group(group), &ranks)
            })
            .collect(),
    };
    let title = "How late ranks were".into();
    let (x, y) = (("lateness, by powers of four", Scale::Moments), ("arrivals", Scale::Wide));
    let chart = Chart { title, x, y, from_zero: (false, true), series, guides: Vec::new() };
    let note = match speakers.len() {
        1 => "How often a rank came so much later than the first one.",
        _ => "How often a rank came so much later than the first one; first run of each group, all ranks.",
    };
    Figure::of(&chart, note)
}
