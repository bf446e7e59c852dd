//! Waiting: spin briefly, let others run, then sleep on whatever the links can signal.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{Rank, STANDSTILL, link::Bell};

use super::{Call, Mesh, peer::Peer, survey::Failure};

/// A peer on another core answers within this, or it is doing something else.
const SPIN: Duration = Duration::from_micros(30);
/// Tries between two looks at the clock.
const TRIES_PER_LOOK: u32 = 8;
/// How often to yield before sleeping.
const YIELDS: u32 = 20;
/// The same when there are more ranks than cores, where the core probably goes to the peer.
const YIELDS_WHEN_CROWDED: u32 = 64;
/// The longest sleep, so that a stop from another thread is noticed soon.
const SLICE: Duration = Duration::from_millis(50);
/// The sleep where a link cannot signal.
const NAP: Duration = Duration::from_micros(100);
/// The sleep where links signal in two ways and only one can be slept on.
const SHORT_SLICE: Duration = Duration::from_millis(1);
/// How often to look at all links where nothing says which one changed.
const LOOK_ROUND: Duration = Duration::from_millis(1);

/// The ranks an exchange still needs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Awaited {
    pub(super) send: Option<Rank>,
    pub(super) receive: Option<Rank>,
}

impl Awaited {
    pub(super) fn includes(&self, rank: Rank) -> bool {
        self.send == Some(rank) || self.receive == Some(rank)
    }
}

/// One wait without any progress.
#[derive(Debug, Default)]
pub(super) struct Wait {
    tries: u32,
    spun: bool,
    armed: bool,
    /// The shared word before the last try.
    seen: u32,
    pub(super) started: Option<Instant>,
    pub(super) surveyed: Option<Instant>,
    pub(super) told: Option<Instant>,
    woken: Option<Woken>,
    /// What is wrong unless the next try succeeds.
    pub(super) doom: Option<Failure>,
}

/// What ended a sleep.
#[derive(Debug)]
enum Woken {
    /// These links, or time.
    Links(Vec<Rank>),
    /// The shared word, or time.
    Word,
    /// Time.
    Nap,
}

/// What to poll a link's descriptor for. A link known to be closed would signal all the time, so it is polled only for
/// what is needed of it.
fn events(peer: &Peer, rank: Rank, awaited: Awaited) -> PollFlags {
    let open = !peer.left && peer.hung.is_none();
    let mut events = PollFlags::empty();
    events.set(PollFlags::RDHUP, open);
    events.set(PollFlags::IN, awaited.receive == Some(rank) || (open && peer.inbox.pending.is_none()));
    events.set(PollFlags::OUT, awaited.send == Some(rank));
    events
}

impl Wait {
    /// Lets a little time pass awake; false when it is time to sleep.
    fn stays_awake(&mut self, crowded: bool) -> bool {
        let started = *self.started.get_or_insert_with(Instant::now);
        self.tries += 1;
        if !self.spun && !crowded {
            if !self.tries.is_multiple_of(TRIES_PER_LOOK) || started.elapsed() < SPIN {
                hint::spin_loop();
                return true;
            }
            self.spun = true;
            self.tries = 0;
        }
        let awake = self.tries <= if crowded { YIELDS_WHEN_CROWDED } else { YIELDS };
        if awake {
            thread::yield_now();
        }
        awake
    }
}

impl Mesh {
    /// Lets some time pass after a fruitless try; an error once there is nothing left to hope for.
    pub(super) fn wait(&mut self, wait: &mut Wait, awaited: Awaited, call: &Call) -> Result<(), Failure> {
        if wait.stays_awake(self.crowded) {
            return Ok(());
        }
        if let Some(doom) = wait.doom.take() {
            return Err(doom);
        }
        if !wait.armed {
            // The next try comes after this look at the word, so a sleep on it cannot miss anything.
            wait.armed = true;
            wait.surveyed = Some(Instant::now());
            wait.seen = self.word();
            return Ok(());
        }
        if let Some(woken) = wait.woken.take() {
            self.look_round(wait, woken, awaited, call)?;
            if wait.doom.is_some() {
                return Ok(());
            }
        }
        wait.woken = Some(self.sleep(wait.seen, awaited));
        wait.seen = self.word();
        Ok(())
    }

    /// Surveys the links that signalled without helping, and all of them now and then.
    fn look_round(&mut self, wait: &mut Wait, woken: Woken, awaited: Awaited, call: &Call) -> Result<(), Failure> {
        let now = Instant::now();
        let since = wait.surveyed.map_or(SLICE, |then| now - then);
        if let Some(started) = wait.started.as_mut().filter(|_| since > STANDSTILL) {
            *started += since;
        }
        match woken {
            _ if since >= self.slice() => self.survey(wait, awaited, call, now, None),
            Woken::Links(ranks) => self.survey(wait, awaited, call, now, Some(&ranks)),
            Woken::Nap if since < LOOK_ROUND => Ok(()),
            Woken::Nap | Woken::Word => self.survey(wait, awaited, call, now, None),
        }
    }

    /// The longest sleep: short enough that short time limits are kept too.
    fn slice(&self) -> Duration {
        SLICE.min(self.timeout / 16)
    }

    /// The word by which shared-memory links signal.
    fn word(&self) -> u32 {
        let word = |bell| if let Bell::Word(signal) = bell { Some(signal.get()) } else { None };
        self.peers.iter().flatten().find_map(|peer| word(peer.link.bell())).unwrap_or_default()
    }

    /// Sleeps until a link may have something, at most a slice.
    fn sleep(&self, seen: u32, awaited: Awaited) -> Woken {
        let slice = self.slice();
        let mut word = None;
        let mut silent = false;
        let mut ranks = Vec::with_capacity(self.peers.len());
        let mut polled = Vec::with_capacity(self.peers.len());
        for (rank, peer) in self.peers.iter().enumerate() {
            let Some(peer) = peer else { continue };
            match peer.link.bell() {
                Bell::Nothing => silent = true,
                Bell::Word(signal) => word = Some(signal),
                Bell::Descriptor(descriptor) => {
                    let events = events(peer, rank, awaited);
                    if !events.is_empty() {
                        ranks.push(rank);
                        polled.push(PollFd::from_borrowed_fd(descriptor, events));
                    }
                }
            }
        }
        if silent {
            thread::sleep(NAP);
            return Woken::Nap;
        }
        match word {
            Some(word) if polled.is_empty() => word.sleep(seen, slice),
            mixed => {
                let slice = if mixed.is_some() { SHORT_SLICE } else { slice };
                let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(slice.subsec_nanos()) };
                if poll(&mut polled, Some(&limit)).is_ok() && mixed.is_none() {
                    let mut rung = polled.iter().map(|link| !link.revents().is_empty());
                    ranks.retain(|_| rung.next().unwrap_or(false));
                    return Woken::Links(ranks);
                }
            }
        }
        Woken::Word
    }
}
