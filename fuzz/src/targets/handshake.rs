//! Both ends of the handshake against a stranger: whatever comes, nobody is let in, and nothing is read beyond the fixed
//! sizes.

use std::io::{self, Read, Write};

use sirtaki_comm::secure::{
    Secret,
    handshake::{Acceptor, Claim, HELLO_SIZE, Purpose, accept, call},
};

/// Says what the fuzzer wants and listens to nothing.
struct Stranger<'a> {
    says: &'a [u8],
    heard: usize,
}

impl Read for Stranger<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.heard += into.len().min(self.says.len());
        self.says.read(into)
    }
}

impl Write for Stranger<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn check(bytes: &[u8]) {
    let secret = Secret::from_hex(&"5a".repeat(32)).expect("64 digits");
    let group = [7; 16];
    let mut stranger = Stranger { says: bytes, heard: 0 };
    let me = Acceptor { purpose: Purpose::Link, group, rank: 0 };
    assert!(accept(&mut stranger, &secret, &[0; 32], &me, "somebody").is_err());
    assert!(stranger.heard <= HELLO_SIZE + 32);
    let claim = Claim { purpose: Purpose::Link, rank: 1, group, to: 0 };
    let mut stranger = Stranger { says: bytes, heard: 0 };
    assert!(call(&mut stranger, &secret, &[0; 32], &claim, "somebody").is_err());
    assert!(stranger.heard <= 48 + 40);
}
