//! A link over an encrypted TCP connection.
//!
//! A TLS session buffers on both sides, and the user of a link sleeps on the socket alone, so nothing may be left
//! waiting in those buffers:
//! - Receiving shows all decrypted bytes before it says "nothing yet", and says so only after the socket did.
//! - Sending counts bytes only when the kernel has all their ciphertext. Ciphertext that did not fit stays *owed*: the
//!   caller is told "full", waits for room and pushes the same bytes again, which then are not encrypted twice. Should
//!   it push other bytes (an alarm that overtakes an unfinished message), the owed ones go out before them.

use std::{
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, TcpStream},
    os::fd::AsFd,
    time::Duration,
};

use rustls::Connection;

use super::{Bell, Link, LinkError, tcp};

/// Plaintext encrypted at a time: four records of the largest size. The mesh counts on no more being owed.
const CHUNK: usize = 64 << 10;

/// A link over an established TLS session.
pub struct TlsLink {
    socket: TcpStream,
    session: Box<Connection>,
    /// Plaintext that was encrypted but not counted yet, because not all of its ciphertext is sent.
    owed: Vec<u8>,
    scratch: Vec<u8>,
}

impl TlsLink {
    /// A link over this session. `patience` is how long the peer's kernel may leave sent bytes unacknowledged.
    pub fn new(socket: TcpStream, mut session: Box<Connection>, patience: Duration) -> io::Result<Self> {
        tcp::prepare(&socket, patience)?;
        session.set_buffer_limit(None);
        Ok(Self { socket, session, owed: Vec::new(), scratch: vec![0; CHUNK] })
    }

    /// Whether the kernel has all ciphertext.
    fn flush(&mut self) -> Result<bool, LinkError> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(&self.socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(unwrap(error)),
            }
        }
        Ok(true)
    }

    /// Sends what is owed, if anything; an error here is left for the next push to report.
    fn help_flush(&mut self) {
        if self.session.wants_write() {
            let _ = self.flush();
        }
    }

    /// Moves decrypted bytes into `into`, decrypting more where needed; 0 means nothing yet.
    fn take(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut total = 0;
        while total < into.len() {
            match self.session.reader().read(&mut into[total..]) {
                Ok(0) => return ended(total, LinkError::Closed("it closed the connection".into())),
                Ok(count) => {
                    total += count;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return ended(total, error.into()),
            }
            match self.session.read_tls(&mut Socket(&self.socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return ended(total, unwrap(error)),
                Ok(_) => {}
            }
            if let Err(error) = self.session.process_new_packets() {
                return ended(total, LinkError::Closed(format!("the encrypted connection broke: {error}")));
            }
        }
        Ok(total)
    }
}

/// What arrived before an error counts first; the error comes again with the next call.
fn ended(total: usize, error: LinkError) -> Result<usize, LinkError> {
    if total > 0 { Ok(total) } else { Err(error) }
}

impl Link for TlsLink {
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        if !self.flush()? {
            return Ok(0);
        }
        let mut counted = 0;
        if !self.owed.is_empty() {
            if starts_with(parts, &self.owed) {
                counted = self.owed.len();
            }
            self.owed.clear();
        }
        loop {
            let chunk = gather(parts, counted, &mut self.owed);
            if chunk == 0 {
                return Ok(counted);
            }
            self.session.writer().write_all(&self.owed)?;
            if !self.flush()? {
                return Ok(counted);
            }
            counted += chunk;
            self.owed.clear();
        }
    }

    fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        self.help_flush();
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut total = 0;
        let outcome = loop {
            let want = scratch.len().min(limit - total);
            match self.take(&mut scratch[..want]) {
                Err(error) => break ended(total, error),
                Ok(count) => {
                    if count > 0 {
                        sink(&scratch[..count]);
                    }
                    total += count;
                    if count < want || total == limit {
                        break Ok(total);
                    }
                }
            }
        };
        self.scratch = scratch;
        outcome
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.help_flush();
        self.take(into)
    }

    fn bell(&self) -> Bell<'_> {
        Bell::Descriptor(self.socket.as_fd())
    }

    fn check(&mut self) -> Result<(), LinkError> {
        tcp::check(&self.socket)
    }

    /// The peer notices by the end of the TCP stream. An attacker who can forge that can also cut the network.
    fn close(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// Fills `chunk`, which is empty, with the bytes of `parts` after the first `skip`, and returns how many.
fn gather(parts: &[IoSlice<'_>], mut skip: usize, chunk: &mut Vec<u8>) -> usize {
    for part in parts {
        let from = skip.min(part.len());
        skip -= from;
        let room = CHUNK - chunk.len();
        chunk.extend_from_slice(&part[from..part.len().min(from + room)]);
        if chunk.len() == CHUNK {
            break;
        }
    }
    chunk.len()
}

/// Whether `parts` begin with `bytes`.
fn starts_with(parts: &[IoSlice<'_>], mut bytes: &[u8]) -> bool {
    for part in parts {
        let both = part.len().min(bytes.len());
        if part[..both] != bytes[..both] {
            return false;
        }
        bytes = &bytes[both..];
    }
    bytes.is_empty()
}

/// The socket as the TLS session wants it, with this module's errors inside.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match tcp::receive(self.0, into) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
            Err(LinkError::Io(error)) => Err(error),
            Err(closed) => Err(io::Error::other(closed)),
        }
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match tcp::transmit(self.0, parts) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(count) => Ok(count),
            Err(LinkError::Io(error)) => Err(error),
            Err(closed) => Err(io::Error::other(closed)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The [`LinkError`] that [`Socket`] wrapped.
fn unwrap(error: io::Error) -> LinkError {
    match error.downcast::<LinkError>() {
        Ok(inner) => inner,
        Err(error) => LinkError::Io(error),
    }
}
