//! What GPUs did in collectives, and how much of them was in use.

use super::{Table, TableRow, tables::or_dash};
use crate::commands::report::{
    findings::Findings,
    read::{GpuProfile, Profile},
    words::{bytes, duration, rounded_percent},
};

/// Ranks with a row each.
const ROWS: usize = 64;

/// Of the first run of each group that has a profile with GPUs in it.
pub(super) fn table(findings: &Findings) -> Option<Table> {
    let (mut rows, mut paths) = (Vec::new(), Vec::new());
    for group in &findings.groups {
        let profiles = group.members.iter().filter_map(|&member| findings.runs[member].profile.as_ref());
        let Some(profile) = profiles.into_iter().find(|profile| has_gpus(profile)) else { continue };
        paths.extend(profile.gpu_path.iter().map(|path| format!("{}: tensors travelled {path}", group.letter)));
        let known = profile.ranks.iter().filter_map(|rank| Some((rank.rank, rank.gpu.as_ref()?)));
        rows.extend(known.map(|(rank, gpu)| row(&group.letter, rank, gpu)));
    }
    rows.truncate(ROWS);
    let note = "Time of the GPU's own clock in collectives of a group's first run; hidden: while the program's stream had \
                other work; memory and use are of the whole GPU";
    (!rows.is_empty()).then(|| Table {
        title: "GPUs".into(),
        note: std::iter::once(note.to_owned()).chain(paths).collect::<Vec<_>>().join(". "),
        head: vec!["group", "#rank", "#collectives", "#hidden", "#memory, at most", "#of", "#in use"],
        more: Vec::new(),
        rows,
    })
}

fn has_gpus(profile: &Profile) -> bool {
    profile.ranks.iter().any(|rank| rank.gpu.is_some())
}

fn row(letter: &str, rank: usize, gpu: &GpuProfile) -> TableRow {
    let hidden = (gpu.collective_seconds > 0.0).then(|| gpu.hidden_seconds / gpu.collective_seconds);
    let size = |value: Option<f64>| or_dash(value.map(bytes));
    let cells = vec![
        letter.into(),
        rank.to_string(),
        or_dash((gpu.collective_seconds > 0.0).then(|| duration(gpu.collective_seconds))),
        or_dash(hidden.map(rounded_percent)),
        size(gpu.largest_memory_bytes),
        size(gpu.memory_bytes),
        or_dash(gpu.utilisation_percent.map(|percent| rounded_percent(percent / 100.0))),
    ];
    TableRow { cells, marked: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let gpu = GpuProfile { collective_seconds: 4.0, hidden_seconds: 3.0, ..GpuProfile::default() };
        assert_eq!(row("A", 1, &gpu).cells, ["A", "1", &duration(4.0), &rounded_percent(0.75), "–", "–", "–"]);
        let idle = GpuProfile { memory_bytes: Some(1024.0), utilisation_percent: Some(42.0), ..GpuProfile::default() };
        assert_eq!(row("A", 0, &idle).cells[2..], ["–", "–", "–", &bytes(1024.0), &rounded_percent(0.42)]);
    }
}
