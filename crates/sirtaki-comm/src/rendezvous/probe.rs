//! Testing the path to another host's address: can it be reached, and how fast is it?
//!
//! The called side sends and the caller counts what arrives. So the caller can stop at any time, and a slow network
//! costs no more time than a fast one.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::{
    CommError,
    secure::{
        Access, Gate, SecureStream,
        handshake::{Acceptor, Claim, Purpose},
    },
};

/// How long an address may take to answer.
const REACH_LIMIT: Duration = Duration::from_secs(2);
/// How long and how many bytes are measured, whichever ends first.
const MEASURE_TIME: Duration = Duration::from_millis(200);
const MEASURE_BYTES: usize = 8 << 20;
/// How long the called side keeps sending at most.
const SERVE_LIMIT: Duration = Duration::from_secs(10);

const BLOCK: usize = 64 << 10;
const ONLY_REACH: u8 = 0;
const MEASURE: u8 = 1;

/// Answers probes for `id` on one address until dropped.
pub(super) fn answer(listener: std::net::TcpListener, access: &Access, id: [u8; 16]) -> Result<Gate, CommError> {
    Gate::open(listener, access.clone(), Acceptor { purpose: Purpose::Probe, group: id, rank: 0 }, |stream, _| {
        serve(stream)
    })
}

fn serve(mut stream: SecureStream) {
    stream.set_deadline(Some(Instant::now() + SERVE_LIMIT));
    let mut wish = [ONLY_REACH];
    if stream.read_exact(&mut wish).is_ok() && wish == [MEASURE] {
        let block = vec![0; BLOCK];
        for _ in 0..MEASURE_BYTES / BLOCK {
            if stream.write_all(&block).is_err() {
                break;
            }
        }
    }
}

/// Calls one address of the host with this `id`: bits per second if `measure`, 0 if only to see whether it answers,
/// `None` if it does not.
pub(super) fn try_address(access: &Access, address: SocketAddr, id: [u8; 16], measure: bool) -> Option<u64> {
    let claim = Claim { purpose: Purpose::Probe, rank: 0, group: id, to: 0 };
    let mut stream = access.call(address, &claim, Instant::now() + REACH_LIMIT).ok()?;
    stream.set_deadline(Some(Instant::now() + REACH_LIMIT));
    stream.write_all(&[if measure { MEASURE } else { ONLY_REACH }]).ok()?;
    if !measure {
        return Some(0);
    }
    let started = Instant::now();
    stream.set_deadline(Some(started + MEASURE_TIME));
    let mut block = vec![0; BLOCK];
    let mut received = 0;
    while received < MEASURE_BYTES {
        match stream.read(&mut block) {
            Ok(count @ 1..) => received += count,
            _ => break,
        }
    }
    Some((received as f64 * 8.0 / started.elapsed().as_secs_f64()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secure::Secret;

    #[test]
    fn only_the_right_host_counts_as_reached() {
        let access = Access::new(Secret::random().unwrap(), None);
        let (listener, address) = Gate::bind("127.0.0.1".parse().unwrap()).unwrap();
        let gate = answer(listener, &access, [1; 16]).unwrap();
        assert_eq!(try_address(&access, address, [1; 16], false), Some(0));
        assert!(try_address(&access, address, [1; 16], true).unwrap() > 0);
        assert_eq!(try_address(&access, address, [2; 16], true), None, "another host with the same address");
        let stranger = Access::new(Secret::random().unwrap(), None);
        assert_eq!(try_address(&stranger, address, [1; 16], true), None);
        drop(gate);
        assert_eq!(try_address(&access, address, [1; 16], true), None);
    }
}
