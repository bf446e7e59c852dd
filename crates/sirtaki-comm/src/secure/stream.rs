//! One TCP connection, plain or encrypted, whose reads and writes end with an error at a deadline.
//!
//! The socket is always non-blocking, and waiting happens in `poll(2)`. A deadline, unlike a time limit per read, also
//! holds against a peer that sends one byte now and then.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvFlags, SendFlags, recv, send},
};
use rustls::Connection;

use super::tls::{self, Tls};

/// A connection to one peer that waits at most until its deadline.
pub struct SecureStream {
    raw: Raw,
    tls: Option<Box<Connection>>,
    peer: SocketAddr,
}

impl SecureStream {
    /// A plain stream over a connected socket.
    pub fn plain(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let peer = socket.peer_addr()?;
        Ok(Self { raw: Raw { socket, deadline: None, heard: false }, tls: None, peer })
    }

    /// The caller's end of an encrypted stream.
    pub fn encrypt_call(&mut self, tls: &Tls) -> io::Result<()> {
        self.encrypt(tls.client()?)
    }

    /// The acceptor's end of an encrypted stream.
    pub fn encrypt_answer(&mut self, tls: &Tls) -> io::Result<()> {
        self.encrypt(tls.server()?)
    }

    fn encrypt(&mut self, mut connection: Connection) -> io::Result<()> {
        while connection.is_handshaking() {
            connection.complete_io(&mut self.raw)?;
        }
        self.tls = Some(Box::new(connection));
        Ok(())
    }

    /// From now on, reads and writes that would wait beyond `deadline` fail; `None` waits as long as it takes.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.raw.deadline = deadline;
    }

    /// The other end's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What the [handshake](super::handshake) binds to: a value known only to the two ends of this encrypted session,
    /// or zeros on a plain stream.
    pub fn binding(&self) -> io::Result<[u8; 32]> {
        self.tls.as_ref().map_or(Ok([0; 32]), |connection| tls::binding(connection))
    }

    /// Whether the other end has sent anything yet.
    pub(super) fn has_heard(&self) -> bool {
        self.raw.heard
    }

    /// Another handle to the socket, to end the stream from another thread.
    pub fn socket(&self) -> &TcpStream {
        &self.raw.socket
    }

    /// Tells the peer that nothing more comes and, for a moment, discards what it still sends. Closing a socket with
    /// unread bytes would lose our last words.
    pub(super) fn part(mut self, deadline: Instant) {
        self.set_deadline(Some(deadline));
        let _ = self.raw.socket.shutdown(Shutdown::Write);
        let mut rest = [0; 1024];
        for _ in 0..64 {
            if !matches!(self.raw.read(&mut rest), Ok(1..)) {
                break;
            }
        }
    }

    /// The non-blocking socket and its TLS session, with everything that the session has buffered.
    pub(crate) fn into_parts(self) -> (TcpStream, Option<Box<Connection>>) {
        (self.raw.socket, self.tls)
    }
}

impl Read for SecureStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(connection) = &mut self.tls else { return self.raw.read(into) };
        loop {
            match connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            connection.complete_io(&mut self.raw)?;
        }
    }
}

impl Write for SecureStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(connection) = &mut self.tls else { return self.raw.write(bytes) };
        let taken = connection.writer().write(bytes)?;
        while connection.wants_write() {
            connection.write_tls(&mut self.raw)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The socket with its deadline.
struct Raw {
    socket: TcpStream,
    deadline: Option<Instant>,
    /// Something has arrived.
    heard: bool,
}

impl Raw {
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        let limit = match self.deadline {
            None => None,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
                Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) })
            }
        };
        match poll(&mut [PollFd::new(&self.socket, flags)], limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn until<T>(&self, flags: PollFlags, mut attempt: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
        loop {
            match attempt() {
                Err(rustix::io::Errno::AGAIN) => self.wait(flags)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(done) => return Ok(done),
            }
        }
    }
}

impl Read for Raw {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count =
            self.until(PollFlags::IN, || recv(&self.socket, &mut *into, RecvFlags::DONTWAIT).map(|(_, count)| count))?;
        self.heard |= count > 0;
        Ok(count)
    }
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until(PollFlags::OUT, || send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
