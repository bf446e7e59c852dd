//! How servers that a launcher started beside the ranks of a job find them: by a key of the launcher's store.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sirtaki_comm::{
    CommError,
    rendezvous::{Store, TcpStore},
};

use super::{
    JobError, Lookup,
    parse::optional,
    settings::communication,
    starter::{role, store},
    variables,
};

/// What the first rank's address is known by.
const HEAD: &str = "servers/head";
/// How often a server that waits looks whether it is to end.
const LOOK: Duration = Duration::from_millis(500);

/// The servers of a job, for its first rank and for themselves.
pub struct JobServers {
    /// How many there are.
    pub count: usize,
    /// How the processes of the job communicate.
    pub communication: sirtaki_comm::Settings,
    store: Arc<dyn Store>,
}

/// Whether this process is a server of its job.
pub fn is_server(get: Lookup<'_>) -> Result<bool, JobError> {
    Ok(optional(get, variables::ROLE, role)? == Some("server"))
}

impl JobServers {
    /// The servers that these variables speak of; `None` if the job has none.
    pub fn discover(get: Lookup<'_>) -> Result<Option<Self>, JobError> {
        let Some(count) = count(get)? else { return Ok(None) };
        let (address, tls, secret) = store(get)?;
        let communication = communication(get, secret.clone())?;
        let deadline = Instant::now() + communication.start_timeout;
        let store = Arc::new(TcpStore::connect(address, &secret, tls || communication.tls, deadline)?);
        Ok(Some(Self { count, communication, store }))
    }

    /// Tells all servers where the head is, and on how many hosts the ranks are. Servers that return later find it, too.
    pub fn tell(&self, head: SocketAddr, hosts: usize) -> Result<(), JobError> {
        Ok(self.store.set(HEAD, format!("{hosts} {head}").as_bytes())?)
    }

    /// Where the head is and how many hosts there are, once the first rank has said so; `None` if this is stopped before.
    /// Ranks take the time they need, so this waits for as long as the launcher is there.
    pub fn head(&self, stopped: &AtomicBool) -> Result<Option<(SocketAddr, usize)>, JobError> {
        while !stopped.load(Ordering::Relaxed) {
            let Some(found) = self.store.wait(HEAD, Instant::now() + LOOK)? else { continue };
            let text = String::from_utf8_lossy(&found);
            let told = text.split_once(' ').and_then(|(hosts, head)| Some((head.parse().ok()?, hosts.parse().ok()?)));
            let broken = || CommError::Invalid { problem: format!("the head of the servers is at `{text}`") };
            return Ok(Some(told.ok_or_else(broken)?));
        }
        Ok(None)
    }
}

/// How many servers the job has, if any.
pub fn count(get: Lookup<'_>) -> Result<Option<usize>, JobError> {
    Ok(optional(get, variables::SERVERS, |text| text.parse().ok())?.filter(|&servers: &usize| servers > 0))
}
