//! What follows from one run: the figures that a report compares.

use super::read::{RecordedRun, RunState};

/// The setting that says after how many steps a run was to end, short of its epochs.
pub(crate) const LIMIT: &str = "max_steps";
/// The setting that says from which step a run went on.
pub(crate) const RESUMED: &str = "resumed_step";

/// A part of a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Its beginning: it was limited to some steps.
    CutShort,
    /// Its end: it went on from a checkpoint.
    Continued,
    /// All of it, but by workers whose number changed.
    Changed,
}

impl RecordedRun {
    /// Which part of a training this run is, if it is not a whole one on the same workers. Runs of a planned series are all
    /// cut short in the same way, so they can be compared.
    pub(crate) fn part(&self) -> Option<Part> {
        match (self.setting(RESUMED), self.setting(LIMIT)) {
            (Some(_), _) => Some(Part::Continued),
            (_, Some(_)) if !self.planned => Some(Part::CutShort),
            _ if self.rounds.len() > 1 => Some(Part::Changed),
            _ => None,
        }
    }

    /// Whether its figures count in a mean. Others are drawn and listed.
    pub(crate) fn counts(&self) -> bool {
        self.state == RunState::Finished
    }

    /// Samples per second of all workers from the first row to the last, with everything in between: testing and
    /// checkpoints too. What came before the first row, such as starting, does not count if there is another row.
    pub(crate) fn throughput(&self) -> Option<f64> {
        let mut rows = self.steps.iter().filter_map(|step| Some((step.seconds?, step.samples?)));
        let first = rows.next()?;
        let last = rows.next_back().filter(|last| last.0 > first.0 && last.1 > first.1);
        let (seconds, samples) = last.map_or(first, |last| (last.0 - first.0, last.1 - first.1));
        (seconds > 0.0 && samples > 0.0).then(|| samples / seconds)
    }

    /// Of the last test.
    pub(crate) fn test_accuracy(&self) -> Option<f64> {
        self.steps.iter().rev().find_map(|step| step.test_accuracy)
    }

    /// The accuracy to reach: what was asked for, or what the run set itself.
    pub(crate) fn target(&self, asked: Option<f64>) -> Option<f64> {
        asked.or_else(|| self.settings.get("target_accuracy")?.parse().ok()).filter(|target| *target > 0.0)
    }

    /// Seconds from the start to the first test that reached this accuracy.
    pub(crate) fn time_to(&self, accuracy: f64) -> Option<f64> {
        let reached = |test: Option<f64>| test.is_some_and(|test| test >= accuracy);
        self.steps.iter().find(|step| reached(step.test_accuracy)).and_then(|step| step.seconds)
    }

    /// The largest of all ranks, in bytes.
    pub(crate) fn memory(&self) -> Option<f64> {
        let ranks = &self.profile.as_ref()?.ranks;
        ranks.iter().map(|rank| rank.largest_memory_bytes).max_by(f64::total_cmp).filter(|bytes| *bytes > 0.0)
    }

    /// The largest of all GPUs, in bytes.
    pub(crate) fn gpu_memory(&self) -> Option<f64> {
        let gpus = self.profile.as_ref()?.ranks.iter().filter_map(|rank| rank.gpu.as_ref()?.largest_memory_bytes);
        gpus.max_by(f64::total_cmp)
    }

    /// Seconds from start to end, or as far as is known.
    pub(crate) fn lasted(&self) -> Option<f64> {
        self.seconds.or_else(|| self.steps.last()?.seconds)
    }

    /// The value of a setting, such as the batch size.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::report::read::RecordedStep;

    fn run(rows: &[(f64, Option<f64>, Option<f64>)]) -> RecordedRun {
        let row = |&(seconds, samples, test_accuracy)| RecordedStep {
            seconds: Some(seconds),
            samples,
            test_accuracy,
            ..RecordedStep::default()
        };
        RecordedRun { steps: rows.iter().map(row).collect(), ..RecordedRun::default() }
    }

    #[test]
    fn throughput_leaves_out_the_start_but_no_test() {
        assert_eq!(run(&[]).throughput(), None);
        assert_eq!(run(&[(2.0, Some(100.0), None)]).throughput(), Some(50.0));
        let rows =
            [(5.0, Some(100.0), None), (6.0, None, Some(0.9)), (7.0, Some(300.0), None), (9.0, Some(300.0), Some(0.9))];
        assert_eq!(run(&rows).throughput(), Some(50.0));
        assert_eq!(run(&[(1.0, Some(100.0), None), (1.0, Some(200.0), None)]).throughput(), Some(100.0));
    }

    #[test]
    fn parts_of_a_training_are_told_from_whole_ones() {
        let with = |name: &str| {
            let settings = [(name.to_owned(), "20".to_owned())].into();
            RecordedRun { settings, ..RecordedRun::default() }
        };
        assert_eq!((with("seed").part(), with(LIMIT).part()), (None, Some(Part::CutShort)));
        assert_eq!(RecordedRun { planned: true, ..with(LIMIT) }.part(), None);
        assert_eq!(RecordedRun { planned: true, ..with(RESUMED) }.part(), Some(Part::Continued));
        let rounds = |count| RecordedRun { rounds: vec![String::new(); count], ..RecordedRun::default() }.part();
        assert_eq!((rounds(1), rounds(2)), (None, Some(Part::Changed)));
    }

    #[test]
    fn a_target_counts_from_the_first_test_that_reaches_it() {
        let mut run = run(&[(1.0, None, Some(0.5)), (2.0, None, Some(0.9)), (3.0, None, Some(0.8))]);
        assert_eq!((run.time_to(0.85), run.time_to(0.95), run.test_accuracy()), (Some(2.0), None, Some(0.8)));
        assert_eq!(run.target(None), None);
        run.settings.insert("target_accuracy".into(), "0.9".into());
        assert_eq!((run.target(None), run.target(Some(0.5))), (Some(0.9), Some(0.5)));
    }
}
