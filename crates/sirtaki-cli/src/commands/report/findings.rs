//! Everything that a report is about: the runs that were given, all of them, and what follows from them. Pages, tables and
//! data are different ways to show it.

use super::{
    compare::{self, Group, ScalingSeries},
    read::{RecordedRun, Unreadable},
    words,
};

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

    /// What makes a group special: settings that differ, for people.
    pub(crate) fn describe(&self, group: usize) -> String {
        let Group { ranks, members, .. } = &self.groups[group];
        let mut words = vec![words::count(*ranks, "worker")];
        for (name, values, differ) in compare::table(&self.groups) {
            // The threads of a worker follow from the number of workers; the table has them.
            if differ && self.groups[group].settings.contains_key(name) && !name.starts_with("OMP_") {
                let variable = name.starts_with(|letter: char| letter.is_ascii_uppercase());
                let name = if variable { name.to_owned() } else { name.replace('_', " ") };
                words.push(format!("{name} {}", values[group]));
            }
        }
        format!("{}: {}", words.join(", "), words::count(members.len(), "run"))
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
