//! The launcher while a job runs: it brings up an agent on every host, has the ranks started, passes on what they write,
//! and ends them all when one fails or somebody wants it.

mod course;
mod elastic;
mod links;
mod outcome;
mod prepare;
mod share;
mod supervisor;

use std::{
    fmt,
    path::Path,
    time::{Duration, Instant},
};

use sirtaki_comm::secure::{Secret, fresh_id};
use sirtaki_engine::telemetry::counts::Counts;

pub(crate) use self::links::Heard;
pub use self::outcome::Outcome;
use self::{links::Links, prepare::Found, supervisor::Supervisor};
use super::{
    Advice, Controller, JobSpec, Observer, env, environment,
    openmpi::OpenMpi,
    placement::Placement,
    plan::HostPlan,
    protocol::{Order, Program},
    roles::Cast,
    tree,
};

/// How long agents may take to clean up beyond the grace time.
const CLEANING: Duration = Duration::from_secs(5);
/// Bytes of output that may be in transit from all hosts together.
const WINDOW: usize = 1 << 20;

/// How much of that each of `hosts` hosts gets: little if there are many, but enough for a few lines.
fn window(hosts: usize) -> usize {
    (WINDOW / hosts.max(1)).clamp(16 << 10, 256 << 10)
}

/// A job with everything decided.
#[derive(Clone)]
pub struct Job {
    /// What is wanted.
    pub spec: JobSpec,
    /// Which ranks run where, and the way to each host.
    pub placement: Placement,
    /// The path of a program that is an agent when its only argument is `agent`, such as `sirtaki`.
    pub sirtaki: String,
    /// The folder to run in.
    pub folder: String,
    /// The launcher's own variables, some of which go with the job.
    pub variables: Vec<(String, String)>,
    /// The job's name for people; not secret.
    pub id: String,
    /// The job's secret.
    pub secret: Secret,
    /// Columns and rows that ranks are told, if their output goes to a terminal.
    pub terminal: Option<(u16, u16)>,
    /// How ranks are connected through Open MPI, if they are.
    pub open_mpi: Option<OpenMpi>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Variables may be secrets.
        f.debug_struct("Job").field("id", &self.id).field("placement", &self.placement).finish_non_exhaustive()
    }
}

impl Job {
    /// A job at this place, with this process's variables. Ranks run in the folder that is asked for, or in this
    /// process's own.
    pub fn new(spec: JobSpec, placement: Placement, sirtaki: &Path) -> Result<Self, Advice> {
        let folder = match &spec.workdir {
            Some(folder) => std::path::absolute(folder)?,
            None => std::env::current_dir().map_err(|_| Advice::bare("the current folder is gone"))?,
        };
        let variables = std::env::vars_os();
        let readable =
            variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Ok(Self {
            sirtaki: sirtaki.display().to_string(),
            folder: folder.display().to_string(),
            variables: readable.collect(),
            id: fresh_id()?[..4].iter().map(|byte| format!("{byte:02x}")).collect(),
            secret: Secret::random()?,
            terminal: None,
            open_mpi: None,
            spec,
            placement,
        })
    }

    fn hosts(&self) -> &[HostPlan] {
        &self.placement.plan.hosts
    }

    /// Who the processes of the job are.
    pub fn cast(&self) -> Cast {
        Cast::of(&self.spec, self.placement.plan.size())
    }

    /// The host of a process, or of a seat.
    fn host_of(&self, process: usize) -> usize {
        match self.cast() {
            cast if cast.is_rank(process) => self.hosts().partition_point(|host| host.ranks.end <= process),
            cast => cast.host_of_other(process, self.hosts().len()),
        }
    }

    /// The processes of a host: its ranks, then the others.
    fn processes_of(&self, host: usize) -> impl Iterator<Item = usize> + use<> {
        self.hosts()[host].ranks.clone().chain(self.cast().others_on(host, self.hosts().len()))
    }

    /// The name of the host of every process.
    pub fn hosts_of_processes(&self) -> Vec<String> {
        (0..self.cast().processes()).map(|process| self.hosts()[self.host_of(process)].host.clone()).collect()
    }

    /// What the ranks of `host` run, with the variables that its agent adds to its own.
    fn program(&self, host: usize) -> Program {
        let inherits = self.placement.starts[host].inherits();
        Program {
            command: self.spec.program.clone(),
            folder: self.folder.clone(),
            environment: environment::of_host(self.variables.iter().cloned(), &self.spec.env, inherits),
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
    /// The id of every process, where it was started; ranks come first here and below.
    pub pids: Vec<Option<u32>>,
    /// What every process was doing when the first one failed, where that is known.
    pub doing: Vec<Option<String>>,
    /// What every process had done by then, in numbers.
    pub counts: Vec<Option<Counts>>,
    /// Whether any rank used the engine.
    pub engine: bool,
}

/// Runs one job. Several may run one each in the same process; the only thing that they change about it is that its limit
/// on open files is raised.
///
/// ```no_run
/// use sirtaki_launch::{Job, JobSpec, Launcher, outside::Outside, placement::Placement};
///
/// # fn main() -> Result<(), sirtaki_launch::Advice> {
/// let spec = JobSpec { ranks: 2.try_into().ok(), ..JobSpec::new(["python", "train.py"]) };
/// let placement = Placement::find(&spec, &Outside::real(), "localhost")?;
/// let job = Job::new(spec, placement, "sirtaki".as_ref())?;
/// let ending = Launcher::new().run(&job, &mut ())?;
/// println!("exit code {}", ending.outcome.code());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Launcher {
    links: Links,
}

impl Default for Launcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Launcher {
    /// Nothing is started yet.
    pub fn new() -> Self {
        Self { links: Links::new() }
    }

    /// What others may do to the job.
    pub fn controller(&self) -> Controller {
        self.links.controller().clone()
    }

    /// Runs a job to its end. Nothing of it is left then, on any host that can be reached.
    pub fn run(self, job: &Job, observer: &mut dyn Observer) -> Result<Ending, Advice> {
        let Self { mut links } = self;
        let course = prepare::prepare(job, &mut links).map(|found| {
            report_network(&found, observer);
            start(job, &found, &mut links);
            Supervisor::new(job, &found, &mut links, observer).run()
        });
        let hurried = matches!(&course, Ok((_, true)));
        let in_order = dismiss(&mut links, if hurried { Duration::ZERO } else { job.spec.grace + CLEANING });
        if !in_order {
            tree::kill_marked(&format!("{}={}", env::JOB, job.id), CLEANING);
        }
        course.map(|(ending, _)| ending)
    }
}

fn report_network(found: &Found, observer: &mut dyn Observer) {
    for (hello, checked) in found.hellos.iter().zip(&found.checked) {
        if let Some((.., report)) = &checked.network {
            observer.network(&format!("{}: {report}", hello.host));
        }
    }
}

/// Has every agent start its ranks.
fn start(job: &Job, found: &Found, links: &mut Links) {
    for host in 0..job.hosts().len() {
        links.order(host, Order::Start(Box::new(share::of_host(job, found, host))));
    }
}

/// Lets the agents end, and waits for that a little longer than they should need; says whether all of them did, and
/// none before. A signal now ends the wait.
fn dismiss(links: &mut Links, limit: Duration) -> bool {
    links.dismiss();
    let deadline = Instant::now() + limit;
    while !links.all_gone() && !matches!(links.hear(deadline), None | Some(Heard::Signal(_))) {}
    let in_order = links.ended_in_order();
    links.give_up_all();
    in_order
}
