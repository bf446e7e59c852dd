//! The links that carry words and verdicts: a star around rank 0, over TCP whatever transport carries the data.
//!
//! Between hosts they are encrypted even where tensors are not: what they carry decides what every rank does.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::mpsc,
    time::{Duration, Instant},
};

use serde::{Serialize, de::DeserializeOwned};
use sirtaki_comm::{
    Alarm, CommError, Communicator, Group, Rank, Settings,
    link::link_over,
    rendezvous::{Exchange, choose_network, split_with},
    secure::{
        Access, Gate, fresh_id,
        handshake::{Acceptor, Claim, Purpose},
    },
};

use crate::{
    decide::{
        blame::Sign,
        message::{MESSAGE_LIMIT, decode, encode},
    },
    runtime::{
        explain::Answer,
        shared::now,
        wire::{Ended, FrameKind, Wire, fail_frame, frame, post_frame, question},
    },
    telemetry::{Said, clock::Offset},
};

/// How long rank 0's address may refuse connections.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// This rank's links: to all ranks on rank 0, to rank 0 elsewhere. How a link ended is seen in `sign`.
pub(crate) struct Star {
    wires: Vec<Option<Wire>>,
    /// Failures and ends of links that nobody has looked at yet.
    unseen: usize,
    rank: Rank,
    /// The address at which ranks of other hosts reach this one.
    bind: IpAddr,
    /// Letters for this rank, and who wrote them.
    posts: Vec<(Rank, Vec<u8>)>,
}

impl Star {
    /// Connects the ranks of `world`, which all call it.
    pub(crate) fn connect(world: &mut dyn Communicator, settings: &Settings) -> Result<Star, CommError> {
        let made = split_with(world, Some(0), |group, exchange| join(group, exchange, settings))?;
        made.ok_or_else(|| CommError::Invalid { problem: "a star needs a group".into() })
    }

    /// Does something with every working link, and counts the failures and ends it finds.
    fn each(&mut self, mut work: impl FnMut(Rank, &mut Wire)) {
        for (rank, wire) in self.wires.iter_mut().enumerate() {
            let Some(wire) = wire.as_mut().filter(|wire| wire.ended.is_none()) else { continue };
            let before = wire.has_fail();
            work(rank, wire);
            self.unseen += usize::from(wire.has_fail() != before) + usize::from(wire.ended.is_some());
        }
    }

    /// Sends words: to rank 0, or from it to all ranks. Too many for one message go in several.
    pub(crate) fn say<T: Serialize>(&mut self, words: &[T]) {
        let content = encode(&words);
        if content.len() > MESSAGE_LIMIT && words.len() > 1 {
            let (first, second) = words.split_at(words.len() / 2);
            self.say(first);
            return self.say(second);
        }
        let bytes = frame(FrameKind::Words, &content);
        self.each(|_, wire| wire.put(&bytes, now()));
    }

    /// Reports why everything ends: to rank 0, or from it to all ranks.
    pub(crate) fn fail(&mut self, alarm: &Alarm) {
        let bytes = fail_frame(alarm);
        self.each(|_, wire| wire.put(&bytes, now()));
    }

    /// Announces that this rank leaves in good order.
    pub(crate) fn leave(&mut self) {
        let bytes = frame(FrameKind::Goodbye, &[]);
        self.each(|_, wire| wire.put(&bytes, now()));
    }

    /// Shows these ranks that this one is alive. Anything still being sent shows it too.
    pub(crate) fn show_life(&mut self, to: impl Fn(Rank) -> bool) {
        let bytes = frame(FrameKind::Alive, &[]);
        self.each(|rank, wire| match wire.is_clear() {
            true if to(rank) => wire.put(&bytes, now()),
            _ => drop(wire.flush(now())),
        });
    }

    /// Sends telemetry: to rank 0, or from it to all ranks.
    pub(crate) fn see(&mut self, said: &Said) {
        let bytes = frame(FrameKind::Seen, &encode(said));
        self.each(|_, wire| wire.put(&bytes, now()));
    }

    /// The telemetry that other ranks sent.
    pub(crate) fn take_seen(&mut self) -> Vec<(Rank, Said)> {
        let mut all = Vec::new();
        // What a rank said before it left counts.
        for (rank, wire) in self.wires.iter_mut().enumerate().filter_map(|(rank, wire)| Some((rank, wire.as_mut()?))) {
            for bytes in wire.take_seen() {
                match decode(&bytes) {
                    Some(said) => all.push((rank, said)),
                    None => {
                        wire.garbage();
                        self.unseen += 1;
                    }
                }
            }
        }
        all
    }

    /// Asks a rank what it is doing.
    pub(crate) fn ask(&mut self, late: Rank) {
        let bytes = frame(FrameKind::Inquiry, &[]);
        self.each(|rank, wire| {
            if rank == late {
                wire.put(&bytes, now())
            }
        });
    }

    /// Whether rank 0 has asked, since the last call, what this rank is doing.
    pub(crate) fn take_asked(&mut self) -> bool {
        self.wires.iter_mut().flatten().any(|wire| std::mem::take(&mut wire.asked))
    }

    /// Tells rank 0 what this rank is doing.
    pub(crate) fn answer(&mut self, answer: &Answer) {
        let bytes = frame(FrameKind::Answer, &encode(answer));
        self.each(|_, wire| wire.put(&bytes, now()));
    }

    /// The answers since the last call: what these ranks are doing.
    pub(crate) fn take_answers(&mut self) -> Vec<(Rank, Answer)> {
        let answer = |(rank, wire): (Rank, &mut Option<Wire>)| Some((rank, wire.as_mut()?.answer.take()?));
        self.wires.iter_mut().enumerate().filter_map(answer).collect()
    }

    /// Asks all ranks for the time.
    pub(crate) fn ask_time(&mut self) {
        self.each(|_, wire| wire.put(&question(), now()));
    }

    /// How far the clock of `rank` is from ours, once that is known.
    pub(crate) fn offset(&self, rank: Rank, now: Duration) -> Option<Offset> {
        self.wires.get(rank)?.as_ref()?.clock.best(now)
    }

    /// The address at which ranks of other hosts reach this one.
    pub(crate) fn bind(&self) -> IpAddr {
        self.bind
    }

    /// Writes a letter to a rank, through rank 0.
    pub(crate) fn post(&mut self, to: Rank, content: Vec<u8>) {
        match self.rank {
            0 => self.pass_on(0, to, content),
            _ => {
                let bytes = post_frame(to, &content);
                self.each(|_, wire| wire.put(&bytes, now()));
            }
        }
    }

    /// On rank 0: hands a letter to the link of its reader.
    fn pass_on(&mut self, from: Rank, to: Rank, content: Vec<u8>) {
        if to == self.rank {
            return self.posts.push((from, content));
        }
        let bytes = post_frame(from, &content);
        self.each(|rank, wire| {
            if rank == to {
                wire.put(&bytes, now())
            }
        });
    }

    /// The letters for this rank since the last call, and who wrote them.
    pub(crate) fn take_posts(&mut self) -> Vec<(Rank, Vec<u8>)> {
        for at in 0..self.wires.len() {
            let posts = self.wires[at].as_mut().map(Wire::take_posts).unwrap_or_default();
            for (rank, content) in posts {
                match self.rank {
                    0 => self.pass_on(at, rank, content),
                    _ => self.posts.push((rank, content)),
                }
            }
        }
        std::mem::take(&mut self.posts)
    }

    /// Sends what did not fit before; says whether everything is sent.
    pub(crate) fn flush(&mut self) -> bool {
        let mut clear = true;
        self.each(|_, wire| clear &= wire.flush(now()));
        clear
    }

    /// Reads what has arrived; says whether there are words among it.
    pub(crate) fn fill(&mut self) -> bool {
        self.each(|_, wire| wire.fill(now()));
        self.wires.iter().flatten().any(Wire::has_words)
    }

    /// The words that have arrived.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Vec<(Rank, T)> {
        self.fill();
        let mut messages = Vec::new();
        for (rank, wire) in self.wires.iter_mut().enumerate().filter_map(|(rank, wire)| Some((rank, wire.as_mut()?))) {
            let mut clear = true;
            for bytes in wire.words() {
                match decode(&bytes) {
                    Some(message) => messages.push((rank, message)),
                    None => clear = false,
                }
            }
            if !clear {
                wire.garbage();
                self.unseen += 1;
            }
        }
        messages
    }

    /// Whether a failure or the end of a link has come since [`Star::take_fails`].
    pub(crate) fn has_news(&self) -> bool {
        self.unseen > 0
    }

    /// The failures that others reported since the last call.
    pub(crate) fn take_fails(&mut self) -> Vec<Alarm> {
        self.unseen = 0;
        self.wires.iter_mut().flatten().filter_map(Wire::take_fail).collect()
    }

    /// What the link to `rank` shows of it.
    pub(crate) fn sign(&self, rank: Rank) -> Sign {
        let Some(wire) = self.wires.get(rank).and_then(Option::as_ref) else { return Sign::Quiet(Duration::ZERO) };
        let quiet = now().saturating_sub(wire.heard);
        match &wire.ended {
            _ if wire.left => Sign::Left,
            None => Sign::Quiet(quiet),
            Some(Ended::Closed(how)) => Sign::Closed(how.clone()),
            Some(Ended::Unreachable(how)) => Sign::Unreachable(how.clone(), quiet),
        }
    }

    /// Links that work.
    pub(crate) fn count(&self) -> usize {
        self.wires.iter().flatten().filter(|wire| wire.descriptor().is_some()).count()
    }

    /// Handles to sleep on, by rank, and whether there is something to write.
    pub(crate) fn sockets(&self) -> Result<Vec<(OwnedFd, bool)>, CommError> {
        let copy = |wire: &Wire| Some(wire.descriptor()?.try_clone_to_owned().map(|handle| (handle, !wire.is_clear())));
        let handles: Result<_, _> = self.wires.iter().flatten().filter_map(copy).collect();
        handles.map_err(|error| CommError::io("cannot watch a control link", error))
    }
}

fn join(group: &Group, exchange: &mut dyn Exchange, settings: &Settings) -> Result<Star, CommError> {
    let deadline = Instant::now() + settings.start_timeout;
    let access = Access::for_control(settings, group.hosts().len())?;
    let bind = match group.hosts().len() {
        1 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => choose_network(group, exchange, settings)?.address,
    };
    let mut wires: Vec<Option<Wire>> = (0..group.size()).map(|_| None).collect();
    if group.rank() == 0 {
        let (listener, address) = Gate::bind(bind)?;
        let id = fresh_id()?;
        let (sender, arrivals) = mpsc::channel();
        let me = Acceptor { purpose: Purpose::Link, group: id, rank: 0 };
        let gate = Gate::open(listener, access, me, move |stream, claim| {
            let _ = sender.send((stream, claim));
        })?;
        exchange.all(&encode(&(address, id)))?;
        while let Some(missing) = (1..group.size()).find(|&rank| wires[rank].is_none()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((stream, claim)) = arrivals.recv_timeout(left) else {
                return Err(absent(group, missing, &gate, settings.start_timeout));
            };
            // A rank that is connected stays: a second one with the same number is a mistake or worse.
            let free = |place: &&mut Option<Wire>| claim.rank != 0 && place.is_none();
            if let Some(place) = wires.get_mut(claim.rank as usize).filter(free) {
                *place = Some(Wire::new(link_over(stream, settings)?, now()));
            }
        }
        return Ok(Star { wires, unseen: 0, rank: 0, bind, posts: Vec::new() });
    }
    let said = exchange.all(&[])?;
    let (address, id): (SocketAddr, [u8; 16]) = decode(&said[0]).ok_or_else(|| CommError::Refused {
        peer: group.describe(0),
        reason: "its address cannot be read; do all ranks run the same version?".into(),
    })?;
    let claim = Claim { purpose: Purpose::Link, rank: group.rank() as u32, group: id, to: 0 };
    let patience = Instant::now() + REFUSAL_PATIENCE;
    let stream = access.call_patiently(address, &claim, patience, deadline)?;
    wires[0] = Some(Wire::new(link_over(stream, settings)?, now()));
    Ok(Star { wires, unseen: 0, rank: group.rank(), bind, posts: Vec::new() })
}

fn absent(group: &Group, rank: Rank, gate: &Gate, waited: Duration) -> CommError {
    let refused = gate.refusals().join("; ");
    let refused = if refused.is_empty() { refused } else { format!("; meanwhile: {refused}") };
    CommError::Timeout {
        rank: group.world_rank(rank),
        who: group.describe(rank),
        operation: format!("connecting to {} at {}{refused}", group.describe(0), gate.address()),
        waited,
    }
}
