//! A link over a plain TCP connection. Bytes go between the caller's buffers and the kernel without a copy here,
//! except where a callback wants to see them: then they pass through a scratch that stays in the second-level cache.

use std::{
    io::{self, IoSlice},
    net::{Shutdown, TcpStream},
    os::fd::AsFd,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg},
};
use socket2::SockRef;

use super::{Bell, Link, LinkError};

/// Most bytes shown to a callback at a time.
const SCRATCH: usize = 256 << 10;
/// The scratch starts at a multiple of this, so that its bytes can be viewed as numbers of any type.
const ALIGN: usize = 64;
/// Pieces given to the kernel in one call; its own limit is 1024.
const PARTS: usize = 64;

/// A link over a connected TCP socket.
pub struct TcpLink {
    socket: TcpStream,
    scratch: Vec<u8>,
    start: usize,
}

impl TcpLink {
    /// A link over this socket. `patience` is how long the peer's kernel may leave sent bytes unacknowledged.
    pub fn new(socket: TcpStream, patience: Duration) -> io::Result<Self> {
        prepare(&socket, patience)?;
        Ok(Self { socket, scratch: Vec::new(), start: 0 })
    }

    /// The aligned scratch; made when first needed, because links that only carry plain copies never do.
    fn scratch(&mut self) {
        if self.scratch.is_empty() {
            self.scratch = vec![0; SCRATCH + ALIGN];
            self.start = self.scratch.as_ptr().align_offset(ALIGN).min(ALIGN);
        }
    }
}

/// Sets up a socket for a link.
///
/// The sizes of the kernel's buffers are left to its own tuning: it was within noise of the best fixed size we measured,
/// and a fixed size would be cut to `net.core.rmem_max`, which most machines leave at a fifth of a megabyte.
pub(super) fn prepare(socket: &TcpStream, patience: Duration) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.set_nodelay(true)?;
    // The error after silence should be ours, which names the rank, and not the kernel's.
    SockRef::from(socket).set_tcp_user_timeout(Some(patience.saturating_mul(2)))
}

/// Bytes received into `into`; 0 means nothing yet.
pub(super) fn receive(socket: &TcpStream, into: &mut [u8]) -> Result<usize, LinkError> {
    if into.is_empty() {
        return Ok(0);
    }
    loop {
        return match recv(socket, &mut *into, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(LinkError::Closed("it closed the connection".into())),
            Ok((_, count)) => Ok(count),
            Err(Errno::AGAIN) => Ok(0),
            Err(Errno::INTR) => continue,
            Err(error) => Err(broken(error)),
        };
    }
}

/// Bytes of `parts` the kernel took; 0 means full.
pub(super) fn transmit(socket: &TcpStream, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
    let parts = &parts[..parts.len().min(PARTS)];
    loop {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        return match sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN) => Ok(0),
            Err(Errno::INTR) => continue,
            Err(error) => Err(broken(error)),
        };
    }
}

/// An error if the peer has closed the connection or it broke.
pub(super) fn check(socket: &TcpStream) -> Result<(), LinkError> {
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(LinkError::Io(error.into())),
    }
    if !fds[0].revents().intersects(gone) {
        return Ok(());
    }
    match socket.take_error() {
        Ok(Some(error)) => {
            Err(error.raw_os_error().map_or(LinkError::Io(error), |code| broken(Errno::from_raw_os_error(code))))
        }
        _ => Err(LinkError::Closed("it closed the connection".into())),
    }
}

fn broken(error: Errno) -> LinkError {
    match error {
        Errno::CONNRESET | Errno::PIPE => LinkError::Closed("its end of the connection is gone".into()),
        Errno::TIMEDOUT => LinkError::Unreachable("its host does not answer any more".into()),
        Errno::HOSTUNREACH | Errno::NETUNREACH => LinkError::Unreachable("its host cannot be reached any more".into()),
        other => LinkError::Io(other.into()),
    }
}

impl Link for TcpLink {
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        transmit(&self.socket, parts)
    }

    fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        self.scratch();
        let mut total = 0;
        while total < limit {
            let want = SCRATCH.min(limit - total);
            let into = &mut self.scratch[self.start..self.start + want];
            let count = match receive(&self.socket, into) {
                Err(error) if total == 0 => return Err(error),
                Err(_) => 0,
                Ok(count) => count,
            };
            if count > 0 {
                sink(&into[..count]);
                total += count;
            }
            if count < want {
                break;
            }
        }
        Ok(total)
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        receive(&self.socket, into)
    }

    fn bell(&self) -> Bell<'_> {
        Bell::Descriptor(self.socket.as_fd())
    }

    fn check(&mut self) -> Result<(), LinkError> {
        check(&self.socket)
    }

    fn close(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{IoSlice, Read, Write},
        net::{TcpListener, TcpStream},
        time::{Duration, Instant},
    };

    use super::{ALIGN, Link, LinkError, TcpLink};

    fn pair() -> (TcpLink, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        (TcpLink::new(near, Duration::from_secs(9)).unwrap(), far)
    }

    fn eventually(mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < end, "nothing happened for 20 s");
            std::thread::yield_now();
        }
    }

    #[test]
    fn bytes_pass_both_ways_in_order() {
        let (mut link, mut far) = pair();
        assert_eq!(link.fill(&mut [0; 8]).unwrap(), 0, "nothing was sent yet");
        assert_eq!(link.push(&[IoSlice::new(b"one"), IoSlice::new(b"two")]).unwrap(), 6);
        let mut got = [0; 6];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"onetwo");
        far.write_all(b"threefour").unwrap();
        let mut seen = Vec::new();
        eventually(|| {
            let left = 5 - seen.len();
            link.pull(left, &mut |piece| {
                assert_eq!(piece.as_ptr().align_offset(ALIGN), 0);
                seen.extend_from_slice(piece);
            })
            .unwrap();
            seen.len() == 5
        });
        assert_eq!(seen, b"three");
        let mut rest = [0; 4];
        eventually(|| link.fill(&mut rest).unwrap() == 4);
        assert_eq!(&rest, b"four");
    }

    #[test]
    fn a_full_link_says_so() {
        let (mut link, _far) = pair();
        let block = vec![0; 1 << 20];
        let mut sent = 0;
        eventually(|| {
            let count = link.push(&[IoSlice::new(&block)]).unwrap();
            sent += count;
            count == 0
        });
        assert!(sent > 0);
    }

    #[test]
    fn reading_continues_after_closing() {
        let (mut link, mut far) = pair();
        assert_eq!(link.push(&[IoSlice::new(b"bye")]).unwrap(), 3);
        link.close();
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"bye");
        far.write_all(b"answer").unwrap();
        eventually(|| link.fill(&mut [0; 6]).unwrap() == 6);
        assert!(link.push(&[IoSlice::new(b"more")]).is_err());
    }

    #[test]
    fn the_peers_end_is_noticed() {
        let (mut link, mut far) = pair();
        link.check().unwrap();
        far.write_all(b"last").unwrap();
        drop(far);
        eventually(|| matches!(link.check(), Err(LinkError::Closed(_))));
        let mut last = [0; 4];
        assert_eq!(link.fill(&mut last).unwrap(), 4, "what was sent before stays readable");
        assert!(matches!(link.fill(&mut last), Err(LinkError::Closed(_))));
        eventually(|| matches!(link.push(&[IoSlice::new(b"x")]), Err(LinkError::Closed(_))));
    }
}
