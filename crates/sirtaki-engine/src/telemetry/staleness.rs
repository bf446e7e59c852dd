//! How stale weights were that came from parameter servers, and how long a rank waited for them: counted, and as parts of a
//! profile.

use std::{fmt, time::Duration};

use serde_json::{Value, json};
use sirtaki_comm::Rank;

use super::{
    Stream,
    counts::{Counts, PROGRESS},
    profile::{Compared, Profile, seconds},
    progress,
    recorder::Recorder,
};

/// Classes of how many steps were lacking: 0, 1, 2 and 3, then from each power of two up to the next, and all above the last.
pub const STALENESS: usize = 9;
/// Where the words begin: one for each class, then nanoseconds.
const FIRST: usize = PROGRESS + progress::WORDS;
/// Words in the table of numbers.
pub(super) const WORDS: usize = STALENESS + 1;

fn class(steps: u64) -> usize {
    match steps {
        0..=3 => steps as usize,
        _ => (steps.ilog2() as usize + 2).min(STALENESS - 1),
    }
}

/// The smallest number of steps in a class.
pub fn stale_from(class: usize) -> u64 {
    if class < 4 { class as u64 } else { 1 << (class - 2) }
}

/// The steps of a class, in words.
fn steps_of(class: usize) -> String {
    let (from, next) = (stale_from(class), stale_from(class + 1));
    match class {
        last if last + 1 == STALENESS => format!("{from} and more"),
        _ if from + 1 == next => from.to_string(),
        _ => format!("{from} to {}", next - 1),
    }
}

impl Stream {
    /// Weights came from servers that lacked so many steps of the slowest worker, after that long.
    pub(crate) fn served(&self, lacking: u64, waited: Duration) {
        self.recorder.served(lacking, u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }
}

impl Recorder {
    fn served(&self, lacking: u64, nanos: u64) {
        self.add(FIRST + class(lacking), 1);
        self.add(FIRST + STALENESS, nanos);
    }
}

impl Counts {
    /// How often weights came from servers that lacked so many steps, by class.
    pub fn staleness(&self) -> [u64; STALENESS] {
        std::array::from_fn(|class| self.get(FIRST + class).min(u64::MAX >> 12))
    }

    /// Nanoseconds in which the rank waited for them.
    pub fn served(&self) -> u64 {
        self.get(FIRST + STALENESS).min(u64::MAX >> 12)
    }
}

impl Profile {
    /// How stale weights were on all ranks together.
    fn staleness(&self) -> [u64; STALENESS] {
        let add = |sum: [u64; STALENESS], more: [u64; STALENESS]| std::array::from_fn(|class| sum[class] + more[class]);
        self.known().map(|(_, counts)| counts.staleness()).fold([0; STALENESS], add)
    }

    /// A histogram, where there were servers.
    pub(super) fn staleness_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = self.staleness();
        let all: u64 = classes.iter().sum();
        if all == 0 {
            return Ok(());
        }
        writeln!(f, "\n{:<24} {:>12} {:>6}", "steps that weights lacked", "times", "share")?;
        for (class, &times) in classes.iter().enumerate().filter(|(_, times)| **times > 0) {
            writeln!(f, "{:<25} {times:>12} {:>5.1}%", steps_of(class), 100.0 * times as f64 / all as f64)?;
        }
        let Compared { total, mean, most, rank } = self.compare(|counts| seconds(counts.served()));
        writeln!(f, "waiting for servers [s]: {total:.3} in all, {mean:.3} per rank, at most {most:.3} on rank {rank}")
    }

    /// The same of one rank.
    pub(super) fn staleness_as_json(&self, rank: Rank) -> Value {
        let Some(counts) =
            self.counts[rank].as_ref().filter(|counts| counts.staleness().iter().any(|&times| times > 0))
        else {
            return Value::Null;
        };
        let classes = counts.staleness();
        let used = classes.iter().enumerate().filter(|(_, times)| **times > 0);
        let steps: Vec<Value> =
            used.map(|(class, times)| json!({ "from_steps": stale_from(class), "times": times })).collect();
        json!({ "waited_seconds": seconds(counts.served()), "staleness": steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_told_apart_by_powers_of_two() {
        assert_eq!([0, 1, 3, 4, 7, 8, 31, 32, 63, 64, u64::MAX].map(class), [0, 1, 3, 4, 4, 5, 6, 7, 7, 8, 8]);
        assert_eq!((0..STALENESS).map(stale_from).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 8, 16, 32, 64]);
        assert_eq!([0, 3, 4, 8].map(steps_of), ["0", "3", "4 to 7", "64 and more"]);
    }

    #[test]
    fn a_profile_has_a_histogram_where_there_were_servers() {
        let recorder = Recorder::create().unwrap();
        let profile = |recorder: &Recorder| Profile::new(vec!["a".into()], vec![Some(recorder.counts())]);
        assert!(!profile(&recorder).to_string().contains("lacked"));
        assert!(profile(&recorder).staleness_as_json(0).is_null());
        recorder.served(0, 2_000_000_000);
        recorder.served(5, 500_000_000);
        recorder.served(6, 0);
        let page = profile(&recorder).to_string();
        assert!(page.contains("0                                    1  33.3%"), "{page}");
        assert!(page.contains("4 to 7                               2  66.7%"), "{page}");
        assert!(page.contains("2.500 in all"), "{page}");
        let json = profile(&recorder).staleness_as_json(0);
        assert_eq!(json["waited_seconds"], 2.5);
        assert_eq!(json["staleness"][1], json!({ "from_steps": 4, "times": 2 }));
    }
}
