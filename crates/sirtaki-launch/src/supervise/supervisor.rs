//! Follows a job from the start of its ranks to its end.

use std::time::{Duration, Instant};

use signal_hook::consts::{SIGPIPE, SIGTSTP};
use sirtaki_engine::telemetry::recorder::Culprit;

use super::{
    Ending, Job, Outcome,
    course::Course,
    elastic::Rounds,
    links::{Heard, Links},
    outcome::Action,
    prepare::Found,
    share, window,
};
use crate::{
    Observer,
    ended::Ended,
    protocol::{Event, Order, Stream},
    words::duration_in_words,
};

/// Nothing happens by itself for this long.
const LONG: Duration = Duration::from_secs(3600);
/// How long agents may take to stop everything.
const PAUSING: Duration = Duration::from_secs(2);

pub(super) struct Supervisor<'a> {
    pub(super) job: &'a Job,
    pub(super) found: &'a Found,
    pub(super) links: &'a mut Links,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) course: Course,
    /// Who takes part, if workers come and go.
    pub(super) rounds: Option<Rounds>,
    pub(super) ending: Ending,
    pub(super) started: Instant,
    /// Bytes of output that every host has sent and has not been told that they were shown.
    owed: Vec<usize>,
    /// Whether the user asked twice.
    hurried: bool,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(job: &'a Job, found: &'a Found, links: &'a mut Links, observer: &'a mut dyn Observer) -> Self {
        let (cast, hosts) = (job.cast(), job.hosts().len());
        let size = cast.processes();
        let ending = Ending {
            outcome: Outcome::Success,
            lasted: Duration::ZERO,
            failed_after: None,
            pids: vec![None; size],
            doing: vec![None; size],
            counts: vec![None; size],
            engine: false,
        };
        let started = Instant::now();
        observer.begins(started);
        let course = Course::new(cast, hosts, job.spec.grace, job.spec.timeout);
        let rounds = Rounds::of(job, links, started);
        let course = if rounds.is_some() { course.of_members() } else { course };
        let owed = vec![0; hosts];
        Self { job, found, links, observer, course, rounds, ending, started, owed, hurried: false }
    }

    /// The result, and whether the user asked twice.
    pub(super) fn run(mut self) -> (Ending, bool) {
        self.members_tick();
        while !self.is_over() {
            let times = [self.course.alarm(), self.observer.next_tick(), self.members_alarm()];
            let next = times.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + LONG);
            match self.links.hear(next) {
                Some(Heard::Event { event, host }) => self.happened(event, host),
                Some(Heard::Message { host, line }) => {
                    let line = format!("{}: {line}", self.host(host));
                    self.observer.note(&line);
                }
                Some(Heard::Gone { host, how }) => self.agent_lost(host, how),
                Some(Heard::Hosts(found)) => self.discovered(found),
                Some(Heard::Signal(SIGTSTP)) => self.pause(),
                Some(Heard::Signal(signal)) => self.signalled(signal),
                Some(Heard::Written) | None => {}
            }
            self.members_tick();
            let now = Instant::now();
            if self.rounds.as_ref().is_some_and(Rounds::is_over) {
                self.course.release(now);
            }
            self.observer.tick(now);
            self.heed_reader();
            self.widen();
            let actions = self.course.tick(now);
            self.act(actions);
        }
        self.ending.outcome = self.course.outcome().clone();
        self.ending.lasted = self.started.elapsed();
        (self.ending, self.hurried)
    }

    fn is_over(&self) -> bool {
        self.course.is_over() && self.rounds.as_ref().is_none_or(Rounds::is_over)
    }

    pub(super) fn host(&self, host: usize) -> &str {
        &self.job.hosts()[host].host
    }

    fn happened(&mut self, event: Event, host: usize) {
        let strange = |process: &usize| self.job.processes_of(host).all(|known| known != *process);
        if let Some(stranger) = rank_of(&event).filter(strange) {
            return self.host_lost(host, &format!("its agent spoke of rank {stranger}, which does not run there"));
        }
        match event {
            Event::Output { rank, stream, bytes } => self.wrote(host, rank, stream, &bytes),
            Event::Started { rank, pid } => {
                self.ending.pids[rank] = Some(pid);
                self.observer.started(rank, &self.job.hosts()[host].host, pid);
            }
            Event::Ended { rank, how, culprit, engine } => {
                self.ending.engine |= engine;
                self.ended(rank, &how, (culprit, engine));
            }
            Event::Closed { rank } => self.closed(rank),
            Event::Said(bytes) => self.member_said(&bytes),
            Event::Doing { rank, what, counts, meeting, stopped } => {
                (self.ending.doing[rank], self.ending.counts[rank]) = (what, counts);
                if meeting {
                    self.course.meets(Instant::now());
                }
                let actions = self.course.looked(rank, stopped, Instant::now());
                self.act(actions);
            }
            Event::Looked => self.course.answered(host),
            Event::Pulse(mut pulses) => {
                let ranks = &self.job.hosts()[host].ranks;
                pulses.retain(|pulse| ranks.contains(&pulse.rank));
                self.observer.pulses(&pulses, Instant::now());
            }
            Event::Signalled(signal) => self.signalled(signal),
            Event::Problem { message, .. } => self.host_lost(host, &message),
            Event::Hello(_) | Event::Serving { .. } | Event::Checked(_) | Event::Greeting | Event::Paused => {}
        }
    }

    /// Shows what a rank wrote. If it cannot be shown and the job is ending, it is dropped: the end of the job does not
    /// wait for a reader.
    fn wrote(&mut self, host: usize, rank: usize, stream: Stream, bytes: &[u8]) {
        self.owed[host] += bytes.len();
        if !(self.observer.is_full() && self.is_ending()) {
            self.observer.wrote(Instant::now(), rank, stream, bytes);
        }
    }

    /// Whether the job is being ended.
    fn is_ending(&self) -> bool {
        matches!(self.course.outcome(), Outcome::Interrupted(_))
    }

    /// Lets hosts send more output as far as what they sent was shown.
    fn widen(&mut self) {
        if self.observer.is_full() && !self.is_ending() {
            return;
        }
        for host in 0..self.owed.len() {
            if self.owed[host] >= window(self.owed.len()) / 4 {
                self.links.order(host, Order::Shown(std::mem::take(&mut self.owed[host])));
            }
        }
    }

    fn ended(&mut self, process: usize, how: &Ended, said: (Option<Culprit>, bool)) {
        self.observer.ended(process, how);
        let is_rank = self.job.cast().is_rank(process);
        if self.rounds.is_some() && is_rank {
            return self.member_ended(process, how);
        }
        let before = self.course.outcome().clone();
        let actions = self.course.ended(process, how, said, Instant::now());
        if is_rank && self.course.has_ended(process) {
            // The others learn it from the store, which is on the first host.
            self.links.order(0, Order::Note { rank: process, how: how.to_string() });
        }
        if *self.course.outcome() != before {
            self.ending.failed_after = Some(self.started.elapsed());
            self.stop_members(&format!("{} {how}", self.job.cast().name(process)));
        }
        self.act(actions);
    }

    fn closed(&mut self, process: usize) {
        self.observer.closed(process);
        let actions = self.course.closed(process);
        self.act(actions);
        self.member_closed(process);
    }

    /// Starts a process again in its place.
    fn start_again(&mut self, process: usize) {
        let (cast, host, returned) = (self.job.cast(), self.job.host_of(process), self.course.returns_of(process));
        let name = cast.name(process);
        self.observer.note(&format!("{name} is started again (return {returned} of {})", cast.returns_of(process)));
        let start = share::of_returned(self.job, self.found, process, returned);
        self.links.order(host, Order::Add(Box::new(start)));
    }

    /// An agent is gone. The broken connection does not tell whether its host is still there.
    fn agent_lost(&mut self, host: usize, mut how: String) {
        if !how.contains("agent") {
            how.push_str("; its agent was killed, or the connection to it broke");
        }
        self.host_lost(host, &how);
    }

    /// All ranks of a host are gone, as far as is known.
    fn host_lost(&mut self, host: usize, how: &str) {
        let name = self.host(host).to_owned();
        self.course.answered(host);
        self.members_lose(host);
        for process in self.job.processes_of(host) {
            if !self.course.has_ended(process) {
                self.ended(process, &Ended::Lost(format!("host {name}: {how}")), (None, true));
            }
            self.closed(process);
        }
    }

    fn signalled(&mut self, signal: i32) {
        self.members_signalled(signal);
        let actions = self.course.signalled(signal, Instant::now());
        self.hurried |= actions.contains(&Action::Kill);
        self.act(actions);
    }

    /// Everything stands still until the observer lets it go on.
    fn pause(&mut self) {
        self.links.order_all(&Order::Pause);
        let deadline = Instant::now() + PAUSING;
        let mut waiting: Vec<bool> = (0..self.owed.len()).map(|host| !self.links.is_gone(host)).collect();
        while waiting.contains(&true) {
            match self.links.hear(deadline) {
                Some(Heard::Event { event: Event::Paused, host }) => waiting[host] = false,
                Some(Heard::Event { event, host }) => self.happened(event, host),
                Some(Heard::Gone { host, how }) => {
                    waiting[host] = false;
                    self.agent_lost(host, how);
                }
                Some(Heard::Signal(signal)) if signal != SIGTSTP => self.signalled(signal),
                Some(_) => {}
                None => break,
            }
        }
        self.observer.paused();
        self.links.forgive();
        self.links.order_all(&Order::Continue);
    }

    /// The reader of the output has closed it, so nobody is left to run the job for.
    fn heed_reader(&mut self) {
        if self.observer.is_abandoned() && *self.course.outcome() == Outcome::Success {
            self.signalled(SIGPIPE);
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Signal(signal) => self.links.order_all(&Order::Signal(signal)),
                Action::Kill => self.links.order_all(&Order::Kill),
                Action::Look => {
                    (0..self.owed.len()).filter(|&host| !self.links.is_gone(host)).for_each(|h| self.course.asked(h));
                    self.links.order_all(&Order::Look);
                }
                Action::Await(process) => self.observer.note(&format!(
                    "{} failed first and has not ended yet; waiting for its exit code (Ctrl-C ends the job)",
                    self.job.cast().name(process)
                )),
                Action::Stands(process) => {
                    let (name, silence) = (self.job.cast().name(process), duration_in_words(self.job.spec.timeout));
                    self.observer.note(&format!(
                        "{name} was stopped by a signal and the others have ended; the job ends too unless it is \
                         continued within {silence} (hint: kill -CONT {})",
                        self.ending.pids[process].unwrap_or(0)
                    ));
                }
                Action::Return(process) => self.start_again(process),
                Action::GiveUp => self.links.give_up_all(),
            }
        }
    }
}

/// The process that an event is about.
fn rank_of(event: &Event) -> Option<usize> {
    match event {
        Event::Started { rank, .. }
        | Event::Output { rank, .. }
        | Event::Ended { rank, .. }
        | Event::Closed { rank }
        | Event::Doing { rank, .. } => Some(*rank),
        _ => None,
    }
}
