//! The messages between the launcher and the agent on each host, over the agent's standard input and output.
//!
//! Standard input and output are what ssh, srun and a plain child process have in common; they end when either side
//! does, and need neither port nor firewall rule. A frame is its length, a postcard message and the end of a line,
//! because Slurm buffers what a program writes until a line ends. Login scripts may print before an agent starts, so
//! its first bytes are a mark that the launcher looks for.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sirtaki_comm::secure::Secret;
use sirtaki_engine::telemetry::{counts::Counts, recorder::Culprit};

use super::{ended::Ended, pulse::Pulse};

/// What an agent writes before its first frame.
pub const MARK: &[u8] = b"\0sirtaki-agent\0";
/// Most bytes of other output before the mark, which are kept to be shown.
const NOISE: usize = 64 << 10;
/// How a frame ends.
const END: u8 = b'\n';
/// Most bytes of a frame.
const FRAME: usize = 16 << 20;
/// How often a launcher greets its agents, which answer.
pub const GREETING: Duration = Duration::from_secs(2);
/// After this much silence, each side assumes that the other is gone.
pub const SILENCE: Duration = Duration::from_secs(20);

/// The first word of a command that means `sirtaki` itself, wherever it is on a host.
pub const ITSELF: &str = "@sirtaki";

/// What has to be the same on both sides.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One of the two output streams of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// From the launcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Serve the store of the job, beyond loopback and encrypted if `open`.
    Serve {
        /// The job's secret.
        secret: Secret,
        /// Whether all connections are encrypted.
        tls: bool,
        /// Whether other hosts have to reach it.
        open: bool,
        /// The interface that was asked for.
        interface: Option<String>,
    },
    /// Check whether the job can run here.
    Check(Check),
    /// Start the ranks.
    Start(Box<HostStart>),
    /// Start one more process of an elastic job; everything but the rank is as for the others.
    Add(Box<HostStart>),
    /// Kill one rank with everything it started.
    End {
        /// Which one.
        rank: usize,
    },
    /// Set a key of the store; for the agent that serves it.
    Publish {
        /// Which one.
        key: String,
        /// Its value.
        value: Vec<u8>,
    },
    /// Forget all keys of the store that begin like this; for the agent that serves it.
    Forget(String),
    /// Send this signal to every rank.
    Signal(i32),
    /// Kill everything.
    Kill,
    /// Tell what every rank is doing.
    Look,
    /// Tell the others how a rank ended; for the agent that serves the store.
    Note {
        /// Which one.
        rank: usize,
        /// How, in words.
        how: String,
    },
    /// This many bytes of ranks' output were shown, so that as many more may be sent.
    Shown(usize),
    /// Stop everything the job runs here. The launcher stops too, so its silence means nothing until it speaks again.
    Pause,
    /// Let it go on.
    Continue,
    /// The launcher is alive.
    Greeting {
        /// Whether it is sent regularly, so that silence means that the launcher is gone.
        regular: bool,
    },
}

/// What has to be right before anything starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    /// Which host of the job this is.
    pub host: usize,
    /// How many there are.
    pub hosts: usize,
    /// Where the store may be reached.
    pub stores: Vec<SocketAddr>,
    /// The job's secret.
    pub secret: Secret,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// The interface that was asked for.
    pub interface: Option<String>,
    /// How long hosts may take to find each other.
    pub patience: Duration,
    /// How many ports its ranks need for servers of their own.
    pub ports: usize,
    /// The program and where it runs.
    pub program: Program,
}

/// What every rank runs.
#[derive(Clone, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its folder.
    pub folder: String,
    /// Variables in addition to the agent's own.
    pub environment: Vec<(String, String)>,
}

impl Program {
    /// What is started, as it was given.
    pub fn name(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// The same, with [`ITSELF`] as the path of `sirtaki` on this host.
    #[must_use]
    pub fn on_this_host(mut self, sirtaki: &Path) -> Self {
        if let Some(name) = self.command.first_mut().filter(|name| *name == ITSELF) {
            *name = sirtaki.display().to_string();
        }
        self
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Program");
        shown.field("command", &self.command).field("folder", &self.folder);
        shown.field("environment", &names(&self.environment)).finish()
    }
}

impl fmt::Debug for RankStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RankStart");
        shown.field("rank", &self.rank).field("cores", &self.cores);
        shown.field("environment", &names(&self.environment)).finish()
    }
}

/// Variables without their values, which may be secrets.
fn names(environment: &[(String, String)]) -> Vec<&str> {
    environment.iter().map(|(name, _)| name.as_str()).collect()
}

/// What an agent needs to start its ranks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostStart {
    /// The ranks, each with its own variables.
    pub ranks: Vec<RankStart>,
    /// The processes that are no ranks.
    pub others: Vec<RankStart>,
    /// What they run.
    pub program: Program,
    /// Columns and rows of the terminal that shows their output; with `None`, output goes through pipes.
    pub terminal: Option<(u16, u16)>,
    /// How long ranks may take to end after being asked to by a signal.
    pub grace: Duration,
    /// Whether to report their progress.
    pub pulse: bool,
    /// What ranks that use MPICH ask for.
    pub pmi: PmiJob,
    /// How ranks that use Open MPI are connected, if they do.
    pub connect: Option<Connect>,
    /// Bytes of output that may be in transit before the launcher says that they were shown.
    pub window: usize,
    /// The id of the job, which every rank has among its variables.
    pub job: String,
}

/// A job as MPICH sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PmiJob {
    /// Its number of ranks.
    pub size: usize,
    /// Which host of the job this is.
    pub host: usize,
    /// How many there are.
    pub hosts: usize,
    /// Where the store is; by now it needs no other address.
    pub store: SocketAddr,
    /// The job's secret.
    pub secret: Secret,
    /// Whether the store is encrypted.
    pub tls: bool,
    /// How long it may take to reach the store.
    pub patience: Duration,
}

/// How ranks are connected through Open MPI.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Connect {
    /// The socket to which its relays connect.
    pub socket: String,
    /// Its launcher with all arguments, on the first host.
    pub launcher: Vec<String>,
    /// How long it may take.
    pub patience: Duration,
}

/// One rank, or one process that is none.
#[derive(Clone, Serialize, Deserialize)]
pub struct RankStart {
    /// Its number.
    pub rank: usize,
    /// The processors it keeps to; empty for all.
    pub cores: Vec<usize>,
    /// Its variables.
    pub environment: Vec<(String, String)>,
}

/// From an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// The first one.
    Hello(Hello),
    /// It serves the store.
    Serving {
        /// Where it may be reached, best first.
        stores: Vec<SocketAddr>,
        /// A port for the meeting of other tools.
        master_port: u16,
    },
    /// The job can run here.
    Checked(Checked),
    /// An order cannot be followed.
    Problem {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
    /// A rank is running.
    Started {
        /// Which one.
        rank: usize,
        /// Its process.
        pid: u32,
    },
    /// A rank wrote something.
    Output {
        /// Which one.
        rank: usize,
        /// Where to.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// A rank ended.
    Ended {
        /// Which one.
        rank: usize,
        /// How.
        how: Ended,
        /// The rank it waited for in vain, if its engine says so.
        culprit: Option<Culprit>,
        /// Whether it ever used the engine, as far as can be seen.
        engine: bool,
    },
    /// A rank's output is complete.
    Closed {
        /// Which one.
        rank: usize,
    },
    /// What a rank is doing, or was when it ended.
    Doing {
        /// Which one.
        rank: usize,
        /// In words; `None` if it has no flight record.
        what: Option<String>,
        /// What it has done so far, in numbers.
        counts: Option<Counts>,
        /// Whether it waits until all ranks of the job are there.
        meeting: bool,
        /// Whether its process was stopped by a signal.
        stopped: bool,
    },
    /// What all ranks of the host are doing has been reported.
    Looked,
    /// How far the ranks of the host are, whenever that has changed.
    Pulse(Vec<Pulse>),
    /// A process of an elastic job said this to the launcher, by way of the store.
    Said(Vec<u8>),
    /// The agent received this signal, which is meant for the job.
    Signalled(i32),
    /// Everything is stopped.
    Paused,
    /// The agent is alive.
    Greeting,
}

/// Who an agent is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// Its version of this program.
    pub version: String,
    /// The name its host has for itself.
    pub host: String,
    /// The processors it may use.
    pub cores: Vec<usize>,
    /// The GPUs it sees, by their numbers or names.
    pub gpus: Vec<String>,
}

/// What an agent found out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Checked {
    /// The address of the store that works from here.
    pub store: SocketAddr,
    /// This host's address for the others, its interface, and why, in one line.
    pub network: Option<(IpAddr, String, String)>,
    /// The ports that were asked for.
    pub ports: Vec<u16>,
}

/// Writes one frame.
pub fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    body.push(END);
    let length = u32::try_from(body.len()).ok().filter(|&length| length as usize <= FRAME);
    let length = length.ok_or_else(|| io::Error::other("a message is too long"))?;
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend(length.to_le_bytes());
    frame.extend(body);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads one frame; `None` at the end.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME {
        return Err(io::Error::other(format!("a message of {length} bytes cannot be right")));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let message = body.strip_suffix(&[END]).and_then(|message| postcard::from_bytes(message).ok());
    message.map(Some).ok_or_else(|| io::Error::other("a message cannot be read"))
}

/// Skips what was printed before the mark, and returns it if the mark never comes.
pub fn find_mark(from: &mut impl Read) -> Result<(), String> {
    let mut noise = Vec::new();
    let mut byte = [0];
    while !noise.ends_with(MARK) {
        match from.read(&mut byte) {
            Ok(1) if noise.len() < NOISE => noise.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(String::from_utf8_lossy(&noise).trim().to_owned()),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
