//! Following the ranks of a benchmark: collecting results, and finding out which rank caused a failure.

use std::{
    process::ExitStatus,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use sirtaki_launch::{
    ended::Ended,
    local::{LocalJob, WorkerEvent},
};

use super::row::{Measurement, WorkerMessage};
use crate::{
    args::{Allreduce, Choice},
    printer::{Advice, Printer},
};

/// How long the other ranks may take to report after the first one failed.
const GRACE: Duration = Duration::from_secs(3);
/// Progress is not reported before this time.
const QUIET: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(200);

/// What is known about the ranks that did not succeed.
#[derive(Default)]
struct Failures {
    /// Ranks that died or failed without a message, in the order in which that was noticed.
    silent: Vec<(usize, u32, ExitStatus)>,
    /// Ranks that said why they gave up, in the order of their messages.
    spoken: Vec<(usize, String, Option<String>)>,
    since: Option<Instant>,
}

/// Collects the results. Ends when all ranks have ended, or some time after the first one failed.
pub(super) fn follow(mut job: LocalJob, arguments: &Allreduce, printer: &mut Printer) -> Result<Vec<Measurement>> {
    let (start, mut rows, mut failures) = (Instant::now(), Vec::new(), Failures::default());
    let mut skipped = Vec::new();
    while !job.is_over() && failures.since.is_none_or(|since| since.elapsed() < GRACE) {
        match job.next(TICK)? {
            Some(WorkerEvent::Output { rank, line }) => match serde_json::from_str(&line) {
                Ok(WorkerMessage::Measured(row)) => {
                    if arguments.json {
                        printer.data(&serde_json::to_string(&row)?)?;
                    }
                    rows.push(row);
                }
                Ok(WorkerMessage::Connected { back_end }) => printer.message(&headline(arguments, &back_end)),
                Ok(WorkerMessage::Skipped { algorithm }) => skipped.push(algorithm),
                Ok(WorkerMessage::Failed { message, hint }) => failures.hear(rank, message, hint),
                Err(_) => printer.message(&format!("rank {rank}: {line}")),
            },
            Some(WorkerEvent::Message { rank, line }) => printer.message(&format!("rank {rank}: {line}")),
            Some(WorkerEvent::Ended { rank, status }) => failures.note(rank, job.pid(rank), status),
            None => {}
        }
        if start.elapsed() > QUIET && !job.is_over() {
            printer.progress(&progress(&rows, arguments, start));
        }
    }
    job.end();
    if let Some(error) = failures.into_error() {
        return Err(error);
    }
    if !skipped.is_empty() {
        printer.message(&format!("not available here: {}", skipped.join(", ")));
    }
    Ok(rows)
}

fn headline(arguments: &Allreduce, back_end: &str) -> String {
    format!("all-reduce (sum) of {} among {} processes, back end {back_end}", arguments.dtype.name(), arguments.ranks)
}

fn progress(rows: &[Measurement], arguments: &Allreduce, start: Instant) -> String {
    let mut done: Vec<usize> = rows.iter().map(|row| row.bytes).collect();
    done.dedup();
    let what = match &arguments.algorithm {
        Choice::All => "all algorithms".into(),
        these => these.to_string(),
    };
    let (done, all) = (done.len(), arguments.sizes.list().len());
    format!("measuring {what}: {done} of {all} sizes, {:.0} s", start.elapsed().as_secs_f64())
}

impl Failures {
    fn hear(&mut self, rank: usize, message: String, hint: Option<String>) {
        self.since.get_or_insert_with(Instant::now);
        self.spoken.push((rank, message, hint));
    }

    fn note(&mut self, rank: usize, pid: u32, status: ExitStatus) {
        if !status.success() && self.spoken.iter().all(|(known, ..)| *known != rank) {
            self.since.get_or_insert_with(Instant::now);
            self.silent.push((rank, pid, status));
        }
    }

    /// The error to show. A rank that died without a message is the cause of what the others report about it.
    fn into_error(self) -> Option<anyhow::Error> {
        if let Some((rank, pid, status)) = self.silent.first() {
            let message = format!("rank {rank} (pid {pid}) {}", Ended::from(*status));
            return Some(match self.spoken.first() {
                None => anyhow!(message),
                Some((other, said, _)) => Advice::new(message, format!("rank {other} says: {said}")).into(),
            });
        }
        let (rank, said, hint) = self.spoken.into_iter().next()?;
        let message = format!("rank {rank}: {said}");
        Some(match hint {
            Some(hint) => Advice::new(message, hint).into(),
            None => anyhow!(message),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::printer::hint;

    #[test]
    fn a_silent_death_explains_what_the_others_say() {
        let mut failures = Failures::default();
        failures.hear(0, "rank 1 is gone".into(), Some("look at it".into()));
        failures.note(0, 10, ExitStatus::from_raw(1 << 8));
        failures.note(1, 11, ExitStatus::from_raw(9));
        let error = failures.into_error().unwrap();
        assert_eq!(error.to_string(), "rank 1 (pid 11) was killed by SIGKILL");
        assert_eq!(hint(&error).unwrap(), "rank 0 says: rank 1 is gone");
    }

    #[test]
    fn without_a_death_the_first_word_counts() {
        let mut failures = Failures::default();
        failures.note(0, 10, ExitStatus::from_raw(0));
        assert!(failures.since.is_none());
        failures.hear(1, "no such thing".into(), Some("try another".into()));
        failures.hear(0, "stopped".into(), None);
        let error = failures.into_error().unwrap();
        assert_eq!(
            (error.to_string().as_str(), hint(&error).unwrap().as_str()),
            ("rank 1: no such thing", "try another")
        );
        assert!(Failures::default().into_error().is_none());
    }
}
