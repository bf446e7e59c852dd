//! What the kernel knows of the path to a TCP peer: the round-trip time of a packet, queues included.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

/// Words of the kernel's `struct tcp_info` that are read. Later kernels append more and change none of these.
const WORDS: usize = 32;
/// Milliseconds since data was sent, the round trip in microseconds, and bytes acknowledged so far.
const SENT: usize = 11;
const ROUND_TRIP: usize = 17;
const BYTES: usize = 30;
/// A connection over which nothing was sent for this long says nothing about now.
const FRESH: u32 = 2000;

/// The path to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Path {
    /// The round-trip time of a packet.
    pub(crate) round_trip: Duration,
    /// Bytes sent so far.
    pub(crate) sent: u64,
}

/// What is known of a TCP connection that is in use; `None` for an idle one, and for anything but TCP.
pub(crate) fn path(socket: BorrowedFd<'_>) -> Option<Path> {
    let mut words = [0_u32; WORDS];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which `words` has, and any bytes are valid there.
    let outcome = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            words.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let known = outcome == 0 && length as usize == size_of_val(&words);
    (known && words[ROUND_TRIP] > 0 && words[SENT] < FRESH).then(|| Path {
        round_trip: Duration::from_micros(words[ROUND_TRIP].into()),
        sent: words_as_one(words[BYTES], words[BYTES + 1]),
    })
}

fn words_as_one(first: u32, second: u32) -> u64 {
    let [first, second] = [first.to_ne_bytes(), second.to_ne_bytes()];
    u64::from_ne_bytes([first[0], first[1], first[2], first[3], second[0], second[1], second[2], second[3]])
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::{fd::AsFd, unix::net::UnixStream},
    };

    use super::*;

    #[test]
    fn a_connection_that_was_used_has_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        for _ in 0..10 {
            near.write_all(b"there").unwrap();
            far.read_exact(&mut [0; 5]).unwrap();
            far.write_all(b"back").unwrap();
            near.read_exact(&mut [0; 4]).unwrap();
        }
        let Path { round_trip, sent } = path(near.as_fd()).unwrap();
        assert!(round_trip > Duration::ZERO && round_trip < Duration::from_secs(10), "{round_trip:?}");
        // The end of an exchange was acknowledged with the answer, and the handshake may count.
        assert!((50..=51).contains(&sent), "{sent}");
        assert_eq!(path(UnixStream::pair().unwrap().0.as_fd()), None);
    }
}
