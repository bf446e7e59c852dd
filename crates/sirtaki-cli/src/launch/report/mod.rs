//! The report at the end of a job.
//!
//! A pure function from facts to at most a page of text: which rank failed first, where and how, its last lines, what
//! the others were doing meanwhile, and what to try. The others' own errors are left out: they only follow the first.

mod cause;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, time::Duration};

use sirtaki_engine::telemetry::{Short, profile::Profile};

use sirtaki_launch::{
    ended::{Ended, signal_name},
    roles::Cast,
    words::{duration_in_words, ranks_in_words},
};

use super::output::file_name;
use crate::printer::Style;

/// Most lines of the failed rank that are repeated.
const LAST: usize = 20;

/// Most groups of other ranks that are listed.
const GROUPS: usize = 8;

/// Longest line, in characters.
const WIDE: usize = 200;

/// What is known about the first process that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which process.
    pub rank: usize,
    /// Where it ran.
    pub host: String,
    /// Its process id there.
    pub pid: Option<u32>,
    /// How it ended.
    pub how: Ended,
    /// How long it ran.
    pub ran_for: Duration,
    /// Its last lines, without colours.
    pub last_lines: Vec<String>,
    /// What other ranks were doing then, as far as known: `waiting in "conv1.grad" for 3 s`.
    pub others: Vec<(usize, String)>,
    /// What ranks had done by then, as far as known.
    pub profile: Profile,
    /// Where the output of all ranks is.
    pub folder: Option<PathBuf>,
    /// Who the job's processes are.
    pub cast: Cast,
    /// The job's number of hosts.
    pub hosts: usize,
}

impl Failure {
    /// The closing report, for standard error; `paint` colours a piece of it.
    pub fn report(&self, paint: impl Fn(Style, &str) -> String) -> String {
        let (headline, hint) = cause::explain(&self.how, &self.last_lines);
        let rank = paint(Style::Bold, &self.cast.name(self.rank));
        let place = if self.hosts > 1 { format!(" on {}", self.host) } else { String::new() };
        let (how, headline) = match &self.how {
            Ended::Lost(how) => ("was lost".into(), Some(how.as_str())),
            Ended::NotStarted { reason, .. } => ("could not be started".into(), Some(reason.as_str())),
            Ended::Early => {
                ("ended with exit code 0".into(), Some("it never joined the other ranks, which wait for it"))
            }
            Ended::Stopped => ("was stopped by a signal".into(), Some("nobody continued it")),
            how => (how.to_string(), headline),
        };
        let why = headline.map(|line| format!(": {}", shorten(line))).unwrap_or_default();
        let time = duration_in_words(self.ran_for);
        let error = paint(Style::Bad, "error:");
        let mut lines = vec![format!("{error} {rank}{place} {how} after {time}{why}")];
        lines.extend(self.repeat(&paint));
        lines.extend(self.meanwhile(&paint));
        if !self.profile.is_empty() {
            lines.push(Short(&self.profile).to_string().trim_end().to_owned());
        }
        if let Some(folder) = &self.folder {
            let file = folder.join(file_name(self.rank, &self.cast));
            lines.push(format!("{} {}", paint(Style::Bold, "all of its output:"), file.display()));
        }
        lines.push(format!("{} {hint}", paint(Style::Bold, "hint:")));
        lines.join("\n")
    }

    /// The last lines of the failed rank.
    fn repeat(&self, paint: &impl Fn(Style, &str) -> String) -> Vec<String> {
        let last = &self.last_lines[self.last_lines.len().saturating_sub(LAST)..];
        let pid = self.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        if last.is_empty() {
            return vec![paint(Style::Bold, &format!("{}{pid} wrote nothing", self.cast.name(self.rank)))];
        }
        let title = paint(Style::Bold, &format!("last lines of {}{pid}:", self.cast.name(self.rank)));
        let bar = paint(Style::Faint, "|");
        let lines = last.iter().map(|line| format!("  {bar} {}", shorten(line)).trim_end().to_owned());
        std::iter::once(title).chain(lines).collect()
    }

    /// What the others were doing; ranks that did the same are grouped.
    fn meanwhile(&self, paint: &impl Fn(Style, &str) -> String) -> Vec<String> {
        let mut groups: Vec<(Vec<usize>, &str)> = Vec::new();
        for (rank, doing) in &self.others {
            match groups.iter_mut().find(|(_, same)| same == doing) {
                Some((ranks, _)) => ranks.push(*rank),
                None => groups.push((vec![*rank], doing)),
            }
        }
        let mut lines = Vec::new();
        if !groups.is_empty() {
            lines.push(paint(Style::Bold, "the others meanwhile:"));
        }
        let shown = if groups.len() > GROUPS { GROUPS - 1 } else { GROUPS };
        for (ranks, doing) in groups.iter().take(shown) {
            let who = if ranks.len() == 1 { "rank" } else { "ranks" };
            lines.push(shorten(&format!("  {who} {}: {doing}", ranks_in_words(ranks))));
        }
        let rest: usize = groups.iter().skip(shown).map(|(ranks, _)| ranks.len()).sum();
        if rest > 0 {
            lines.push(format!("  … and {rest} more ranks"));
        }
        lines
    }
}

/// The message about a job that succeeded.
pub fn success(ranks: usize, hosts: usize, time: Duration) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let time = duration_in_words(time);
    format!("{ranks} rank{} on {hosts} host{} finished in {time}", plural(ranks), plural(hosts))
}

/// The message about a job that is started again.
pub fn restarted(how: &str, after: Duration, restart: u32, most: u32) -> String {
    format!("{how} after {}; all ranks are started again (restart {restart} of {most})", duration_in_words(after))
}

/// The message about a job that was ended by a signal.
pub fn interrupted(signal: i32, time: Duration) -> String {
    format!("ended by {} after {}", signal_name(signal), duration_in_words(time))
}

/// The message about a job that could not go on.
pub fn stuck(reason: &str, time: Duration) -> String {
    format!(
        "error: the job ended after {}: {reason}\n\
         hint: --elastic-timeout and --min-ranks say how long and with how few it goes on (docs/elastic.md)",
        duration_in_words(time)
    )
}

/// A line that is not too long for a report.
fn shorten(line: &str) -> String {
    match line.char_indices().nth(WIDE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}
