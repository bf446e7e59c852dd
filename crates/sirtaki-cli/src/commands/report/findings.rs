//! Everything that a report is about: the runs that were given, all of them, and what follows from them. Pages, tables and
//! data are different ways to show it.

use super::{
    compare::{self, ALL, EACH, Group, KIND, ScalingSeries},
    read::{RecordedRun, Unreadable},
    words,
};

/// Settings that a group's words in the legend have, and letters of each.
const FEW: usize = 2;
const WORDS: usize = 24;

/// What was found.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Those that could be read, by the time they started.
    pub(crate) runs: Vec<RecordedRun>,
    /// Those that could not.
    pub(crate) unreadable: Vec<Unreadable>,
    /// Runs that differ in nothing but their seed.
    pub(crate) groups: Vec<Group>,
    /// Groups that differ in nothing but the number of workers.
    pub(crate) scalings: Vec<ScalingSeries>,
}

impl Findings {
    /// What follows from these runs; `target` is the accuracy to reach, if not each run's own.
    pub(crate) fn new(mut runs: Vec<RecordedRun>, unreadable: Vec<Unreadable>, target: Option<f64>) -> Self {
        runs.sort_by(|a, b| a.started.unwrap_or(0.0).total_cmp(&b.started.unwrap_or(0.0)).then(a.name.cmp(&b.name)));
        let groups = compare::groups(&runs, target);
        let scalings = compare::scalings(&groups);
        Self { runs, unreadable, groups, scalings }
    }

    /// Number of the group that a run is in.
    pub(crate) fn group_of(&self, run: usize) -> usize {
        self.groups.iter().position(|group| group.members.contains(&run)).unwrap_or(0)
    }

    /// How a run is drawn: as its group, or as itself where there is only one group.
    pub(crate) fn style_of(&self, run: usize) -> usize {
        if self.groups.len() > 1 { self.group_of(run) } else { run }
    }

    /// The entry of the legend that a run belongs to, if there is a legend.
    pub(crate) fn key_of(&self, run: usize) -> Option<usize> {
        (self.runs.len() > 1).then(|| self.style_of(run))
    }

    /// The entry of the legend that is a group, if the legend is one of groups.
    pub(crate) fn key_of_group(&self, group: usize) -> Option<usize> {
        (self.groups.len() > 1).then_some(group)
    }

    /// What a run is called where there is room for more than its label.
    pub(crate) fn full_name_of(&self, run: usize) -> String {
        if self.groups.len() < 2 {
            return self.label_of(run);
        }
        let Group { letter, members, .. } = &self.groups[self.group_of(run)];
        match self.runs[run].setting("seed").filter(|_| members.len() > 1) {
            Some(seed) => format!("{letter} seed {seed}"),
            None => letter.clone(),
        }
    }

    /// What can be shown and hidden: groups, or runs where there is only one group. A number as in plots, a short name, and
    /// a few words.
    pub(crate) fn legend(&self) -> Vec<(usize, String, String)> {
        match (self.groups.len(), self.runs.len()) {
            (_, 0 | 1) => Vec::new(),
            (1, runs) => (0..runs).map(|run| (run, self.label_of(run), String::new())).collect(),
            (groups, _) => {
                (0..groups).map(|group| (group, self.groups[group].letter.clone(), self.describe(group))).collect()
            }
        }
    }

    /// A group's name in plots.
    pub(crate) fn name_of(&self, group: usize) -> String {
        let Group { letter, ranks, .. } = &self.groups[group];
        let differ = self.groups.iter().any(|other| other.ranks != *ranks);
        if differ { format!("{letter} {}", words::count(*ranks, "worker")) } else { letter.clone() }
    }

    /// What stands at the end of a run's line: once per group, or its seed where there is only one group.
    pub(crate) fn label_of(&self, run: usize) -> String {
        if self.groups.len() > 1 {
            let group = self.group_of(run);
            let Group { letter, members, .. } = &self.groups[group];
            return if members.first() == Some(&run) { letter.clone() } else { String::new() };
        }
        match (self.runs.len(), self.runs[run].setting("seed")) {
            (1, _) => String::new(),
            (_, Some(seed)) => format!("seed {seed}"),
            (_, None) => format!("run {}", run + 1),
        }
    }

    /// What makes a group special, in a few words: its workers and the first settings that differ. The table has all.
    fn describe(&self, group: usize) -> String {
        let Group { ranks, members, settings, .. } = &self.groups[group];
        let differing: Vec<(&str, &str)> = compare::table(&self.groups)
            .into_iter()
            .filter(|(name, _, differ)| *differ && settings.contains_key(*name))
            .map(|(name, values, _)| (name, values[group]))
            .collect();
        let batch = differing.iter().any(|(name, _)| *name == ALL);
        // What follows from the number of workers and the batch of all of them.
        let follows = |name: &str| name.starts_with("OMP_") || name == KIND || (batch && name == EACH);
        let mut told = differing.into_iter().filter(|(name, _)| !follows(name));
        let mut words = vec![words::count(*ranks, "worker")];
        words.extend(told.by_ref().take(FEW).map(|(name, value)| {
            let name = if name == ALL { "batch".into() } else { name.replace('_', " ").to_lowercase() };
            words::shorten(&format!("{} {value}", name.trim_start_matches("sirtaki ")), WORDS)
        }));
        let rest = told.count();
        words.extend((rest > 0).then(|| format!("{rest} more")));
        words.extend((members.len() > 1).then(|| words::count(members.len(), "run")));
        words.join(", ")
    }

    /// How many runs were given, and what became of them.
    pub(crate) fn census(&self) -> String {
        let count = |name: &str| self.runs.iter().filter(|run| run.state.name() == name).count();
        let states = ["finished", "failed", "unfinished"].map(|name| (count(name), name));
        let states = states.into_iter().chain([(self.unreadable.len(), "unreadable")]);
        let parts: Vec<String> =
            states.filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
        format!("{}: {}", words::count(self.runs.len() + self.unreadable.len(), "run"), parts.join(", "))
    }
}
