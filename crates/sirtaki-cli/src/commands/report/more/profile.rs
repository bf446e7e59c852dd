//! The profile of every rank: the figures of `profile.json`, run by run, beside the plots of that run alone.

use super::{
    super::{
        document::{Table, TableRow, or_dash},
        figures::{self, Section},
        findings::Findings,
        read::{Profile, RankProfile, RecordedRun},
        words::{bytes, duration, grouped},
    },
    Content,
};

/// How to read the page.
pub(super) const READING: [&str; 3] = [
    "Communication: time in collectives and in the copies around them, of which a part was hidden behind other work, and the \
     program waited for the rest.",
    "Waited: for ranks that came later. Late: how often a rank kept others waiting, and for how long on average and at most.",
    "`sirtaki run --profile` prints the same at the end of a job.",
];

/// What there is to say about these runs.
pub(super) fn content(runs: &[&RecordedRun]) -> Option<Content> {
    let (mut sections, mut tables) = (Vec::new(), Vec::new());
    for run in runs {
        let Some(profile) = run.profile.as_ref().filter(|profile| !profile.ranks.is_empty()) else { continue };
        let alone = Findings::new(vec![(*run).clone()], Vec::new(), None);
        sections.push(Section { title: run.name.clone(), figures: figures::inside(&alone) });
        tables.push(ranks(&run.name, profile));
        tables.extend(sizes(&run.name, profile));
    }
    (!tables.is_empty()).then_some((sections, tables, Vec::new()))
}

fn ranks(name: &str, profile: &Profile) -> Table {
    let mut phases: Vec<&str> = Vec::new();
    for phase in profile.ranks.iter().flat_map(|rank| &rank.phases) {
        if !phases.contains(&phase.phase.as_str()) {
            phases.push(&phase.phase);
        }
    }
    let time = |seconds: f64| or_dash((seconds > 0.0).then(|| duration(seconds)));
    let row = |rank: &RankProfile| {
        let late = rank.lateness.as_ref().map(|late| {
            let (mean, most) = (duration(late.mean_seconds), duration(late.most_seconds));
            format!("{}, {mean}, {most}", grouped(late.late_events.unwrap_or(late.events) as f64))
        });
        let seconds =
            |name: &&str| rank.phases.iter().filter(|phase| phase.phase == *name).map(|phase| phase.seconds).sum();
        let mut cells = vec![rank.rank.to_string(), rank.host.clone()];
        cells.extend([rank.elapsed_seconds, rank.cpu_seconds, rank.communication_seconds].map(time));
        cells.extend([rank.hidden_seconds, rank.exposed_seconds, rank.waited_seconds].map(time));
        cells.extend([
            or_dash(late),
            or_dash((rank.largest_memory_bytes > 0.0).then(|| bytes(rank.largest_memory_bytes))),
        ]);
        cells.extend(phases.iter().map(seconds).map(time));
        TableRow { cells, marked: false }
    };
    Table {
        title: format!("{name}: ranks"),
        note: profile.straggler.as_ref().map_or(String::new(), |straggler| straggler.sentence.clone()),
        head: vec![
            "#rank",
            "host",
            "#elapsed",
            "#processor",
            "#communication",
            "#hidden",
            "#waited for",
            "#waited",
            "#late: times, mean, most",
            "#memory",
        ],
        more: phases.iter().map(|phase| (*phase).to_owned()).collect(),
        rows: profile.ranks.iter().map(row).collect(),
    }
}

/// Every operation by sizes, of all ranks together.
fn sizes(name: &str, profile: &Profile) -> Option<Table> {
    let rows: Vec<TableRow> = profile
        .operations
        .iter()
        .flat_map(|operation| operation.sizes.iter().map(move |size| (operation, size)))
        .map(|(operation, size)| TableRow {
            cells: vec![
                operation.operation.clone(),
                bytes(size.from_bytes),
                grouped(size.tensors),
                grouped(size.collectives),
            ],
            marked: false,
        })
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: format!("{name}: messages by size"),
        note: "All ranks together; sizes by powers of four".into(),
        head: vec!["operation", "#from", "#tensors", "#collectives"],
        more: Vec::new(),
        rows,
    })
}
