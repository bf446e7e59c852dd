//! The launcher while a job runs: it brings up an agent on every host, has the ranks started, shows what they write,
//! and ends them all when one fails or somebody wants it.

mod course;
mod links;
mod prepare;
mod share;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use signal_hook::consts::SIGPIPE;
use sirtaki_comm::secure::Secret;
use sirtaki_engine::telemetry::counts::Counts;

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
    output::Output,
    placement::Placement,
    plan::HostPlan,
    progress::Live,
    protocol::{Event, Order, Program},
    tree,
};

/// How long agents may take to clean up beyond the grace time.
const CLEANING: Duration = Duration::from_secs(5);
/// Nothing happens by itself for this long.
const LONG: Duration = Duration::from_secs(3600);

/// A job with everything decided.
#[derive(Debug, Clone)]
pub struct Job {
    /// What was wanted.
    pub options: Options,
    /// Which ranks run where, and the way to each host.
    pub placement: Placement,
    /// The path of this program.
    pub sirtaki: String,
    /// The folder to run in.
    pub folder: String,
    /// The job's name for people; no secret.
    pub id: String,
    /// The job's secret.
    pub secret: Secret,
    /// Columns and rows that ranks may think they have, where their output goes to a terminal.
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

/// What came of a job.
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
    let course = prepare::prepare(job, &mut links).map(|found| {
        if job.options.detail != Detail::Quiet {
            report_network(&found, output);
        }
        start(job, &found, &mut links);
        Supervisor::new(job, &mut links, output, live).run()
    });
    dismiss(&mut links, job.options.grace);
    tree::kill_all(CLEANING);
    course
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
        links.order(host, &Order::Start(Box::new(share::of_host(job, found, host))));
    }
}

/// Lets the agents end, and waits for that a little longer than they should need.
fn dismiss(links: &mut Links, grace: Duration) {
    links.dismiss();
    let deadline = Instant::now() + grace + CLEANING;
    while !links.all_gone() && links.hear(deadline).is_some() {}
}

struct Supervisor<'a, 'b> {
    job: &'a Job,
    links: &'a mut Links,
    output: &'a mut Output<'b>,
    live: &'a mut Live,
    course: Course,
    ending: Ending,
    started: Instant,
}

impl<'a, 'b> Supervisor<'a, 'b> {
    fn new(job: &'a Job, links: &'a mut Links, output: &'a mut Output<'b>, live: &'a mut Live) -> Self {
        let size = job.placement.plan.size();
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
        Self { job, links, output, live, course: Course::new(size, job.options.grace), ending, started }
    }

    fn run(mut self) -> Ending {
        while !self.course.is_over() {
            let times = [self.course.alarm(), self.output.next_refresh(), self.live.next_refresh()];
            let next = times.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + LONG);
            match self.links.hear(next) {
                Some(Heard::Event { event, host }) => self.happened(event, host),
                Some(Heard::Message { host, line }) => {
                    let line = format!("{}: {line}", self.host(host));
                    self.output.note(&line);
                }
                Some(Heard::Gone { host, how }) => self.host_lost(host, &how),
                Some(Heard::Signal(signal)) => self.signalled(signal),
                None => {}
            }
            let now = Instant::now();
            self.live.refresh(now, self.output);
            self.output.refresh(now);
            self.heed_reader();
            let actions = self.course.tick(now);
            self.act(actions);
        }
        self.ending.outcome = self.course.outcome().clone();
        self.ending.lasted = self.started.elapsed();
        self.ending
    }

    fn host(&self, host: usize) -> &str {
        &self.job.hosts()[host].host
    }

    fn happened(&mut self, event: Event, host: usize) {
        match event {
            Event::Output { rank, stream, bytes } => self.output.wrote(Instant::now(), rank, stream, &bytes),
            Event::Started { rank, pid } => {
                self.ending.pids[rank] = Some(pid);
                self.tell(&format!("rank {rank} runs on {} as process {pid}", self.host(host)));
            }
            Event::Ended { rank, how, engine } => {
                self.ending.engine |= engine;
                self.ended(rank, &how);
            }
            Event::Closed { rank } => {
                self.output.closed(rank);
                self.course.closed(rank);
            }
            Event::Doing { rank, what, counts } => {
                (self.ending.doing[rank], self.ending.counts[rank]) = (what, counts);
            }
            Event::Pulse(mut pulses) => {
                let ranks = &self.job.hosts()[host].ranks;
                pulses.retain(|pulse| ranks.contains(&pulse.rank));
                self.live.heard(&pulses, Instant::now());
            }
            Event::Signalled(signal) => self.signalled(signal),
            Event::Problem { message, .. } => self.host_lost(host, &message),
            Event::Hello(_) | Event::Serving { .. } | Event::Checked(_) | Event::Greeting => {}
        }
    }

    /// Says what only those want to know who asked for it.
    fn tell(&mut self, what: &str) {
        if self.job.options.detail == Detail::Verbose {
            self.output.note(what);
        }
    }

    fn ended(&mut self, rank: usize, how: &Ended) {
        self.tell(&format!("rank {rank} {how}"));
        // The others learn it from the store, which is on the first host.
        self.links.order(0, &Order::Note { rank, how: how.to_string() });
        if !how.is_success() {
            self.ending.failed_after.get_or_insert(self.started.elapsed());
        }
        let actions = self.course.ended(rank, how, Instant::now());
        self.act(actions);
    }

    /// All ranks of a host are gone as far as we can know.
    fn host_lost(&mut self, host: usize, how: &str) {
        let name = self.host(host).to_owned();
        for rank in self.job.hosts()[host].ranks.clone() {
            if !self.course.has_ended(rank) {
                self.ended(rank, &Ended::Lost(format!("host {name}: {how}")));
            }
            self.output.closed(rank);
            self.course.closed(rank);
        }
    }

    fn signalled(&mut self, signal: i32) {
        let actions = self.course.signalled(signal, Instant::now());
        self.act(actions);
    }

    /// Whoever read our output does not want more of it, so there is nobody to run the job for.
    fn heed_reader(&mut self) {
        if self.output.broken().is_some() && *self.course.outcome() == Outcome::Success {
            self.signalled(SIGPIPE);
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            let order = match action {
                Action::Signal(signal) => Order::Signal(signal),
                Action::Kill => Order::Kill,
                Action::Look => Order::Look,
            };
            self.links.order_all(&order);
        }
    }
}
