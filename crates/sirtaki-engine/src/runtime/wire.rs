//! One control link: frames out and in, and what it shows of the rank at its other end.
//!
//! Words wait for the owner thread in the order they came. A failure, a goodbye and a sign of life count from the moment
//! they arrive, so that the watcher sees them while the owner is busy.

use std::{
    collections::{VecDeque, vec_deque::Drain},
    io::IoSlice,
    os::fd::BorrowedFd,
    time::Duration,
};

use sirtaki_comm::{
    Alarm, Rank,
    link::{Bell, Link, LinkError},
};

use crate::{
    decide::message::{MESSAGE_LIMIT, decode, encode},
    runtime::{explain::Answer, shared},
    telemetry::clock::Exchanges,
};

/// Bytes read at a time.
const PIECE: usize = 64 << 10;
/// Bytes before a frame's content: its length and kind.
const HEAD: usize = 5;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// Words or verdicts.
    Words = 1,
    /// A sign of life without content.
    Alive = 2,
    /// Why everything ends.
    Fail = 3,
    /// The sender leaves in good order.
    Goodbye = 4,
    /// What time is it? Carries the time at which this was asked.
    AskTime = 5,
    /// That time, and the one at which it was answered.
    Time = 6,
    /// Telemetry.
    Seen = 7,
    /// What are you doing?
    Inquiry = 8,
    /// The reply, as an [`Answer`].
    Answer = 9,
    /// A letter, which rank 0 passes on: a rank and the content. Its reader gets the writer's rank with it.
    Post = 10,
}

/// Most telemetry messages that may wait; more are dropped.
const SEEN: usize = 256;

/// How a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The other side closed it, or its process is gone.
    Closed(String),
    /// The other side's host does not answer.
    Unreachable(String),
}

impl From<LinkError> for Ended {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Unreachable(how) => Ended::Unreachable(how),
            other => Ended::Closed(other.to_string()),
        }
    }
}

/// A link, with what is half sent and half received.
pub(crate) struct Wire {
    link: Box<dyn Link>,
    incoming: Vec<u8>,
    outgoing: VecDeque<u8>,
    words: VecDeque<Vec<u8>>,
    seen: VecDeque<Vec<u8>>,
    posts: VecDeque<(Rank, Vec<u8>)>,
    /// The other side's clock.
    pub(crate) clock: Exchanges,
    fail: Option<Alarm>,
    /// The other side wants to know what this process is doing.
    pub(crate) asked: bool,
    /// What the other side's process is doing.
    pub(crate) answer: Option<Answer>,
    /// When something last arrived.
    pub(crate) heard: Duration,
    /// The other side said goodbye.
    pub(crate) left: bool,
    pub(crate) ended: Option<Ended>,
}

/// A whole frame.
pub(crate) fn frame(kind: FrameKind, content: &[u8]) -> Vec<u8> {
    let mut bytes = (content.len() as u32).to_le_bytes().to_vec();
    bytes.push(kind as u8);
    bytes.extend(content);
    bytes
}

/// The frame that says why everything ends.
pub(crate) fn fail_frame(alarm: &Alarm) -> Vec<u8> {
    frame(FrameKind::Fail, &encode(alarm))
}

/// The frame of a letter: to a rank on its way to rank 0, from a rank afterwards.
pub(crate) fn post_frame(rank: Rank, content: &[u8]) -> Vec<u8> {
    frame(FrameKind::Post, &encode(&(rank, content)))
}

/// The frame that asks for the time.
pub(crate) fn question() -> Vec<u8> {
    frame(FrameKind::AskTime, &encode(&shared::now()))
}

/// The frame that answers with the time.
fn answer(question: &[u8]) -> Vec<u8> {
    match decode::<Duration>(question) {
        Some(asked) => frame(FrameKind::Time, &encode(&(asked, shared::now()))),
        None => Vec::new(),
    }
}

impl Wire {
    pub(crate) fn new(link: Box<dyn Link>, now: Duration) -> Self {
        Self {
            link,
            incoming: Vec::new(),
            outgoing: VecDeque::new(),
            words: VecDeque::new(),
            seen: VecDeque::new(),
            posts: VecDeque::new(),
            clock: Exchanges::default(),
            fail: None,
            asked: false,
            answer: None,
            heard: now,
            left: false,
            ended: None,
        }
    }

    /// Sends a frame, or begins to.
    pub(crate) fn put(&mut self, frame: &[u8], now: Duration) {
        if self.ended.is_none() {
            self.outgoing.extend(frame);
            self.flush(now);
        }
    }

    /// Sends what did not fit before; says whether everything is sent or never will be.
    pub(crate) fn flush(&mut self, now: Duration) -> bool {
        while !self.outgoing.is_empty() && self.ended.is_none() {
            let (front, back) = self.outgoing.as_slices();
            match self.link.push(&[IoSlice::new(front), IoSlice::new(back)]) {
                Ok(0) => return false,
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) => {
                    // What the other side said before it left counts.
                    self.fill(now);
                    self.ended = Some(error.into());
                }
            }
        }
        true
    }

    /// Whether nothing is left to be sent.
    pub(crate) fn is_clear(&self) -> bool {
        self.outgoing.is_empty() || self.ended.is_some()
    }

    /// Reads what has arrived.
    pub(crate) fn fill(&mut self, now: Duration) {
        while self.ended.is_none() {
            let Self { link, incoming, .. } = self;
            match link.pull(PIECE, &mut |piece| incoming.extend_from_slice(piece)) {
                Ok(0) => break,
                Ok(count) => {
                    self.heard = now;
                    self.sort();
                    if count < PIECE {
                        break;
                    }
                }
                Err(error) => self.ended = Some(error.into()),
            }
        }
    }

    /// Takes whole frames out of what has arrived.
    fn sort(&mut self) {
        let mut at = 0;
        let mut answers = Vec::new();
        while let Some(head) = self.incoming.get(at..at + HEAD) {
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let kind = head[4];
            if length > MESSAGE_LIMIT {
                return self.garbage();
            }
            let Some(content) = self.incoming.get(at + HEAD..at + HEAD + length) else { break };
            at += HEAD + length;
            match kind {
                _ if kind == FrameKind::Alive as u8 => {}
                _ if kind == FrameKind::Goodbye as u8 => self.left = true,
                _ if kind == FrameKind::Seen as u8 => {
                    if self.seen.len() < SEEN {
                        self.seen.push_back(content.to_vec());
                    }
                }
                // At once, whichever thread reads this: the owner may be busy for long.
                _ if kind == FrameKind::AskTime as u8 => answers.extend(answer(content)),
                _ if kind == FrameKind::Time as u8 => match decode::<(Duration, Duration)>(content) {
                    Some((asked, there)) => self.clock.note(asked, there, shared::now()),
                    None => return self.garbage(),
                },
                _ if kind == FrameKind::Inquiry as u8 => self.asked = true,
                _ if kind == FrameKind::Answer as u8 => match decode(content) {
                    Some(answer) => self.answer = Some(answer),
                    None => return self.garbage(),
                },
                _ if kind == FrameKind::Post as u8 => match decode(content) {
                    Some(post) => self.posts.push_back(post),
                    None => return self.garbage(),
                },
                _ if kind == FrameKind::Words as u8 => self.words.push_back(content.to_vec()),
                _ if kind == FrameKind::Fail as u8 => match decode(content) {
                    Some(alarm) => drop(self.fail.get_or_insert(alarm)),
                    None => return self.garbage(),
                },
                _ => return self.garbage(),
            }
        }
        self.incoming.drain(..at);
        if !answers.is_empty() {
            self.put(&answers, shared::now());
        }
    }

    /// The other side does not speak our protocol.
    pub(crate) fn garbage(&mut self) {
        let how = "it sent a message that cannot be read; is it of another version?";
        self.ended.get_or_insert(Ended::Closed(how.into()));
    }

    /// The telemetry that has arrived.
    pub(crate) fn take_seen(&mut self) -> VecDeque<Vec<u8>> {
        std::mem::take(&mut self.seen)
    }

    /// The letters that have arrived: to whom on rank 0, from whom elsewhere.
    pub(crate) fn take_posts(&mut self) -> VecDeque<(Rank, Vec<u8>)> {
        std::mem::take(&mut self.posts)
    }

    /// The words that have arrived.
    pub(crate) fn words(&mut self) -> Drain<'_, Vec<u8>> {
        self.words.drain(..)
    }

    pub(crate) fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// The failure that the other side reported, once.
    pub(crate) fn take_fail(&mut self) -> Option<Alarm> {
        self.fail.take()
    }

    pub(crate) fn has_fail(&self) -> bool {
        self.fail.is_some()
    }

    /// What to sleep on while the link works.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self.link.bell() {
            Bell::Descriptor(descriptor) if self.ended.is_none() => Some(descriptor),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    /// What the other side has sent that nobody has read yet.
    #[derive(Default)]
    struct Sent {
        bytes: Vec<u8>,
        gone: bool,
    }

    #[derive(Clone, Default)]
    struct Far(Arc<Mutex<Sent>>);

    impl Far {
        fn send(&self, bytes: &[u8]) {
            self.0.lock().unwrap().bytes.extend(bytes);
        }

        fn leave(&self) {
            self.0.lock().unwrap().gone = true;
        }
    }

    impl Link for Far {
        fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
            match self.0.lock().unwrap().gone {
                true => Err(LinkError::Closed("it is gone".into())),
                false => Ok(parts.iter().map(|part| part.len()).sum()),
            }
        }

        fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
            let mut sent = self.0.lock().unwrap();
            let count = sent.bytes.len().min(limit);
            if count == 0 && sent.gone {
                return Err(LinkError::Closed("it is gone".into()));
            }
            sink(&sent.bytes[..count]);
            sent.bytes.drain(..count);
            Ok(count)
        }
    }

    fn pair() -> (Wire, Far) {
        let far = Far::default();
        (Wire::new(Box::new(far.clone()), Duration::ZERO), far)
    }

    #[test]
    fn a_failure_overtakes_words_and_survives_the_end() {
        let (mut wire, far) = pair();
        let alarm = Alarm::Stopped { reason: "enough".into() };
        let mut bytes = frame(FrameKind::Words, b"abc");
        bytes.extend(fail_frame(&alarm));
        far.send(&bytes[..HEAD]);
        wire.fill(NOW);
        assert!(!wire.has_words() && wire.heard == NOW);
        far.send(&bytes[HEAD..]);
        far.leave();
        // Sending discovers first that the other side is gone.
        wire.put(&frame(FrameKind::Alive, &[]), NOW);
        wire.fill(NOW);
        assert!(matches!(wire.ended, Some(Ended::Closed(_))));
        assert_eq!(wire.take_fail(), Some(alarm));
        assert_eq!(wire.take_fail(), None);
        assert_eq!(wire.words().collect::<Vec<_>>(), [b"abc".to_vec()]);
    }

    #[test]
    fn unexpected_bytes_end_the_link() {
        for bytes in [[0xff; 16], [0, 0, 0, 0, 9, 0, 0, 0, 0, 9, 0, 0, 0, 0, 9, 0]] {
            let (mut wire, far) = pair();
            far.send(&bytes);
            wire.fill(NOW);
            assert!(matches!(wire.ended, Some(Ended::Closed(_))));
        }
        let (mut wire, far) = pair();
        far.send(&frame(FrameKind::Fail, &[200; 3]));
        wire.fill(NOW);
        assert!(wire.ended.is_some() && !wire.has_fail());
    }
}
