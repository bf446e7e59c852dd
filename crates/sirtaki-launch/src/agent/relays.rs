//! The relays of Open MPI's launcher on this host: each hands over the variables of a rank, and waits for its end.
//!
//! They connect to a socket whose name is not in any file system, and only those of the same user are accepted.

use std::{
    io::Read,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    process::{Command, Stdio},
    sync::mpsc::Sender,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt::socket_peercred,
    process::{Pid, getuid},
};

use super::{Happening, Result};
use crate::{
    Advice,
    advice::Explain,
    child, environment,
    protocol::{self, Connect, HostStart},
};

/// Variables of Open MPI that are a rank's own.
const PREFIXES: [&str; 5] = ["OMPI_", "PMIX_", "PRTE_", "ORTE_", "OPAL_"];
/// The launcher runs as the user who started this job, which may be root in a container.
const ALLOWED: [&str; 4] = [
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
];

/// What a relay brings.
pub(super) struct Relay {
    pub(super) rank: usize,
    pub(super) variables: Vec<(String, String)>,
    /// Closed when the rank has ended, so that the relay ends, too.
    pub(super) stream: UnixStream,
}

/// Starts Open MPI's launcher where it is to run, on this thread, which must live as long as the agent. The relays of
/// all ranks of this host come in a happening.
pub(super) fn begin(start: &HostStart, connect: &Connect, sender: Sender<Happening>) -> Result<Option<Pid>> {
    let listener = UnixListener::bind_addr(&address(&connect.socket)?).explain("cannot listen for Open MPI")?;
    let launcher = match connect.launcher.split_first() {
        Some((name, words)) => Some(launch(name, words, start).explain(format!("cannot start {name}"))?),
        None => None,
    };
    let (ranks, patience): (Vec<usize>, _) = (start.ranks.iter().map(|rank| rank.rank).collect(), connect.patience);
    thread::spawn(move || {
        let relays = gather(&listener, &ranks, patience);
        let _ = sender.send(Happening::Connected(relays));
    });
    Ok(launcher)
}

fn launch(name: &str, words: &[String], start: &HostStart) -> Result<Pid> {
    let mut command = Command::new(name);
    command.args(words).current_dir(&start.program.folder).stdin(Stdio::null());
    // Its output goes where the agent's own messages go.
    command.stdout(rustix::io::dup(std::io::stderr())?);
    for name in environment::OWN.iter().chain(environment::OF_MPI) {
        command.env_remove(name);
    }
    command.envs(ALLOWED.map(|name| (name, "1")));
    command.envs(start.program.environment.iter().map(|(name, value)| (name, value)));
    child::tie(&mut command, &[]);
    let pid = command.spawn()?.id();
    Pid::from_raw(pid as i32).explain("a process id is not valid")
}

fn address(name: &str) -> Result<SocketAddr> {
    Ok(SocketAddr::from_abstract_name(name)?)
}

/// Waits for a relay of each of these ranks.
fn gather(listener: &UnixListener, ranks: &[usize], patience: Duration) -> Result<Vec<Relay>> {
    let deadline = Instant::now() + patience;
    let mut relays: Vec<Relay> = Vec::new();
    while relays.len() < ranks.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit)) {
            Ok(0) => {
                let message = format!("Open MPI started {} of {} ranks in {patience:?}", relays.len(), ranks.len());
                return Err(Advice::bare(message));
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let (mut stream, _) = listener.accept()?;
        if socket_peercred(&stream)?.uid != getuid() {
            continue;
        }
        stream.set_read_timeout(Some(patience))?;
        let heard: Option<(usize, Vec<(String, String)>)> = protocol::read(&mut stream)?;
        let Some((rank, variables)) = heard else { continue };
        let expected = ranks.contains(&rank) && relays.iter().all(|relay| relay.rank != rank);
        if !expected {
            return Err(Advice::bare(format!("Open MPI started rank {rank} on another host than planned")));
        }
        relays.push(Relay { rank, variables, stream });
    }
    Ok(relays)
}

/// The relay itself, started by Open MPI's launcher: hands over what a rank needs to the agent that listens at `socket`,
/// followed by the number of its host, and stays until the rank has ended. `ends` says where the ranks of each host end.
pub fn relay(socket: &str, ends: &[usize]) -> Result<()> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<usize>().ok();
    let rank = number("OMPI_COMM_WORLD_RANK").or_else(|| number("PMIX_RANK"));
    let rank = rank.explain("this is started by Open MPI's launcher, which is not there")?;
    let host = ends.iter().position(|&end| rank < end).explain("there is no such rank")?;
    let mut stream = UnixStream::connect_addr(&address(&format!("{}-{host}", socket))?)
        .explain("there is no agent of sirtaki on this host")?;
    let own = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let variables: Vec<_> = std::env::vars().filter(|(name, _)| own(name)).collect();
    protocol::write(&mut stream, &(rank, variables))?;
    // Ends with the rank, or with the agent.
    let _ = stream.read(&mut [0]);
    Ok(())
}
