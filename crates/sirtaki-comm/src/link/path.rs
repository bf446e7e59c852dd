//! What the kernel knows of the way to a TCP peer: how long a packet takes there and back, queues included.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    time::Duration,
};

/// Words of the kernel's `struct tcp_info` that are read. Later kernels have more of them, never fewer or others.
const WORDS: usize = 18;
/// Milliseconds since data was sent and received, and the round trip in microseconds.
const SENT: usize = 11;
const RECEIVED: usize = 13;
const ROUND_TRIP: usize = 17;
/// A connection that has carried nothing for this long says nothing about now.
const FRESH: u32 = 2000;

/// The round trip of a TCP connection that is in use; `None` for others, and for what is not a TCP connection.
pub(crate) fn round_trip(socket: BorrowedFd<'_>) -> Option<Duration> {
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
    let fresh = words[SENT].min(words[RECEIVED]) < FRESH;
    let known = outcome == 0 && length as usize == size_of_val(&words) && words[ROUND_TRIP] > 0;
    (known && fresh).then(|| Duration::from_micros(words[ROUND_TRIP].into()))
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
        let took = round_trip(near.as_fd()).unwrap();
        assert!(took > Duration::ZERO && took < Duration::from_secs(10), "{took:?}");
        assert_eq!(round_trip(UnixStream::pair().unwrap().0.as_fd()), None);
    }
}
