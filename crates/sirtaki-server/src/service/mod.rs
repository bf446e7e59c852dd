//! The service itself: head, servers and workers as poll loops over links.
//!
//! Callers come in through the same [`Gate`](sirtaki_comm::secure::Gate) and with the same proof of the job's secret as
//! ranks do, and at any time, so that joining late is nothing special. Whoever dies is noticed by its link to the head.
//!
//! - `post`: all links of a member.
//! - `member_thread`: a member's loop in a thread of its own.
//! - [`Head`], [`Server`], [`Worker`]: the three kinds of members, each a loop around what [`crate::decide`] decides.
//! - [`JobService`]: what a rank of a job has of all that.

mod head;
mod job_service;
mod member_thread;
mod post;
mod server;
mod worker;

pub use head::{Head, HeadOptions};
pub use job_service::{JobService, ServicePlace};
pub use server::Server;
pub use worker::{Gradient, Worker, WorkerReport};

use std::time::{Duration, Instant};

use sirtaki_comm::{
    Settings,
    secure::{
        Access,
        handshake::{Claim, Purpose},
    },
};

use self::post::{Event, Post};
use crate::{
    ServerError,
    decide::{
        HEAD, Id,
        message::{Kind, Terms},
    },
};

/// How long an address that a view names may refuse connections.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a caller says about itself. The head admits whoever knows the secret, so the group has no name of its own.
fn claim(from: Id, to: Id) -> Claim {
    Claim { purpose: Purpose::Service, rank: from, group: [0; 16], to }
}

/// Calls the head, and enters as a server that listens here or as a worker.
fn enter(
    post: &mut Post,
    access: &Access,
    head: std::net::SocketAddr,
    listens: Option<std::net::SocketAddr>,
    settings: &Settings,
) -> Result<(Id, Terms), ServerError> {
    let deadline = Instant::now() + settings.start_timeout;
    let stream = access.call_patiently(head, &claim(HEAD, HEAD), deadline, deadline)?;
    post.add(HEAD, stream)?;
    post.send(HEAD, Kind::Enter(listens).into());
    loop {
        match post.next(deadline) {
            Event::Message(HEAD, message) => {
                if let Kind::Entered(id, terms) = message.kind {
                    return Ok((id, terms));
                }
            }
            Event::Gone(HEAD, how) => return Err(ServerError::Ended { reason: format!("the head is gone: {how}") }),
            Event::Nothing if Instant::now() >= deadline => {
                let (who, operation) = (format!("the head at {head}"), "entering".to_owned());
                return Err(ServerError::Timeout { who, operation, waited: settings.start_timeout });
            }
            _ => {}
        }
    }
}
