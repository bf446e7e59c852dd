//! The course of a job from its start to its end: what happened, and what has to be done about it. Pure; the time is
//! passed in.
//!
//! The first rank that fails decides the job's result. The others get a moment to notice by themselves, so that what
//! they say about it is heard; then they are asked to end, and killed if they do not.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};

use crate::launch::ended::Ended;

/// How long ranks may take to notice that another one failed.
const NOTICING: Duration = Duration::from_secs(3);

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Send this signal to every rank.
    Signal(i32),
    /// Kill everything.
    Kill,
    /// Ask what every rank is doing.
    Look,
}

/// How the job came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All ranks ended well.
    Success,
    /// This rank failed first.
    Failed {
        /// Which one.
        rank: usize,
        /// How.
        how: Ended,
    },
    /// Somebody ended it with this signal.
    Interrupted(i32),
}

impl Outcome {
    /// The job's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Outcome::Success => 0,
            Outcome::Failed { how, .. } => how.exit_code(),
            Outcome::Interrupted(signal) => 128 + (*signal as u8 & 0x7f),
        }
    }
}

/// What comes next by itself.
#[derive(Debug, Clone, Copy)]
enum Next {
    Nothing,
    Ask(Instant),
    Kill(Instant),
}

/// The course so far.
#[derive(Debug)]
pub(super) struct Course {
    grace: Duration,
    ended: Vec<bool>,
    closed: Vec<bool>,
    outcome: Outcome,
    next: Next,
}

impl Course {
    pub(super) fn new(ranks: usize, grace: Duration) -> Self {
        let (ended, closed) = (vec![false; ranks], vec![false; ranks]);
        Self { grace, ended, closed, outcome: Outcome::Success, next: Next::Nothing }
    }

    pub(super) fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Whether all ranks have ended and said all they had to say.
    pub(super) fn is_over(&self) -> bool {
        self.closed.iter().all(|&closed| closed)
    }

    pub(super) fn has_ended(&self, rank: usize) -> bool {
        self.ended[rank]
    }

    pub(super) fn closed(&mut self, rank: usize) {
        self.closed[rank] = true;
    }

    /// When [`Course::tick`] has something to do.
    pub(super) fn alarm(&self) -> Option<Instant> {
        match self.next {
            Next::Nothing => None,
            Next::Ask(time) | Next::Kill(time) => Some(time),
        }
    }

    pub(super) fn ended(&mut self, rank: usize, how: &Ended, now: Instant) -> Vec<Action> {
        self.ended[rank] = true;
        if how.is_success() || self.outcome != Outcome::Success {
            return Vec::new();
        }
        self.outcome = Outcome::Failed { rank, how: how.clone() };
        self.next = Next::Ask(now + NOTICING);
        vec![Action::Look]
    }

    pub(super) fn signalled(&mut self, signal: i32, now: Instant) -> Vec<Action> {
        match signal {
            SIGINT | SIGTERM | SIGHUP if matches!(self.outcome, Outcome::Interrupted(_)) => {
                self.next = Next::Nothing;
                vec![Action::Kill]
            }
            SIGINT | SIGTERM | SIGHUP | SIGPIPE => {
                if self.outcome == Outcome::Success {
                    self.outcome = Outcome::Interrupted(signal);
                }
                self.next = Next::Kill(now + self.grace);
                vec![Action::Signal(if signal == SIGINT { SIGINT } else { SIGTERM })]
            }
            // What it means is between the scheduler and the program.
            other => vec![Action::Signal(other)],
        }
    }

    pub(super) fn tick(&mut self, now: Instant) -> Vec<Action> {
        match self.next {
            Next::Ask(time) if now >= time => {
                self.next = Next::Kill(now + self.grace);
                vec![Action::Signal(SIGTERM)]
            }
            Next::Kill(time) if now >= time => {
                self.next = Next::Nothing;
                vec![Action::Kill]
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use signal_hook::consts::SIGUSR1;

    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn killed() -> Ended {
        Ended::Signal { number: 9, out_of_memory: false }
    }

    #[test]
    fn the_first_failure_decides_and_the_others_are_asked_then_killed() {
        let (mut course, start) = (Course::new(3, GRACE), Instant::now());
        assert!(course.ended(0, &Ended::Code(0), start).is_empty());
        assert_eq!(course.ended(1, &killed(), start), [Action::Look]);
        assert!(course.tick(start + NOTICING / 2).is_empty());
        assert_eq!(course.tick(start + NOTICING), [Action::Signal(SIGTERM)]);
        assert!(course.tick(start + NOTICING + GRACE / 2).is_empty());
        assert_eq!(course.tick(start + NOTICING + GRACE), [Action::Kill]);
        assert!(course.ended(2, &Ended::Code(1), start + NOTICING + GRACE).is_empty());
        assert_eq!(course.outcome(), &Outcome::Failed { rank: 1, how: killed() });
        assert_eq!(course.outcome().code(), 137);
        assert!(!course.is_over());
        (0..3).for_each(|rank| course.closed(rank));
        assert!(course.is_over());
    }

    #[test]
    fn an_interrupt_is_polite_once() {
        let (mut course, start) = (Course::new(1, GRACE), Instant::now());
        assert_eq!(course.signalled(SIGUSR1, start), [Action::Signal(SIGUSR1)]);
        assert_eq!(course.alarm(), None);
        assert_eq!(course.signalled(SIGINT, start), [Action::Signal(SIGINT)]);
        assert_eq!(course.alarm(), Some(start + GRACE));
        assert_eq!(course.signalled(SIGINT, start), [Action::Kill]);
        course.ended(0, &killed(), start);
        assert_eq!(course.outcome().code(), 130);
    }
}
