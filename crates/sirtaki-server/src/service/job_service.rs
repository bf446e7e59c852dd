//! What a rank of a job has of the job's parameter servers: a worker, maybe servers, and on the first rank the head.
//!
//! Servers are threads of the ranks, dealt out in turn, or processes of their own, which the launcher started beside the
//! ranks and which find the head by themselves. Nobody who serves goes before the last worker has left, so a rank that is
//! done early waits for the others at its end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sirtaki_comm::{
    Settings,
    rendezvous::{candidates, select},
};

use super::{Head, HeadOptions, Server, Worker, WorkerReport};
use crate::{ServerError, rule::Rules};

/// A process of a job that has a service: a rank, or a server beside the ranks.
#[derive(Debug, Clone)]
pub struct ServicePlace {
    /// Where other members call this process.
    address: IpAddr,
    settings: Settings,
}

impl ServicePlace {
    /// For a job on so many hosts with these settings. The service has a secret of its own, made from the job's, and its
    /// time limits; between hosts, everything is encrypted.
    pub fn new(job: &Settings, hosts: usize) -> Result<Self, ServerError> {
        let several = hosts > 1;
        let mut settings = Settings::new(job.secret.derive(&[b"parameter servers"]));
        (settings.timeout, settings.start_timeout) = (job.timeout, job.start_timeout);
        settings.tls = job.tls || several;
        Ok(Self { address: address(several, job.interface.as_deref())?, settings })
    }

    /// Opens the head, on the first rank.
    pub fn open(&self, options: HeadOptions) -> Result<Head, ServerError> {
        Head::open(self.address, &self.settings, options)
    }

    /// Serves this head from this thread until its service ends.
    pub fn serve(&self, head: SocketAddr) -> Result<(), ServerError> {
        Server::run(head, self.address, &self.settings, Rules::default())
    }
}

fn address(several: bool, interface: Option<&str>) -> Result<IpAddr, ServerError> {
    if !several {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let all = candidates()?;
    if let Some(wish) = interface {
        return Ok(select(&all, wish)?.address);
    }
    let none = || ServerError::Invalid { problem: "this host has no address that others can call".into() };
    all.first().map(|candidate| candidate.address).ok_or_else(none)
}

/// A rank's part of the service of its job.
#[derive(Debug)]
pub struct JobService {
    /// Dropped before the others: the last worker that leaves ends the service.
    worker: Option<Worker>,
    servers: Vec<Server>,
    head: Option<Head>,
}

impl JobService {
    /// Takes part in the service of the head at this address, which is this rank's if it has one, with so many servers
    /// that are threads of this process. All ranks call it; it returns when all members are there.
    pub fn join(
        place: &ServicePlace,
        head: Option<Head>,
        address: SocketAddr,
        servers: usize,
    ) -> Result<Self, ServerError> {
        let start = |_| Server::start(address, place.address, &place.settings, Rules::default());
        let servers = (0..servers).map(start).collect::<Result<_, _>>()?;
        Ok(Self { worker: Some(Worker::join(address, &place.settings)?), servers, head })
    }

    /// The worker.
    ///
    /// # Panics
    /// After [`JobService::end`] and [`JobService::abandon`].
    pub fn worker(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("the service has not been left")
    }

    /// What it took so far.
    pub fn report(&self) -> WorkerReport {
        self.worker.as_ref().map(Worker::report).unwrap_or_default()
    }

    /// Ends everything of it in this process at once, as a death would.
    pub fn abandon(&mut self) {
        self.worker = None;
        self.servers.clear();
        self.head = None;
    }

    /// Leaves in good order, and waits for the others as long as they need what is served here.
    pub fn end(&mut self) -> Result<(), ServerError> {
        if let Some(worker) = self.worker.take() {
            worker.leave();
        }
        let served = self.servers.drain(..).map(Server::join).fold(Ok(()), Result::and);
        served.and(self.head.take().map_or(Ok(()), Head::join))
    }
}

impl Drop for JobService {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.abandon();
        } else {
            let _ = self.end();
        }
    }
}
