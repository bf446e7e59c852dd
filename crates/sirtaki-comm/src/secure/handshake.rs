//! The first thing said on every connection: both ends prove that they know the job's secret.
//!
//! ```text
//! caller    hello      magic 8 | version 2 | purpose 1 | 0 | rank 4 | group 16 | nonce 32     64 bytes
//! acceptor  challenge  magic 8 | version 2 | code 1    | 0 | rank 4 | nonce 32                48 bytes
//! caller    proof      HMAC(session, "caller")                                               32 bytes
//! acceptor  verdict    code 1 | 0 * 7 | HMAC(session, "acceptor")                            40 bytes
//! ```
//!
//! Numbers are little-endian, HMAC is HMAC-SHA256, and `session` is HMAC(secret, label, hello, challenge, binding).
//! Fresh nonces from both ends make every session unique, so nothing recorded can be replayed; the labels keep one
//! end's proof from being sent back to it; both ranks are part of the session, so a call that is redirected to another
//! rank of the group is noticed; the binding ties the proof to one TLS session (see [`super::Tls`]) and is zero without
//! TLS. All messages have a fixed size, so before the proof nothing a stranger says decides how much is read or
//! allocated. A refusal is a code other than zero in the challenge or verdict, after which the acceptor closes. Later
//! versions keep the hello's size and the positions of magic and version, so that they can still refuse each other.
//!
//! Without TLS this keeps strangers out, but not an attacker who can change packets of a proven connection.

use std::io::{self, Read, Write};

use hmac::{Hmac, Mac};
use sha2::Sha256;
use zeroize::Zeroize;

use super::{Secret, secret::keyed};
use crate::CommError;

/// The protocol's version; both ends need the same.
pub const VERSION: u16 = 2;

/// Bytes of the caller's first message.
pub const HELLO_SIZE: usize = 64;

const MAGIC: [u8; 8] = *b"sirtaki\n";
const CHALLENGE_SIZE: usize = 48;
const VERDICT_SIZE: usize = 40;
/// First bytes of TLS records: an alert and a handshake.
const TLS_RECORDS: [u8; 2] = [0x15, 0x16];

const WELCOME: u8 = 0;
const NOT_OURS: u8 = 1;
const OTHER_VERSION: u8 = 2;
const WRONG_SECRET: u8 = 3;
const OTHER_PURPOSE: u8 = 4;
const OTHER_GROUP: u8 = 5;
const NO_TLS: u8 = 6;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// Requests to the rendezvous store.
    Store = 1,
    /// A link of a mesh.
    Link = 2,
    /// Measuring the path between two hosts.
    Probe = 3,
    /// Requests to a service that callers enter at any time.
    Service = 4,
}

/// What a caller says about itself; true once the handshake has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// What it wants.
    pub purpose: Purpose,
    /// Its rank in the group.
    pub rank: u32,
    /// The group it wants to join; random, so that no rank joins another one by accident.
    pub group: [u8; 16],
    /// The rank it calls.
    pub to: u32,
}

/// Which callers an acceptor lets in, and who it is itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acceptor {
    /// What callers must want.
    pub purpose: Purpose,
    /// The group they must belong to.
    pub group: [u8; 16],
    /// The acceptor's own rank in that group.
    pub rank: u32,
}

/// The caller's part. Errors name `peer`.
pub fn call(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    binding: &[u8; 32],
    claim: &Claim,
    peer: &str,
) -> Result<(), CommError> {
    let hello = hello(claim, &nonce()?);
    stream.write_all(&hello).map_err(|error| lost(peer, &error))?;
    let mut challenge = [0; CHALLENGE_SIZE];
    let got = read_most(stream, &mut challenge).map_err(|error| lost(peer, &error))?;
    if got > 0 && TLS_RECORDS.contains(&challenge[0]) {
        return Err(refused(peer, "it speaks TLS and this process does not; switch TLS on for all or for none"));
    }
    if got < CHALLENGE_SIZE {
        return Err(lost(peer, &io::ErrorKind::UnexpectedEof.into()));
    }
    check_challenge(&challenge, claim.to, peer)?;
    let session = Session::new(secret, &hello, &challenge, binding);
    stream.write_all(&session.tag(b"caller")).map_err(|error| lost(peer, &error))?;
    let mut verdict = [0; VERDICT_SIZE];
    stream.read_exact(&mut verdict).map_err(|error| lost(peer, &error))?;
    if verdict[0] != WELCOME {
        return Err(refused(peer, explain(verdict[0])));
    }
    if !session.verify(b"acceptor", &verdict[8..]) {
        return Err(refused(peer, "it does not know the job's secret, or somebody is in between"));
    }
    Ok(())
}

/// The acceptor's part: returns who called once that is proven. Errors name `peer`.
///
/// Callers for another purpose or group are refused after their proof.
pub fn accept(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    binding: &[u8; 32],
    me: &Acceptor,
    peer: &str,
) -> Result<Claim, CommError> {
    let mut hello = [0; HELLO_SIZE];
    let (start, rest) = hello.split_at_mut(10);
    stream.read_exact(start).map_err(|error| lost(peer, &error))?;
    if start[..8] != MAGIC {
        let code = if start[0] == TLS_RECORDS[1] { NO_TLS } else { NOT_OURS };
        let _ = stream.write_all(&challenge(code, me.rank, &[0; 32]));
        let reason = if code == NO_TLS { "it speaks TLS, which is off here" } else { "it does not speak our protocol" };
        return Err(refused(peer, reason));
    }
    stream.read_exact(rest).map_err(|error| lost(peer, &error))?;
    let version = u16::from_le_bytes([hello[8], hello[9]]);
    if version != VERSION {
        let _ = stream.write_all(&challenge(OTHER_VERSION, me.rank, &[0; 32]));
        return Err(refused(peer, format!("it speaks protocol version {version}, expected {VERSION}")));
    }
    let challenge = challenge(WELCOME, me.rank, &nonce()?);
    stream.write_all(&challenge).map_err(|error| lost(peer, &error))?;
    let session = Session::new(secret, &hello, &challenge, binding);
    let mut proof = [0; 32];
    stream.read_exact(&mut proof).map_err(|error| lost(peer, &error))?;
    let (code, reason) = if session.verify(b"caller", &proof) {
        judge(&hello, me)
    } else {
        (WRONG_SECRET, "it does not know the job's secret, or somebody is in between")
    };
    if code != WELCOME {
        let _ = stream.write_all(&verdict(code, &[0; 32]));
        return Err(refused(peer, reason));
    }
    stream.write_all(&verdict(WELCOME, &session.tag(b"acceptor"))).map_err(|error| lost(peer, &error))?;
    Ok(claim_of(&hello, me))
}

fn hello(claim: &Claim, nonce: &[u8; 32]) -> [u8; HELLO_SIZE] {
    let mut hello = [0; HELLO_SIZE];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..10].copy_from_slice(&VERSION.to_le_bytes());
    hello[10] = claim.purpose as u8;
    hello[12..16].copy_from_slice(&claim.rank.to_le_bytes());
    hello[16..32].copy_from_slice(&claim.group);
    hello[32..].copy_from_slice(nonce);
    hello
}

fn challenge(code: u8, rank: u32, nonce: &[u8; 32]) -> [u8; CHALLENGE_SIZE] {
    let mut challenge = [0; CHALLENGE_SIZE];
    challenge[..8].copy_from_slice(&MAGIC);
    challenge[8..10].copy_from_slice(&VERSION.to_le_bytes());
    challenge[10] = code;
    challenge[12..16].copy_from_slice(&rank.to_le_bytes());
    challenge[16..].copy_from_slice(nonce);
    challenge
}

fn check_challenge(challenge: &[u8; CHALLENGE_SIZE], called: u32, peer: &str) -> Result<(), CommError> {
    let version = u16::from_le_bytes([challenge[8], challenge[9]]);
    let answers = rank_in(challenge);
    if challenge[..8] != MAGIC {
        Err(refused(peer, "it does not speak our protocol"))
    } else if version != VERSION {
        Err(refused(peer, format!("it speaks protocol version {version}, expected {VERSION}")))
    } else if challenge[10] != WELCOME {
        Err(refused(peer, explain(challenge[10])))
    } else if answers != called {
        let reason = format!("rank {answers} of the group answers where rank {called} was called");
        Err(refused(peer, format!("{reason}; somebody redirects connections")))
    } else {
        Ok(())
    }
}

fn verdict(code: u8, tag: &[u8; 32]) -> [u8; VERDICT_SIZE] {
    let mut verdict = [0; VERDICT_SIZE];
    verdict[0] = code;
    verdict[8..].copy_from_slice(tag);
    verdict
}

/// Whether a proven caller has come to the right place.
fn judge(hello: &[u8; HELLO_SIZE], me: &Acceptor) -> (u8, &'static str) {
    if hello[10] != me.purpose as u8 {
        (OTHER_PURPOSE, "it called for another purpose")
    } else if hello[16..32] != me.group {
        (OTHER_GROUP, "it belongs to another group of this job")
    } else {
        (WELCOME, "")
    }
}

fn claim_of(hello: &[u8; HELLO_SIZE], me: &Acceptor) -> Claim {
    Claim { purpose: me.purpose, rank: rank_in(hello), group: me.group, to: me.rank }
}

/// The sender's rank, which has the same position in a hello and a challenge.
fn rank_in(message: &[u8]) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| message[12 + i]))
}

/// A refusal code as the refused caller reads it.
fn explain(code: u8) -> &'static str {
    match code {
        NOT_OURS => "it did not understand our greeting",
        OTHER_VERSION => "it speaks another version of the protocol",
        WRONG_SECRET => "wrong secret: this process does not know the secret of its job, or somebody is in between",
        OTHER_PURPOSE => "it listens for another purpose",
        OTHER_GROUP => "it waits for another group of this job",
        NO_TLS => "TLS is off there and on here; switch it on for all or for none",
        _ => "it gave an unknown reason",
    }
}

/// What both ends can compute once the nonces are exchanged.
struct Session([u8; 32]);

impl Session {
    fn new(secret: &Secret, hello: &[u8; HELLO_SIZE], challenge: &[u8; CHALLENGE_SIZE], binding: &[u8; 32]) -> Self {
        let parts: [&[u8]; 4] = [b"sirtaki session", hello, challenge, binding];
        Self(finish(parts.iter().fold(keyed(secret.bytes()), |mac, part| mac.chain_update(part))))
    }

    fn tag(&self, label: &[u8]) -> [u8; 32] {
        finish(keyed(&self.0).chain_update(label))
    }

    /// In constant time.
    fn verify(&self, label: &[u8], tag: &[u8]) -> bool {
        keyed(&self.0).chain_update(label).verify_slice(tag).is_ok()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

fn finish(mac: Hmac<Sha256>) -> [u8; 32] {
    mac.finalize().into_bytes().into()
}

fn nonce() -> Result<[u8; 32], CommError> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| CommError::io("cannot draw random bytes", io::Error::other(error)))?;
    Ok(nonce)
}

/// Reads until `into` is full or the peer has finished, and returns how much came.
fn read_most(stream: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match stream.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && got > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn refused(peer: &str, reason: impl Into<String>) -> CommError {
    CommError::Refused { peer: peer.into(), reason: reason.into() }
}

/// The refusal for a connection that broke before the proof.
pub(super) fn lost(peer: &str, error: &io::Error) -> CommError {
    let reason = match error.kind() {
        io::ErrorKind::TimedOut => "it did not prove in time that it knows the job's secret".to_string(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "it closed the connection before the proof of the job's secret was through".to_string()
        }
        _ => error.to_string(),
    };
    refused(peer, reason)
}

#[cfg(test)]
mod tests;
