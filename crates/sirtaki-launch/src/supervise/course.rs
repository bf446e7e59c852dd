//! The course of a job from its start to its end: what happened, and what has to be done about it. Pure; the time is
//! passed in.
//!
//! The first rank that fails decides the job's result. The others get a moment to notice by themselves, so that their
//! messages about it arrive; then they are asked to end, and killed if they do not.
//!
//! The first to fail is not always the first to end: a rank that runs exit handlers has left the others long before its
//! process ends, and they may be faster. So a rank that fails because another one is gone names that one, whose end is
//! then awaited and decides the result.
//!
//! What the end of a process means depends on its role ([`Cast`]): ranks that do without each other are let go on, and the
//! job fails only if none of them succeeds; processes that may return are started again in their place; and those for whom
//! the job does not wait are asked to end when all others are done.
//!
//! Once a rank has ended well, the others are looked at now and then: one that is stopped by a signal while nobody else is
//! left to miss it would keep the job for ever. It gets the time that ranks may be silent.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
use sirtaki_engine::telemetry::recorder::Culprit;

use super::outcome::{Action, Outcome};
use crate::{
    ended::Ended,
    roles::{Cast, Role, Verdict},
};

/// How long ranks may take to notice that another one failed.
const NOTICING: Duration = Duration::from_secs(3);
/// How much longer the missing rank may take to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(30);
/// How long agents may take to confirm that everything was killed.
const CONFIRMING: Duration = Duration::from_secs(5);
/// The same if the user has asked twice.
const HURRY: Duration = Duration::from_millis(300);
/// How long to wait at first before checking ranks again after one has ended well.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// And the longest such wait.
const LOOK_SELDOM: Duration = Duration::from_secs(60);

/// What comes next by itself.
#[derive(Debug, Clone, Copy)]
enum Next {
    Nothing,
    Look(Instant, Duration),
    Await(Instant),
    Ask(Instant),
    Kill(Instant),
    GiveUp(Instant),
}

/// The course so far.
#[derive(Debug)]
pub(super) struct Course {
    grace: Duration,
    /// How long a rank may be stopped once no other is left.
    silence: Duration,
    /// Since when each rank has been stopped, as far as is known.
    stopped: Vec<Option<Instant>>,
    /// Whether that was reported.
    reported: bool,
    /// Who the processes are.
    cast: Cast,
    /// Whether a trial has succeeded, and which one failed first.
    trials: (bool, Option<(usize, Ended)>),
    ended: Vec<bool>,
    closed: Vec<bool>,
    /// Processes that have ended and return as soon as their output is complete, and how often each has returned.
    returning: Vec<bool>,
    returned: Vec<u32>,
    /// Whether what the end of a rank means is decided elsewhere.
    members: bool,
    /// Whether those for whom the job does not wait have been asked to end.
    released: bool,
    /// Hosts that have been asked what their ranks are doing and have not answered yet.
    asked: Vec<bool>,
    outcome: Outcome,
    /// The rank that the failed one waited for in vain.
    culprit: Option<Culprit>,
    /// That rank, while it has not ended and its end would decide the result.
    missed: Option<usize>,
    /// A rank that ended with success without having joined the others.
    early: Option<usize>,
    next: Next,
}

impl Course {
    pub(super) fn new(cast: Cast, hosts: usize, grace: Duration, silence: Duration) -> Self {
        let processes = cast.processes();
        Self {
            grace,
            silence,
            stopped: vec![None; processes],
            reported: false,
            cast,
            trials: (false, None),
            ended: vec![false; processes],
            closed: vec![false; processes],
            returning: vec![false; processes],
            returned: vec![0; processes],
            members: false,
            released: false,
            asked: vec![false; hosts],
            outcome: Outcome::Success,
            culprit: None,
            missed: None,
            early: None,
            next: Next::Nothing,
        }
    }

    pub(super) fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Whether all ranks have ended, all their output has arrived, and all hosts have answered.
    pub(super) fn is_over(&self) -> bool {
        self.closed.iter().all(|&closed| closed) && !self.asked.contains(&true)
    }

    /// Whether a process has ended for good.
    pub(super) fn has_ended(&self, process: usize) -> bool {
        self.ended[process] && !self.returning[process]
    }

    /// How often a process was started again.
    pub(super) fn returns_of(&self, process: usize) -> u32 {
        self.returned[process]
    }

    /// All output of a process has arrived, so that it can return if it may.
    pub(super) fn closed(&mut self, process: usize) -> Vec<Action> {
        self.closed[process] = true;
        if !std::mem::take(&mut self.returning[process]) || self.outcome != Outcome::Success || self.released {
            return Vec::new();
        }
        self.returned[process] += 1;
        self.began(process);
        vec![Action::Return(process)]
    }

    /// The course of an elastic job, in which no rank runs yet. What the end of a rank means is decided elsewhere.
    pub(super) fn of_members(mut self) -> Self {
        self.members = true;
        self.ended[..self.cast.ranks].fill(true);
        self.closed[..self.cast.ranks].fill(true);
        self
    }

    /// A process was started in the place of one that has ended.
    pub(super) fn began(&mut self, seat: usize) {
        (self.ended[seat], self.closed[seat], self.stopped[seat]) = (false, false, None);
    }

    /// Asks those to end for whom the job does not wait, if all others have ended well.
    pub(super) fn release(&mut self, now: Instant) {
        let mut running = (0..self.ended.len()).filter(|&process| !self.has_ended(process)).peekable();
        if self.outcome != Outcome::Success || self.released || running.peek().is_none() {
            return;
        }
        if !running.any(|process| self.cast.is_awaited(process)) {
            (self.released, self.next) = (true, Next::Ask(now));
        }
    }

    /// A process of an elastic job has ended.
    pub(super) fn left(&mut self, seat: usize) {
        self.ended[seat] = true;
    }

    /// An elastic job ends like this: its processes have a moment to end by themselves, or time to save their work.
    pub(super) fn end(&mut self, outcome: Outcome, now: Instant) {
        if self.outcome == Outcome::Success {
            let pause = if matches!(outcome, Outcome::Stuck(_)) { self.grace } else { NOTICING };
            (self.outcome, self.next) = (outcome, Next::Ask(now + pause));
        }
    }

    /// This host was asked what its ranks are doing.
    pub(super) fn asked(&mut self, host: usize) {
        self.asked[host] = true;
    }

    /// This host has answered, or never will.
    pub(super) fn answered(&mut self, host: usize) {
        self.asked[host] = false;
    }

    /// When [`Course::tick`] has something to do.
    pub(super) fn alarm(&self) -> Option<Instant> {
        match self.next {
            Next::Nothing => None,
            Next::Look(time, _) | Next::Await(time) | Next::Ask(time) | Next::Kill(time) | Next::GiveUp(time) => {
                Some(time)
            }
        }
    }

    /// A process ended; `culprit` is the rank it waited for in vain, and `joined` says whether it had met the others.
    pub(super) fn ended(
        &mut self,
        process: usize,
        how: &Ended,
        (culprit, joined): (Option<Culprit>, bool),
        now: Instant,
    ) -> Vec<Action> {
        (self.ended[process], self.returning[process]) = (true, false);
        let goes_on = self.outcome == Outcome::Success && !self.released;
        match self.cast.verdict(process, how, self.returned[process]) {
            // It was asked to end, however it did.
            _ if self.released && !self.cast.is_awaited(process) => return Vec::new(),
            Verdict::Alone => {
                self.failed_alone(process, how, now);
                self.release(now);
                return Vec::new();
            }
            Verdict::Returns if goes_on => {
                self.returning[process] = true;
                return Vec::new();
            }
            _ => {}
        }
        self.trials.0 |= self.cast.role(process) == Role::Trial;
        let actions = self.heed(process, how, (culprit, joined), now);
        if !self.members {
            self.release(now);
        }
        actions
    }

    /// What follows from the end of a process that others may need.
    fn heed(
        &mut self,
        process: usize,
        how: &Ended,
        (culprit, joined): (Option<Culprit>, bool),
        now: Instant,
    ) -> Vec<Action> {
        let failed = !how.is_success();
        match &self.outcome {
            Outcome::Success if failed => {
                self.fail(process, how, culprit, now);
                return vec![Action::Look];
            }
            Outcome::Success if !self.cast.is_rank(process) => {}
            Outcome::Success if !joined && self.early.is_none() => {
                self.early = Some(process);
                self.next = Next::Look(now, LOOK_AGAIN);
            }
            Outcome::Success if matches!(self.next, Next::Nothing) => {
                self.next = Next::Look(now + LOOK_AGAIN, LOOK_AGAIN);
            }
            // Others may notice that a host is gone before the launcher does.
            Outcome::Failed { .. } if matches!(how, Ended::Lost(_)) && self.accuses(process) => {
                self.outcome = Outcome::Failed { rank: process, how: how.clone() };
            }
            Outcome::Failed { .. } if self.missed == Some(process) => {
                if failed {
                    self.fail(process, how, culprit, now);
                } else {
                    (self.missed, self.next) = (None, Next::Ask(now + NOTICING));
                }
            }
            _ => {}
        }
        Vec::new()
    }

    /// A trial failed, which nobody else needs. The first one to do so decides if none succeeds.
    fn failed_alone(&mut self, rank: usize, how: &Ended, now: Instant) {
        let last = (0..self.ended.len()).all(|process| self.ended[process] || !self.cast.is_awaited(process));
        let (succeeded, first) = &mut self.trials;
        let (first, how) = first.get_or_insert((rank, how.clone())).clone();
        if !*succeeded && self.outcome == Outcome::Success && last {
            // Whoever is left is asked to end.
            (self.outcome, self.next) = (Outcome::Failed { rank: first, how }, Next::Ask(now));
        }
    }

    /// Whether the rank that failed waited for this one in vain.
    fn accuses(&self, rank: usize) -> bool {
        self.culprit.is_some_and(|culprit| culprit.rank == rank)
    }

    fn fail(&mut self, rank: usize, how: &Ended, culprit: Option<Culprit>, now: Instant) {
        self.outcome = Outcome::Failed { rank, how: how.clone() };
        self.culprit = culprit;
        let running = |rank: &usize| self.ended.get(*rank) == Some(&false);
        self.missed = culprit.filter(|culprit| culprit.gone).map(|culprit| culprit.rank).filter(running);
        self.next = match self.missed {
            Some(_) => Next::Await(now + NOTICING),
            None => Next::Ask(now + NOTICING),
        };
    }

    /// A rank waits until all ranks of the job are there, which cannot be any more if one has ended.
    pub(super) fn meets(&mut self, now: Instant) {
        if let (Outcome::Success, Some(rank)) = (&self.outcome, self.early) {
            self.outcome = Outcome::Failed { rank, how: Ended::Early };
            self.next = Next::Ask(now);
        }
    }

    /// A rank was looked at, and is stopped or not. If another one failed because of that, it is the culprit; if no other
    /// is left that runs, it has a while to go on.
    pub(super) fn looked(&mut self, rank: usize, is_stopped: bool, now: Instant) -> Vec<Action> {
        if !is_stopped {
            self.stopped[rank] = None;
            return Vec::new();
        }
        let since = *self.stopped[rank].get_or_insert(now);
        if self.outcome != Outcome::Success {
            self.blame_stopped(rank);
            return Vec::new();
        }
        if self.released || !self.cast.is_awaited(rank) {
            return Vec::new();
        }
        let stands = |process: usize| self.has_ended(process) || self.stopped[process].is_some();
        let is_left = (0..self.ended.len()).filter(|&process| self.cast.is_awaited(process)).all(stands);
        let (true, Some(deadline)) = (is_left, since.checked_add(self.silence)) else { return Vec::new() };
        if now >= deadline {
            self.outcome = Outcome::Failed { rank, how: Ended::Stopped };
            self.next = Next::Ask(now);
            return Vec::new();
        }
        self.next = Next::Look(deadline.min(now + LOOK_SELDOM), LOOK_AGAIN);
        let first = !std::mem::replace(&mut self.reported, true);
        first.then_some(Action::Stands(rank)).into_iter().collect()
    }

    fn blame_stopped(&mut self, rank: usize) {
        let Outcome::Failed { rank: first, how: Ended::Code(_) } = &self.outcome else { return };
        if *first != rank && self.culprit.is_none_or(|culprit| culprit.rank == rank) {
            self.outcome = Outcome::Failed { rank, how: Ended::Stopped };
            self.missed = None;
        }
    }

    pub(super) fn signalled(&mut self, signal: i32, now: Instant) -> Vec<Action> {
        match signal {
            SIGINT | SIGTERM | SIGHUP | SIGQUIT if matches!(self.outcome, Outcome::Interrupted(_)) => {
                self.next = Next::GiveUp(now + HURRY);
                vec![Action::Kill]
            }
            SIGINT | SIGTERM | SIGHUP | SIGQUIT | SIGPIPE => {
                if self.outcome == Outcome::Success {
                    self.outcome = Outcome::Interrupted(signal);
                }
                self.missed = None;
                self.next = Next::Kill(now + self.grace);
                vec![Action::Signal(if signal == SIGINT { SIGINT } else { SIGTERM })]
            }
            // Its meaning is a matter between the scheduler and the program.
            other => vec![Action::Signal(other)],
        }
    }

    pub(super) fn tick(&mut self, now: Instant) -> Vec<Action> {
        if self.alarm().is_none_or(|time| now < time) {
            return Vec::new();
        }
        let (next, action) = match self.next {
            Next::Look(_, pause) => (Next::Look(now + pause, (2 * pause).min(LOOK_SELDOM)), Some(Action::Look)),
            Next::Await(_) => (Next::Ask(now + LAST_WORDS), self.missed.map(Action::Await)),
            Next::Ask(_) => {
                // From now on, ranks end because the launcher ends them.
                self.missed = None;
                (Next::Kill(now + self.grace), Some(Action::Signal(SIGTERM)))
            }
            Next::Kill(_) => (Next::GiveUp(now + CONFIRMING), Some(Action::Kill)),
            Next::GiveUp(_) => (Next::Nothing, Some(Action::GiveUp)),
            Next::Nothing => (Next::Nothing, None),
        };
        self.next = next;
        action.into_iter().collect()
    }
}

#[cfg(test)]
#[path = "course_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "course_histories.rs"]
mod histories;
