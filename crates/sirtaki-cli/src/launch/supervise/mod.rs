//! The launcher while a job runs: it brings up an agent on every host, has the ranks started, shows what they write,
//! and ends them all when one fails or the user wants it.

mod course;
mod links;
mod prepare;
mod share;
mod signals;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGPIPE, SIGTSTP};
use sirtaki_comm::secure::Secret;
use sirtaki_engine::telemetry::{counts::Counts, recorder::Culprit};

pub use self::course::Outcome;
use self::{
    course::{Action, Course},
    links::{Heard, Links},
    prepare::Found,
};
use super::{
    ended::Ended,
    environment,
    openmpi::OpenMpi,
    options::{Detail, Options},
    output::{Output, Stream},
    placement::Placement,
    plan::HostPlan,
    progress::Live,
    protocol::{Event, Order, Program},
    report::duration_in_words,
    tree,
};

/// How long agents may take to clean up beyond the grace time.
const CLEANING: Duration = Duration::from_secs(5);
/// Nothing happens by itself for this long.
const LONG: Duration = Duration::from_secs(3600);
/// How long agents may take to stop everything.
const PAUSING: Duration = Duration::from_secs(2);
/// Bytes of output that may be in transit from all hosts together.
const WINDOW: usize = 1 << 20;

/// How much of that each of `hosts` hosts gets: little if there are many, but enough for a few lines.
fn window(hosts: usize) -> usize {
    (WINDOW / hosts.max(1)).clamp(16 << 10, 256 << 10)
}

/// A job with everything decided.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its options.
    pub options: Options,
    /// Which ranks run where, and the way to each host.
    pub placement: Placement,
    /// The path of this program.
    pub sirtaki: String,
    /// The folder to run in.
    pub folder: String,
    /// The job's name for people; not secret.
    pub id: String,
    /// The job's secret.
    pub secret: Secret,
    /// Columns and rows that ranks are told, if their output goes to a terminal.
    pub terminal: Option<(u16, u16)>,
    /// How ranks are connected through Open MPI, if they are.
    pub open_mpi: Option<OpenMpi>,
}

impl Job {
    fn hosts(&self) -> &[HostPlan] {
        &self.placement.plan.hosts
    }

    /// What the ranks of `host` run, with the variables that its agent adds to its own.
    fn program(&self, host: usize) -> Program {
        let own = std::env::vars_os();
        let own = own.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let inherits = self.placement.starts[host].inherits();
        Program {
            command: self.options.program.clone(),
            folder: self.folder.clone(),
            environment: environment::of_host(own, &self.options.env, inherits),
        }
    }
}

/// The result of a job.
#[derive(Debug, Clone)]
pub struct Ending {
    /// How it ended.
    pub outcome: Outcome,
    /// How long the ranks ran.
    pub lasted: Duration,
    /// How long they had run when the first one failed.
    pub failed_after: Option<Duration>,
    /// Every rank's process, where it was started.
    pub pids: Vec<Option<u32>>,
    /// What every rank was doing when the first one failed, where that is known.
    pub doing: Vec<Option<String>>,
    /// What every rank had done by then, in numbers.
    pub counts: Vec<Option<Counts>>,
    /// Whether any rank used the engine.
    pub engine: bool,
}

/// Runs a job to its end. Nothing of it is left then, on any host that can be reached.
pub fn run(job: &Job, output: &mut Output<'_>, live: &mut Live) -> Result<Ending> {
    tree::adopt_orphans().context("cannot adopt orphans")?;
    let mut links = Links::new()?;
    output.wake(links.waker());
    let course = prepare::prepare(job, &mut links).map(|found| {
        if job.options.detail != Detail::Quiet {
            report_network(&found, output);
        }
        start(job, &found, &mut links);
        Supervisor::new(job, &mut links, output, live).run()
    });
    let hurried = matches!(&course, Ok((_, true)));
    dismiss(&mut links, if hurried { Duration::ZERO } else { job.options.grace + CLEANING });
    tree::kill_all(CLEANING);
    links.set_over();
    course.map(|(ending, _)| ending)
}

fn report_network(found: &Found, output: &mut Output<'_>) {
    for (hello, checked) in found.hellos.iter().zip(&found.checked) {
        if let Some((.., report)) = &checked.network {
            output.note(&format!("{}: {report}", hello.host));
        }
    }
}

/// Has every agent start its ranks.
fn start(job: &Job, found: &Found, links: &mut Links) {
    for host in 0..job.hosts().len() {
        links.order(host, Order::Start(Box::new(share::of_host(job, found, host))));
    }
}

/// Lets the agents end, and waits for that a little longer than they should need. A signal now ends the wait.
fn dismiss(links: &mut Links, limit: Duration) {
    links.dismiss();
    let deadline = Instant::now() + limit;
    while !links.all_gone() && !matches!(links.hear(deadline), None | Some(Heard::Signal(_))) {}
    links.give_up_all();
}

struct Supervisor<'a, 'b> {
    job: &'a Job,
    links: &'a mut Links,
    output: &'a mut Output<'b>,
    live: &'a mut Live,
    course: Course,
    ending: Ending,
    started: Instant,
    /// Bytes of output that every host has sent and has not been told that they were shown.
    owed: Vec<usize>,
    /// Whether the user asked twice.
    hurried: bool,
}

impl<'a, 'b> Supervisor<'a, 'b> {
    fn new(job: &'a Job, links: &'a mut Links, output: &'a mut Output<'b>, live: &'a mut Live) -> Self {
        let (size, hosts) = (job.placement.plan.size(), job.hosts().len());
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
        live.begins(started);
        let (course, owed) = (Course::new(size, hosts, job.options.grace, job.options.timeout), vec![0; hosts]);
        Self { job, links, output, live, course, ending, started, owed, hurried: false }
    }

    /// The result, and whether the user asked twice.
    fn run(mut self) -> (Ending, bool) {
        while !self.course.is_over() {
            let times = [self.course.alarm(), self.output.next_refresh(), self.live.next_refresh()];
            let next = times.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + LONG);
            match self.links.hear(next) {
                Some(Heard::Event { event, host }) => self.happened(event, host),
                Some(Heard::Message { host, line }) => {
                    let line = format!("{}: {line}", self.host(host));
                    self.output.note(&line);
                }
                Some(Heard::Gone { host, how }) => self.agent_lost(host, how),
                Some(Heard::Signal(SIGTSTP)) => self.pause(),
                Some(Heard::Signal(signal)) => self.signalled(signal),
                Some(Heard::Written) | None => {}
            }
            let now = Instant::now();
            self.live.refresh(now, self.output);
            self.output.refresh(now);
            self.heed_reader();
            self.widen();
            let actions = self.course.tick(now);
            self.act(actions);
        }
        self.ending.outcome = self.course.outcome().clone();
        self.ending.lasted = self.started.elapsed();
        (self.ending, self.hurried)
    }

    fn host(&self, host: usize) -> &str {
        &self.job.hosts()[host].host
    }

    fn happened(&mut self, event: Event, host: usize) {
        if let Some(stranger) = rank_of(&event).filter(|rank| !self.job.hosts()[host].ranks.contains(rank)) {
            return self.host_lost(host, &format!("its agent spoke of rank {stranger}, which does not run there"));
        }
        match event {
            Event::Output { rank, stream, bytes } => self.wrote(host, rank, stream, &bytes),
            Event::Started { rank, pid } => {
                self.ending.pids[rank] = Some(pid);
                self.tell(&format!("rank {rank} runs on {} as process {pid}", self.host(host)));
            }
            Event::Ended { rank, how, culprit, engine } => {
                self.ending.engine |= engine;
                self.ended(rank, &how, (culprit, engine));
            }
            Event::Closed { rank } => {
                self.output.closed(rank);
                self.course.closed(rank);
            }
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
                self.live.heard(&pulses, Instant::now());
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
        if !(self.output.is_full() && self.is_ending()) {
            self.output.wrote(Instant::now(), rank, stream, bytes);
        }
    }

    /// Whether the job is being ended.
    fn is_ending(&self) -> bool {
        matches!(self.course.outcome(), Outcome::Interrupted(_))
    }

    /// Lets hosts send more output as far as what they sent was shown.
    fn widen(&mut self) {
        if self.output.is_full() && !self.is_ending() {
            return;
        }
        for host in 0..self.owed.len() {
            if self.owed[host] >= window(self.owed.len()) / 4 {
                self.links.order(host, Order::Shown(std::mem::take(&mut self.owed[host])));
            }
        }
    }

    /// Prints a message that is only shown with `--verbose`.
    fn tell(&mut self, what: &str) {
        if self.job.options.detail == Detail::Verbose {
            self.output.note(what);
        }
    }

    fn ended(&mut self, rank: usize, how: &Ended, said: (Option<Culprit>, bool)) {
        self.tell(&format!("rank {rank} {how}"));
        // The others learn it from the store, which is on the first host.
        self.links.order(0, Order::Note { rank, how: how.to_string() });
        let before = self.course.outcome().clone();
        let actions = self.course.ended(rank, how, said, Instant::now());
        if *self.course.outcome() != before {
            self.ending.failed_after = Some(self.started.elapsed());
        }
        self.act(actions);
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
        for rank in self.job.hosts()[host].ranks.clone() {
            if !self.course.has_ended(rank) {
                self.ended(rank, &Ended::Lost(format!("host {name}: {how}")), (None, true));
            }
            self.output.closed(rank);
            self.course.closed(rank);
        }
    }

    fn signalled(&mut self, signal: i32) {
        let actions = self.course.signalled(signal, Instant::now());
        self.hurried |= actions.contains(&Action::Kill);
        self.act(actions);
    }

    /// Ctrl-Z: everything stops, including the launcher, until it is continued.
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
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
        self.links.forgive();
        self.links.order_all(&Order::Continue);
    }

    /// The reader of the output has closed it, so nobody is left to run the job for.
    fn heed_reader(&mut self) {
        if self.output.is_broken() && *self.course.outcome() == Outcome::Success {
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
                Action::Await(rank) => self.output.note(&format!(
                    "rank {rank} failed first and has not ended yet; waiting for its exit code (Ctrl-C ends the job)"
                )),
                Action::Stands(rank) => {
                    let silence = duration_in_words(self.job.options.timeout);
                    self.output.note(&format!(
                        "rank {rank} was stopped by a signal and the others have ended; the job ends too unless it is \
                         continued within {silence} (hint: kill -CONT {})",
                        self.ending.pids[rank].unwrap_or(0)
                    ));
                }
                Action::GiveUp => self.links.give_up_all(),
            }
        }
    }
}

/// The rank that an event is about.
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
