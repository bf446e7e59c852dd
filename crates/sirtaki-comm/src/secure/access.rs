//! Calling others: connect, encrypt if that is on, and prove the secret, all before a deadline.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use super::{
    Secret, SecureStream, Tls,
    handshake::{self, Acceptor, Claim},
};
use crate::{CommError, Settings};

/// How long to wait before calling again when the other side is not there yet, or is busy.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the other side may be too busy with other callers to say a word.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);

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

    /// Access according to these settings.
    pub fn from_settings(settings: &Settings) -> Result<Self, CommError> {
        let tls = if settings.tls { Some(Tls::new()?) } else { None };
        Ok(Self::new(settings.secret.clone(), tls))
    }

    /// Access for links that carry decisions: encrypted wherever they leave the host, whatever the settings say.
    pub fn for_control(settings: &Settings, hosts: usize) -> Result<Self, CommError> {
        let tls = if settings.tls || hosts > 1 { Some(Tls::new()?) } else { None };
        Ok(Self::new(settings.secret.clone(), tls))
    }

    /// Calls `address` and proves `claim` before `deadline`. A listener has to be there already.
    pub fn call(&self, address: SocketAddr, claim: &Claim, deadline: Instant) -> Result<SecureStream, CommError> {
        self.call_patiently(address, claim, Instant::now(), deadline)
    }

    /// Calls `address` until it answers or `patience` runs out; a refusal is final.
    ///
    /// `patience` limits how long the address may be without a listener, `deadline` everything. A [`Gate`](super::Gate)
    /// with too many callers closes without a word, which means "try again later".
    pub fn call_patiently(
        &self,
        address: SocketAddr,
        claim: &Claim,
        patience: Instant,
        deadline: Instant,
    ) -> Result<SecureStream, CommError> {
        let busy = Instant::now() + BUSY_PATIENCE;
        loop {
            let (error, until) = match connect(address, deadline) {
                Err(error) => (error, patience),
                Ok(socket) => {
                    let mut stream =
                        SecureStream::plain(socket).map_err(|error| handshake::lost("the peer", &error))?;
                    match self.greet(&mut stream, claim, deadline) {
                        Ok(()) => return Ok(stream),
                        Err(error) if stream.has_heard() => return Err(error),
                        Err(error) => (error, busy),
                    }
                }
            };
            if Instant::now() + PAUSE >= until.min(deadline) {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn greet(&self, stream: &mut SecureStream, claim: &Claim, deadline: Instant) -> Result<(), CommError> {
        let peer = stream.peer().to_string();
        stream.set_deadline(Some(deadline));
        if let Some(tls) = &self.tls {
            stream.encrypt_call(tls).map_err(|error| no_tls(&peer, &error))?;
        }
        let binding = stream.binding().map_err(|error| handshake::lost(&peer, &error))?;
        handshake::call(stream, &self.secret, &binding, claim, &peer)?;
        stream.set_deadline(None);
        Ok(())
    }

    /// Lets a caller prove itself on a connection just accepted.
    pub(super) fn answer(
        &self,
        stream: &mut SecureStream,
        me: &Acceptor,
        deadline: Instant,
    ) -> Result<Claim, CommError> {
        let peer = stream.peer().to_string();
        stream.set_deadline(Some(deadline));
        if let Some(tls) = &self.tls {
            stream.encrypt_answer(tls).map_err(|error| no_tls(&peer, &error))?;
        }
        let binding = stream.binding().map_err(|error| handshake::lost(&peer, &error))?;
        let proven = handshake::accept(stream, &self.secret, &binding, me, &peer)?;
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
