//! Keeps the slots busy: asks the study what to try, starts it, passes reports on, and tells the study how it ended.
//!
//! One thread decides everything, in the order in which events arrive. When a reason comes up to stop, nothing new starts,
//! what runs is ended in good order and goes back to the study as it was, to run again when the study is resumed.

mod seen;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender},
    time::{Duration, Instant},
};

use anyhow::Result;
use signal_hook::consts::SIGTERM;
use sirtaki_launch::{
    Controller, Outcome,
    ended::{Ended, signal_name},
};
use sirtaki_search::{
    journal::Owner,
    study::{Asked, Ending, State},
};

use self::seen::LivePage;
use super::{
    prepare::Prepared,
    trial::{self, Event},
};
use crate::{
    printer::{Advice, Printer, Style},
    study::{SLOT, limits::Limit, now, summary, values::Reported},
};

/// If so many trials fail before any does anything else, it is not the parameters' fault.
const FAILS_AT_ONCE: usize = 3;
/// How often the progress line changes by itself.
const TICK: Duration = Duration::from_secs(1);
/// Nothing happens by itself for this long.
const LONG: Duration = Duration::from_secs(3600);

/// Why a study is over.
pub(super) enum Over {
    /// All trials have ended.
    Done,
    /// Time is up.
    TimeLimit,
    /// Somebody wanted it.
    Signal(i32),
    /// Going on makes no sense.
    Failed(Advice),
}

/// Why a trial was ended from here.
#[derive(Debug, Clone, PartialEq)]
enum Cause {
    Stopped,
    Diverged,
    TimedOut,
    Interrupted(String),
}

struct Running {
    slot: usize,
    controller: Controller,
    deadline: Option<Instant>,
    /// The last value of each objective, then of each limit.
    values: Vec<Option<f64>>,
    cause: Option<Cause>,
}

pub(super) struct Runner<'a> {
    prepared: Prepared,
    program: &'a Path,
    printer: &'a mut Printer,
    quiet: bool,
    to: Sender<Event>,
    events: Receiver<Event>,
    running: BTreeMap<u64, Running>,
    /// Slots without a trial, in order; those where nothing can be started are gone.
    free: Vec<usize>,
    /// Trials that failed while none had ended in another way.
    failed_first: Option<usize>,
    over: Option<Over>,
    /// Whether the end of a trial may not be on the disk yet.
    told: bool,
    page: Option<LivePage>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(
        prepared: Prepared,
        program: &'a Path,
        (to, events): (Sender<Event>, Receiver<Event>),
        quiet: bool,
        printer: &'a mut Printer,
    ) -> Result<Self> {
        let free = (0..prepared.slots.len()).rev().collect();
        Ok(Self {
            prepared,
            program,
            printer,
            quiet,
            to,
            events,
            running: BTreeMap::new(),
            free,
            failed_first: Some(0),
            over: None,
            told: false,
            page: None,
        })
    }

    /// What is left of the runner: its study.
    pub(super) fn into_prepared(self) -> Prepared {
        self.prepared
    }

    /// Runs the study to its end.
    pub(super) fn run(&mut self) -> Over {
        loop {
            self.fill();
            // Slots do not wait for the disk: whatever just happened goes there at once, when they are busy again.
            if std::mem::take(&mut self.told)
                && let Err(advice) = self.prepared.store.flush()
            {
                self.stop(Over::Failed(advice), SIGTERM);
            }
            self.show();
            if self.running.is_empty() {
                self.close_page();
                return self.over.take().unwrap_or(Over::Done);
            }
            match self.events.recv_timeout(self.next_wake()) {
                Ok(event) => self.heed(event),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            while let Ok(event) = self.events.try_recv() {
                self.heed(event);
            }
            self.heed_time();
        }
    }

    fn heed(&mut self, event: Event) {
        match event {
            Event::Reported(number, reported) => self.reported(number, &reported),
            Event::Ended(number, ending, last) => self.ended(number, ending, last),
            Event::Signal(signal) => self.stop(Over::Signal(signal), signal),
        }
    }

    fn next_wake(&self) -> Duration {
        let tick = (self.shows_progress() || self.page.is_some()).then(|| Instant::now() + TICK);
        let deadlines = self.running.values().filter(|trial| trial.cause.is_none()).filter_map(|trial| trial.deadline);
        let end = self.prepared.end.filter(|_| self.over.is_none());
        let next = deadlines.chain(end).chain(tick).min();
        next.map_or(LONG, |next| next.saturating_duration_since(Instant::now()))
    }

    /// Ends what runs and starts nothing more.
    fn stop(&mut self, over: Over, signal: i32) {
        let why = match &over {
            Over::Signal(signal) => format!("the study was interrupted by {}", signal_name(*signal)),
            Over::TimeLimit => "the study's time was over".into(),
            _ => "the study was stopped".into(),
        };
        for trial in self.running.values_mut().filter(|trial| trial.cause.is_none()) {
            trial.cause = Some(Cause::Interrupted(why.clone()));
            trial.controller.signal(signal);
        }
        self.over.get_or_insert(over);
    }

    fn heed_time(&mut self) {
        let now = Instant::now();
        if self.over.is_none() && self.prepared.end.is_some_and(|end| end <= now) {
            self.stop(Over::TimeLimit, SIGTERM);
        }
        for trial in self.running.values_mut() {
            if trial.cause.is_none() && trial.deadline.is_some_and(|deadline| deadline <= now) {
                trial.cause = Some(Cause::TimedOut);
                trial.controller.signal(SIGTERM);
            }
        }
    }

    /// Gives every free slot a trial.
    fn fill(&mut self) {
        while self.over.is_none() && !self.free.is_empty() {
            if !self.can_finish_one_more() {
                if self.running.is_empty() {
                    self.over = Some(Over::TimeLimit);
                }
                return;
            }
            let Some(slot) = self.free.pop() else { return };
            let name = self.prepared.slots[slot].name.clone();
            let asked = self.prepared.store.change(false, |study| {
                let asked = study.ask(now())?;
                if let Some(asked) = &asked {
                    study.attribute(asked.number, Owner::User, SLOT, name.as_str().into())?;
                }
                Ok(asked)
            });
            match asked {
                Ok(Some(asked)) => self.start(slot, &asked),
                Ok(None) => return self.free.push(slot),
                Err(advice) => return self.stop(Over::Failed(advice), SIGTERM),
            }
        }
    }

    /// Whether a trial that starts now ends before time is over, as far as earlier ones tell.
    fn can_finish_one_more(&self) -> bool {
        let Some(end) = self.prepared.end else { return true };
        let finished = self.prepared.store.study().trials().iter().filter(|trial| trial.state == State::Finished);
        let longest = finished.filter_map(summary::seconds).fold(0.0, f64::max);
        Instant::now() + Duration::try_from_secs_f64(longest).unwrap_or(LONG) < end
    }

    fn start(&mut self, slot: usize, asked: &Asked) {
        let started = trial::start(&self.prepared, self.program, slot, asked, self.to.clone());
        match started {
            Ok(controller) => {
                let deadline = self.prepared.plan.timeout.map(|timeout| Instant::now() + timeout);
                let values = vec![None; self.prepared.plan.reported().len()];
                self.running.insert(asked.number, Running { slot, controller, deadline, values, cause: None });
            }
            Err(advice) => {
                self.tell(asked.number, Ending::Interrupted(advice.message.clone()), &[]);
                self.stop(Over::Failed(advice), SIGTERM);
            }
        }
    }

    fn reported(&mut self, number: u64, reported: &Reported) {
        let Some(trial) = self.running.get_mut(&number) else { return };
        for (known, value) in trial.values.iter_mut().zip(&reported.values) {
            *known = value.or(*known);
        }
        if trial.cause.is_some() {
            return;
        }
        let mut cause = None;
        let objectives = self.prepared.plan.definition.objectives.len();
        if reported.values[..objectives].iter().flatten().any(|value| !value.is_finite()) {
            cause = Some(Cause::Diverged);
        } else if let (Some(step), Some(value)) = (reported.step, reported.values[0]) {
            match self.prepared.store.change(false, |study| study.report(number, step, value)) {
                Ok(true) => cause = Some(Cause::Stopped),
                Ok(false) => {}
                Err(advice) => return self.stop(Over::Failed(advice), SIGTERM),
            }
        }
        if let (Some(cause), Some(trial)) = (cause, self.running.get_mut(&number)) {
            trial.cause = Some(cause);
            trial.controller.signal(SIGTERM);
        }
    }

    fn ended(&mut self, number: u64, how: Result<sirtaki_launch::Ending, Advice>, last: Vec<String>) {
        let Some(trial) = self.running.remove(&number) else { return };
        self.free.push(trial.slot);
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        let ending = match (&trial.cause, how) {
            (Some(Cause::Stopped), _) => Ending::Stopped,
            (Some(Cause::TimedOut), _) => Ending::TimedOut,
            (Some(Cause::Diverged), _) => {
                let objectives = &trial.values[..self.prepared.plan.definition.objectives.len()];
                Ending::Finished(objectives.iter().map(|value| value.unwrap_or(f64::NAN)).collect())
            }
            (Some(Cause::Interrupted(why)), _) => Ending::Interrupted(why.clone()),
            (None, Ok(ending)) => self.by_itself(&trial, &ending.outcome, &last),
            (None, Err(advice)) => return self.unstartable(number, trial.slot, advice),
        };
        let failed = matches!(&ending, Ending::Failed(_));
        let reason = if let Ending::Failed(reason) = &ending { reason.clone() } else { String::new() };
        let harmless = matches!(&ending, Ending::Interrupted(_) | Ending::Lost(_));
        self.tell(number, ending, &trial.values);
        self.failed_first = match self.failed_first {
            Some(count) if failed => Some(count + 1),
            Some(count) if harmless => Some(count),
            _ => None,
        };
        if failed {
            self.after_failure(number, &reason);
        }
    }

    /// How a trial ended that nobody ended from here.
    fn by_itself(&self, trial: &Running, outcome: &Outcome, last: &[String]) -> Ending {
        match outcome {
            Outcome::Success => {
                let values: Option<Vec<f64>> = trial.values.iter().copied().collect();
                let objectives = self.prepared.plan.definition.objectives.len();
                let missing: Vec<String> = self
                    .prepared
                    .plan
                    .reported()
                    .iter()
                    .zip(&trial.values)
                    .filter(|(_, value)| value.is_none())
                    .map(|(name, _)| format!("{{\"{name}\": 0.5}}"))
                    .collect();
                let unreported =
                    || format!("it ended without a line such as {} on standard output", missing.join(" and "));
                let finished = |values: Vec<f64>| Ending::Finished(values[..objectives].to_vec());
                values.map_or_else(|| Ending::Failed(unreported()), finished)
            }
            Outcome::Failed { rank, how: how @ (Ended::Lost(_) | Ended::NotStarted { .. }) } => {
                Ending::Lost(format!("rank {rank} {how}"))
            }
            Outcome::Failed { rank, how } => {
                let lines: Vec<String> = last.iter().map(|line| format!("\n    {line}")).collect();
                Ending::Failed(format!("rank {rank} {how}{}", lines.concat()))
            }
            Outcome::Stuck(reason) => Ending::Lost(reason.clone()),
            Outcome::Interrupted(signal) => {
                Ending::Interrupted(format!("it was interrupted by {}", signal_name(*signal)))
            }
        }
    }

    /// Nothing can be started in a slot, so it is used no more; without any slot the study ends.
    fn unstartable(&mut self, number: u64, slot: usize, advice: Advice) {
        self.free.retain(|free| *free != slot);
        self.tell(number, Ending::Interrupted(advice.message.clone()), &[]);
        if self.free.is_empty() && self.running.is_empty() {
            return self.stop(Over::Failed(advice), SIGTERM);
        }
        if self.prepared.slots[slot].hosts.is_some() {
            let text = format!("slot {} is used no more: {}", self.prepared.slots[slot].name, advice.message);
            self.printer.labelled(Style::Warning, "warning:", &text);
        } else {
            // On one machine, what fails in one slot fails in all.
            self.stop(Over::Failed(advice), SIGTERM);
        }
    }

    fn after_failure(&mut self, number: u64, reason: &str) {
        let trials = self.prepared.plan.definition.trials.unwrap_or(u64::MAX);
        if self.over.is_none()
            && self.failed_first.is_some_and(|count| count as u64 >= trials.min(FAILS_AT_ONCE as u64))
        {
            let origin = self.prepared.store.study().origin(number);
            let folder = self.prepared.folder.join(trial::folder_name(origin));
            let message = format!("the first {FAILS_AT_ONCE} trials all failed, the last of them: {reason}");
            let hint = format!("try the command by hand; its output is in {}", folder.display());
            self.stop(Over::Failed(Advice::new(message, hint)), SIGTERM);
        } else if self.failed_first == Some(1) && !self.quiet {
            self.printer.labelled(Style::Warning, "warning:", &format!("trial {number} failed: {reason}"));
        }
    }

    /// Tells the study how a trial ended, and how it stands with the limits; `values` are the last ones it reported.
    fn tell(&mut self, number: u64, ending: Ending, values: &[Option<f64>]) {
        let plan = &self.prepared.plan;
        let reported = values.iter().skip(plan.definition.objectives.len());
        let broken = |(limit, value): (&Limit, &Option<f64>)| Some((limit.name.clone(), limit.broken_by((*value)?)));
        let limits: Vec<(String, f64)> = plan.limits.iter().zip(reported).filter_map(broken).collect();
        let before = self.prepared.store.study().best().map(|trial| trial.number);
        let told = self.prepared.store.change(false, |study| {
            limits.iter().try_for_each(|(name, value)| study.constrain(number, name, *value))?;
            study.tell(number, ending, now())
        });
        self.told = true;
        if let Err(advice) = told {
            return self.stop(Over::Failed(advice), SIGTERM);
        }
        let study = self.prepared.store.study();
        let Some(best) = study.best().filter(|best| Some(best.number) != before) else { return };
        let values: Vec<String> = best.values.iter().map(|value| summary::short(*value)).collect();
        let line = format!("trial {}: {}, best so far ({})", best.number, values.join(" "), summary::parameters(best));
        if self.shows_progress() {
            self.printer.message(&line);
        }
    }
}
