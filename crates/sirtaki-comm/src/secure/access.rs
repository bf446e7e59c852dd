//! Calling others: connect, encrypt if that is on, and prove the secret, all before a deadline.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use super::{
    Secret, Stream, Tls,
    handshake::{self, Claim, Purpose},
};
use crate::{CommError, Settings};

/// How long to wait before trying again to reach somebody who is not there yet.
const PAUSE: Duration = Duration::from_millis(50);

/// What a process needs to be let in and to let others in.
#[derive(Debug, Clone)]
pub struct Access {
    secret: Secret,
    tls: Option<Tls>,
}

impl Access {
    /// Access with this secret, encrypted where `tls` is given.
    pub fn new(secret: Secret, tls: Option<Tls>) -> Self {
        Self { secret, tls }
    }

    /// Access as these settings say.
    pub fn from_settings(settings: &Settings) -> Result<Self, CommError> {
        let tls = if settings.tls { Some(Tls::new()?) } else { None };
        Ok(Self::new(settings.secret.clone(), tls))
    }

    /// Calls `address` once and proves `claim` before `deadline`.
    pub fn call(&self, address: SocketAddr, claim: &Claim, deadline: Instant) -> Result<Stream, CommError> {
        let socket = connect(address, deadline)?;
        self.greet(socket, claim, deadline)
    }

    /// Calls `address` until somebody answers or `patience` is over; a refusal is final.
    ///
    /// `patience` limits how long nobody may listen there, `deadline` everything.
    pub fn call_patiently(
        &self,
        address: SocketAddr,
        claim: &Claim,
        patience: Instant,
        deadline: Instant,
    ) -> Result<Stream, CommError> {
        loop {
            match connect(address, deadline) {
                Ok(socket) => return self.greet(socket, claim, deadline),
                Err(error) if Instant::now() + PAUSE >= patience.min(deadline) => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn greet(&self, socket: TcpStream, claim: &Claim, deadline: Instant) -> Result<Stream, CommError> {
        let broken = |address: &dyn std::fmt::Display, error: io::Error| handshake::lost(&address.to_string(), &error);
        let mut stream = Stream::plain(socket).map_err(|error| broken(&"the peer", error))?;
        let peer = stream.peer().to_string();
        stream.set_deadline(Some(deadline));
        if let Some(tls) = &self.tls {
            stream.encrypt_call(tls).map_err(|error| no_tls(&peer, &error))?;
        }
        let binding = stream.binding().map_err(|error| broken(&peer, error))?;
        handshake::call(&mut stream, &self.secret, &binding, claim, &peer)?;
        stream.set_deadline(None);
        Ok(stream)
    }

    /// Lets a caller prove itself on a connection just accepted.
    pub(super) fn answer(
        &self,
        stream: &mut Stream,
        expected: (Purpose, [u8; 16]),
        deadline: Instant,
    ) -> Result<Claim, CommError> {
        let peer = stream.peer().to_string();
        stream.set_deadline(Some(deadline));
        if let Some(tls) = &self.tls {
            stream.encrypt_answer(tls).map_err(|error| no_tls(&peer, &error))?;
        }
        let binding = stream.binding().map_err(|error| handshake::lost(&peer, &error))?;
        let proven = handshake::accept(stream, &self.secret, &binding, expected, &peer)?;
        stream.set_deadline(None);
        Ok(proven)
    }
}

/// 16 random bytes that name a group.
pub fn fresh_id() -> Result<[u8; 16], CommError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| CommError::io("cannot draw random bytes", io::Error::other(error)))?;
    Ok(id)
}

fn connect(address: SocketAddr, deadline: Instant) -> Result<TcpStream, CommError> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    TcpStream::connect_timeout(&address, left).map_err(|error| CommError::io(format!("cannot reach {address}"), error))
}

fn no_tls(peer: &str, error: &io::Error) -> CommError {
    match error.kind() {
        io::ErrorKind::TimedOut => handshake::lost(peer, error),
        _ => CommError::Refused {
            peer: peer.into(),
            reason: format!("no TLS with it ({error}); switch TLS on for all processes or for none"),
        },
    }
}
