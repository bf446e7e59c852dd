//! A link made worse on purpose: short pushes and pulls, pauses, and a cut after a number of bytes.
//!
//! The same seed gives the same troubles, so a failing test can be repeated.

use std::{
    io::IoSlice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use sirtaki_comm::link::{Bell, Link, LinkError};

/// What to do to a link.
#[derive(Debug, Clone, Default)]
pub struct Troubles {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Moves at most this many bytes at a time, a random number of them; 0 for no limit.
    pub short: usize,
    /// Pauses up to this long before one call in eight.
    pub pause: Duration,
    /// Bytes that may still be pushed; then the link breaks for good. If the links of one rank share it, it is as if
    /// that rank died.
    pub life: Option<Arc<AtomicU64>>,
}

/// A link with [`Troubles`].
pub struct Flaky<L> {
    /// Gone once cut, so the peer sees it closed.
    inner: Option<L>,
    troubles: Troubles,
    state: u64,
}

impl<L: Link> Flaky<L> {
    /// Wraps a link.
    pub fn new(inner: L, troubles: Troubles) -> Self {
        // Small seeds differ in few bits; spread them.
        let state = troubles.seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { inner: Some(inner), troubles, state }
    }

    /// The next number below `limit`, which is not 0 (xorshift).
    fn random(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % limit
    }

    fn shorten(&mut self, length: usize) -> usize {
        match self.troubles.short {
            0 => length,
            short => length.min(self.random(short as u64 + 1) as usize),
        }
    }

    fn pause(&mut self) {
        let longest = self.troubles.pause.as_micros() as u64;
        if longest > 0 && self.random(8) == 0 {
            thread::sleep(Duration::from_micros(self.random(longest + 1)));
        }
    }

    /// Bytes that may still be pushed.
    fn life(&self) -> usize {
        let left = self.troubles.life.as_ref().map_or(u64::MAX, |life| life.load(Ordering::Relaxed));
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    fn inner(&mut self) -> Result<&mut L, LinkError> {
        if self.life() == 0 {
            self.inner = None;
        }
        self.inner.as_mut().ok_or_else(|| LinkError::Closed("the link was cut".into()))
    }
}

impl<L: Link> Link for Flaky<L> {
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        self.pause();
        let total = parts.iter().map(|part| part.len()).sum();
        let mut room = self.shorten(total).min(self.life());
        let mut count = 0;
        for part in parts {
            let piece = &part[..part.len().min(room)];
            let taken = self.inner()?.push(&[IoSlice::new(piece)])?;
            room -= taken;
            count += taken;
            if taken < part.len() {
                break;
            }
        }
        if let Some(life) = &self.troubles.life {
            life.fetch_sub(count as u64, Ordering::Relaxed);
        }
        Ok(count)
    }

    fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        self.pause();
        let limit = self.shorten(limit);
        self.inner()?.pull(limit, sink)
    }

    fn bell(&self) -> Bell<'_> {
        self.inner.as_ref().map_or(Bell::Nothing, Link::bell)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.inner()?.check()
    }

    fn close(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.close();
        }
    }
}
