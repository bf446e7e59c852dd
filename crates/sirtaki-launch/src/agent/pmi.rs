//! What MPICH expects of its launcher: its ranks find each other through PMI-1, lines of text over a socket that
//! each rank inherits. So a program that uses MPICH, or an MPI derived from it, runs as one job of all ranks here, too.
//!
//! A rank puts what others need to know, waits for all of them, and gets what they put. On one host that is a table;
//! between hosts it goes through the job's store, to which an agent connects when the first of its ranks sends a line.
//! A program without MPI never does.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Condvar, Mutex, OnceLock, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sirtaki_comm::rendezvous::{Store, TcpStore};

use super::{Happening, Result, lock};
use crate::{Advice, advice::Explain, protocol::PmiJob};

/// Lengths that MPICH is told; its own launcher says the same.
const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024";
/// What the table of a job is called; there is only one.
const TABLE: &str = "sirtaki";
/// How long to wait for a missing value: a rank that gets has already waited until all have put.
const AT_ONCE: Duration = Duration::ZERO;

/// The ranks of this host, for MPI.
pub(super) struct Pmi {
    job: PmiJob,
    local: usize,
    values: Mutex<HashMap<String, String>>,
    barrier: Mutex<Barrier>,
    passed: Condvar,
    store: OnceLock<Arc<dyn Store>>,
    /// Receives the news that a rank wants to be ended.
    sender: Sender<Happening>,
}

/// How many ranks of this host wait, and how often all ranks of the job have come.
#[derive(Default)]
struct Barrier {
    waiting: usize,
    rounds: usize,
}

impl Pmi {
    /// For a host with `local` ranks. `sender` gets the ranks that abort, which have to be ended.
    pub(super) fn new(job: PmiJob, local: usize, sender: Sender<Happening>) -> Arc<Self> {
        Arc::new(Self {
            job,
            local,
            values: Mutex::default(),
            barrier: Mutex::default(),
            passed: Condvar::new(),
            store: OnceLock::new(),
            sender,
        })
    }

    /// Serves one rank; what is returned must be open while the rank is started, and its number is in the variables.
    /// It is inherited by every process started meanwhile, so no other process may be started.
    pub(super) fn serve(self: &Arc<Self>, rank: usize) -> io::Result<(OwnedFd, [(String, String); 3])> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC)?;
        let descriptor = usize::try_from(theirs.as_raw_fd()).unwrap_or_default();
        let variables = [("PMI_FD", descriptor), ("PMI_RANK", rank), ("PMI_SIZE", self.job.size)];
        let (stream, all) = (UnixStream::from(ours), self.clone());
        thread::spawn(move || {
            // A rank that is gone, or uses another protocol, reports that itself.
            let _ = all.answer(rank, stream);
        });
        Ok((theirs, variables.map(|(name, value)| (name.to_owned(), value.to_string()))))
    }

    fn answer(&self, rank: usize, stream: UnixStream) -> Result<()> {
        let mut to = stream.try_clone()?;
        let mut lines = BufReader::new(stream).lines();
        while let Some(line) = lines.next() {
            let line = line?;
            if line.starts_with("mcmd=spawn") {
                lines.by_ref().map_while(io::Result::ok).find(|line| line.trim() == "endcmd");
            }
            let answer = self.reply(rank, &line).unwrap_or_else(|error| {
                let reason = format!("{error}").replace(char::is_whitespace, "_");
                format!("cmd={}_result rc=-1 msg={reason}", field(&line, "cmd").unwrap_or("spawn"))
            });
            if !answer.is_empty() {
                writeln!(to, "{answer}")?;
            }
        }
        Ok(())
    }

    /// The answer to a line.
    fn reply(&self, rank: usize, line: &str) -> Result<String> {
        let key = || field(line, "key").explain("no key");
        Ok(match field(line, "cmd").unwrap_or_default() {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into(),
            "get_maxes" => MAXES.into(),
            "get_appnum" => "cmd=appnum appnum=0".into(),
            "get_my_kvsname" => format!("cmd=my_kvsname kvsname={TABLE}"),
            "get_universe_size" => format!("cmd=universe_size size={}", self.job.size),
            "put" => {
                self.put(key()?, line.split_once("value=").map_or("", |(_, value)| value))?;
                "cmd=put_result rc=0 msg=success".into()
            }
            "get" => match self.get(key()?)? {
                Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                None => "cmd=get_result rc=-1 msg=not_found value=unknown".into(),
            },
            "barrier_in" => {
                self.wait_for_all()?;
                "cmd=barrier_out rc=0".into()
            }
            "finalize" => "cmd=finalize_ack rc=0".into(),
            "abort" => {
                let code = field(line, "exitcode").and_then(|code| code.parse().ok()).unwrap_or(1);
                let _ = self.sender.send(Happening::Aborted(rank, code));
                String::new()
            }
            _ => return Err(Advice::bare("not supported under sirtaki run")),
        })
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        lock(&self.values).insert(key.into(), value.into());
        if self.job.hosts > 1 {
            self.store()?.set(&format!("pmi/value/{key}"), value.as_bytes())?;
        }
        Ok(())
    }

    fn get(&self, key: &str) -> Result<Option<String>> {
        let known = lock(&self.values).get(key).cloned();
        if known.is_some() || self.job.hosts == 1 {
            return Ok(known);
        }
        let value = self.store()?.wait(&format!("pmi/value/{key}"), Instant::now() + AT_ONCE)?;
        Ok(value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Waits until all ranks of the job have come. The last one of a host asks the other hosts.
    fn wait_for_all(&self) -> Result<()> {
        let mut barrier = lock(&self.barrier);
        let round = barrier.rounds;
        barrier.waiting += 1;
        if barrier.waiting == self.local {
            let met = self.meet_hosts(round);
            barrier.waiting = 0;
            barrier.rounds += 1;
            self.passed.notify_all();
            return met;
        }
        while barrier.rounds == round {
            barrier = self.passed.wait(barrier).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        Ok(())
    }

    fn meet_hosts(&self, round: usize) -> Result<()> {
        if self.job.hosts == 1 {
            return Ok(());
        }
        let store = self.store()?;
        let key = |host: usize| format!("pmi/barrier/{round}/{host}");
        store.set(&key(self.job.host), b"here")?;
        for host in 0..self.job.hosts {
            // A rank may compute for as long as it likes before it starts MPI; a lost host ends the job anyway.
            while store.wait(&key(host), Instant::now() + Duration::from_secs(60))?.is_none() {}
        }
        Ok(())
    }

    fn store(&self) -> Result<&Arc<dyn Store>> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let deadline = Instant::now() + self.job.patience;
        let store = TcpStore::connect(self.job.store, &self.job.secret, self.job.tls, deadline)?;
        Ok(self.store.get_or_init(|| Arc::new(store)))
    }
}

/// The value of `name=` in a line of such pairs.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
#[path = "pmi_tests.rs"]
mod tests;
