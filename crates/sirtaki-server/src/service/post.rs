//! All links of a member: messages in and out, without ever waiting for one of them alone.

use std::{
    collections::{BTreeMap, VecDeque},
    net::TcpListener,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sirtaki_comm::{
    CommError, Settings,
    link::{Bell, Link, LinkError, link_over},
    secure::{
        Access, Gate, SecureStream,
        handshake::{Acceptor, Purpose},
    },
};

use crate::{
    decide::{Id, message::Message},
    wire::{Incoming, Outgoing},
};

/// Longest sleep.
const NAP: Duration = Duration::from_millis(500);

/// Something that happened.
pub(super) enum Event {
    Message(Id, Message),
    /// A link has ended, for this reason.
    Gone(Id, String),
    /// Nothing until the limit, or somebody rang.
    Nothing,
}

/// A caller that has proven itself, and who it says it is.
type Arrival = (Id, SecureStream);

/// Wakes a [`Post`] from another thread.
#[derive(Debug, Clone)]
pub(super) struct Ringer(Arc<OwnedFd>);

impl Ringer {
    pub(super) fn ring(&self) {
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// All links of a member.
pub(super) struct Post {
    settings: Settings,
    lines: BTreeMap<Id, Line>,
    /// Bytes of all messages, in and out.
    pub(super) moved: (u64, u64),
    /// Messages for members that have not called yet.
    unsent: BTreeMap<Id, Vec<Message>>,
    ready: VecDeque<Event>,
    bell: Ringer,
    arrivals: mpsc::Receiver<Arrival>,
    sender: mpsc::Sender<Arrival>,
}

struct Line {
    link: Box<dyn Link>,
    incoming: Incoming,
    outgoing: VecDeque<Outgoing>,
}

impl Post {
    pub(super) fn new(settings: &Settings) -> Result<Self, CommError> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Ringer(Arc::new(made.map_err(|error| CommError::io("cannot make an event", error))?));
        let (sender, arrivals) = mpsc::channel();
        let (lines, unsent, ready) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Ok(Self { settings: settings.clone(), lines, moved: (0, 0), unsent, ready, bell, arrivals, sender })
    }

    pub(super) fn ringer(&self) -> Ringer {
        self.bell.clone()
    }

    /// Lets callers in, each as the member it says it is.
    pub(super) fn open(&self, listener: TcpListener, access: Access, me: Id) -> Result<Gate, CommError> {
        let (sender, bell) = (std::sync::Mutex::new(self.sender.clone()), self.bell.clone());
        let acceptor = Acceptor { purpose: Purpose::Service, group: [0; 16], rank: me };
        Gate::open(listener, access, acceptor, move |stream, claim| {
            let sender = sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let _ = sender.send((claim.rank, stream));
            bell.ring();
        })
    }

    /// Callers since the last time, for members that give them numbers of their own.
    pub(super) fn callers(&mut self) -> Vec<SecureStream> {
        self.arrivals.try_iter().map(|(_, stream)| stream).collect()
    }

    /// Takes in callers under the numbers they say.
    pub(super) fn admit(&mut self) {
        let arrivals: Vec<Arrival> = self.arrivals.try_iter().collect();
        for (id, stream) in arrivals {
            let _ = self.add(id, stream);
        }
    }

    /// A new link. Messages that waited for it go first.
    pub(super) fn add(&mut self, id: Id, stream: SecureStream) -> Result<(), CommError> {
        let link = link_over(stream, &self.settings)?;
        self.lines.insert(id, Line { link, incoming: Incoming::default(), outgoing: VecDeque::new() });
        for message in self.unsent.remove(&id).unwrap_or_default() {
            self.send(id, message);
        }
        Ok(())
    }

    pub(super) fn has(&self, id: Id) -> bool {
        self.lines.contains_key(&id)
    }

    /// Forgets messages for a member that has not called yet.
    pub(super) fn forget(&mut self, id: Id) {
        self.unsent.remove(&id);
    }

    /// The link is another member's.
    pub(super) fn rename(&mut self, from: Id, to: Id) {
        if let Some(line) = self.lines.remove(&from) {
            self.lines.insert(to, line);
        }
    }

    /// Ends links, and forgets messages, of all that do not pass.
    pub(super) fn keep(&mut self, passes: impl Fn(Id) -> bool) {
        self.lines.retain(|&id, _| passes(id));
        self.unsent.retain(|&id, _| passes(id));
    }

    /// Sends a message; what does not fit now goes out while waiting.
    pub(super) fn send(&mut self, to: Id, message: Message) {
        let Some(line) = self.lines.get_mut(&to) else {
            return self.unsent.entry(to).or_default().push(message);
        };
        match Outgoing::new(message) {
            Ok(outgoing) => {
                self.moved.1 += outgoing.bytes();
                line.outgoing.push_back(outgoing);
            }
            Err(problem) => return self.ready.push_back(Event::Gone(to, problem)),
        }
        if let Err(error) = line.flush() {
            self.end(to, &error);
        }
    }

    fn end(&mut self, id: Id, error: &LinkError) {
        self.lines.remove(&id);
        self.ready.push_back(Event::Gone(id, error.to_string()));
    }

    /// Whether everything has gone out.
    pub(super) fn is_flushed(&self) -> bool {
        self.lines.values().all(|line| line.outgoing.is_empty())
    }

    /// The next event, at the latest at the deadline.
    pub(super) fn next(&mut self, deadline: Instant) -> Event {
        if let Some(event) = self.ready.pop_front() {
            return event;
        }
        self.look();
        if self.ready.is_empty() {
            self.sleep(deadline);
            self.look();
        }
        self.ready.pop_front().unwrap_or(Event::Nothing)
    }

    /// Moves what can be moved.
    fn look(&mut self) {
        let mut ended = Vec::new();
        for (&id, line) in &mut self.lines {
            let moved = line.flush().and_then(|()| {
                while let Some((message, bytes)) = line.incoming.pull(&mut *line.link)? {
                    self.moved.0 += bytes;
                    self.ready.push_back(Event::Message(id, message));
                }
                Ok(())
            });
            if let Err(error) = moved {
                ended.push((id, error));
            }
        }
        ended.iter().for_each(|(id, error)| self.end(*id, error));
    }

    fn sleep(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now()).min(NAP);
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = vec![PollFd::new(&*self.bell.0, PollFlags::IN)];
        for line in self.lines.values() {
            if let Bell::Descriptor(descriptor) = line.link.bell() {
                let room = if line.outgoing.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                fds.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN | room));
            }
        }
        let _ = poll(&mut fds, Some(&limit));
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.bell.0, &mut count);
    }
}

impl Line {
    fn flush(&mut self) -> Result<(), LinkError> {
        while let Some(first) = self.outgoing.front_mut() {
            if !first.push(&mut *self.link)? {
                break;
            }
            self.outgoing.pop_front();
        }
        Ok(())
    }
}
