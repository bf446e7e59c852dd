//! Answering others: a listener that lets in only callers that prove the secret.
//!
//! Every caller gets a thread and a short deadline of its own, so a silent or strange one delays nobody. The number of
//! unproven callers at a time is bounded, in total and per address. A caller that finds no place takes that of one that
//! has had time enough to prove itself, from the address with the most callers, so that strangers cannot keep ranks out
//! by their number. While all are new, as when many ranks start at once, newcomers are turned away without a word and
//! [call again](super::Access::call_patiently).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{
    Access, SecureStream,
    handshake::{Acceptor, Claim},
};
use crate::CommError;

/// How long a caller may take to prove itself.
const PROOF_LIMIT: Duration = Duration::from_secs(5);
/// How long a refused caller may take to read why.
const PART_LIMIT: Duration = Duration::from_millis(300);
/// How long a caller is sure to keep its place.
const GRACE: Duration = Duration::from_secs(1);
/// Most callers at a time that have not proven themselves yet.
const UNPROVEN: usize = 256;
/// Most of these from one address.
const UNPROVEN_PER_ADDRESS: usize = 128;
/// Refusals remembered for error messages.
const REMEMBERED: usize = 4;

/// Called with every proven connection, on that connection's own thread.
type Deliver = dyn Fn(SecureStream, Claim) + Send + Sync;

/// A listener and its threads. Dropping it disconnects unproven callers and waits for `deliver` to return everywhere;
/// connections already delivered stay open.
pub struct Gate {
    address: SocketAddr,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

struct State {
    access: Access,
    me: Acceptor,
    deliver: Box<Deliver>,
    stop: AtomicBool,
    bell: OwnedFd,
    /// Unproven callers by number, the oldest first.
    unproven: Mutex<BTreeMap<u64, Caller>>,
    refusals: Mutex<VecDeque<String>>,
}

/// A caller that has not proven itself yet.
struct Caller {
    /// To end the connection from outside.
    socket: Option<TcpStream>,
    from: IpAddr,
    since: Instant,
}

impl Gate {
    /// A listener on `bind` at a port of the system's choice. It answers nobody before [`Gate::open`].
    pub fn bind(bind: IpAddr) -> Result<(TcpListener, SocketAddr), CommError> {
        let what = |error| CommError::io(format!("cannot listen on {bind}"), error);
        let listener = TcpListener::bind((bind, 0)).map_err(what)?;
        let address = listener.local_addr().map_err(what)?;
        Ok((listener, address))
    }

    /// Answers callers that `me` lets in and hands them to `deliver`, each on a thread of its own.
    pub fn open(
        listener: TcpListener,
        access: Access,
        me: Acceptor,
        deliver: impl Fn(SecureStream, Claim) + Send + Sync + 'static,
    ) -> Result<Self, CommError> {
        let what = |error: io::Error| CommError::io("cannot start answering connections", error);
        let address = listener.local_addr().map_err(what)?;
        listener.set_nonblocking(true).map_err(what)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| what(e.into()))?;
        let state = Arc::new(State {
            access,
            me,
            deliver: Box::new(deliver),
            stop: AtomicBool::new(false),
            bell,
            unproven: Mutex::default(),
            refusals: Mutex::default(),
        });
        let shared = state.clone();
        let acceptor = thread::Builder::new()
            .name("sirtaki-gate".into())
            .spawn(move || thread::scope(|threads| shared.accept_all(listener, threads)))
            .map_err(what)?;
        Ok(Self { address, state, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more callers. Those already connected may go on, and nothing waits for them.
    pub fn close(&self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.state.bell, &1u64.to_ne_bytes());
    }

    /// The latest refusals, for people: who and why.
    pub fn refusals(&self) -> Vec<String> {
        lock(&self.state.refusals).iter().cloned().collect()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.close();
        lock(&self.state.unproven).values().for_each(Caller::end);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl State {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Answers until the end; then the listener is closed, although callers may still be served.
    fn accept_all<'scope>(&'scope self, listener: TcpListener, threads: &'scope thread::Scope<'scope, '_>) {
        let mut next = 0;
        while !self.stopped() {
            match listener.accept() {
                Ok((socket, from)) => {
                    next += 1;
                    self.start(next, socket, origin(from.ip()), threads);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.sleep(&listener, None),
                // Too many open files, a caller that hung up at once: nothing that trying again makes worse.
                Err(_) => self.sleep(&listener, Some(Duration::from_millis(20))),
            }
        }
    }

    /// Sleeps until a caller or the end comes; with a limit, until the end or the limit.
    fn sleep(&self, listener: &TcpListener, limit: Option<Duration>) {
        let bell = PollFd::new(&self.bell, PollFlags::IN);
        let limit = limit.map(|l| Timespec { tv_sec: 0, tv_nsec: i64::from(l.subsec_nanos()) });
        let _ = match limit {
            Some(limit) => poll(&mut [bell], Some(&limit)),
            None => poll(&mut [bell, PollFd::new(listener, PollFlags::IN)], None),
        };
    }

    fn start<'scope>(
        &'scope self,
        id: u64,
        socket: TcpStream,
        from: IpAddr,
        threads: &'scope thread::Scope<'scope, '_>,
    ) {
        let now = Instant::now();
        {
            let mut unproven = lock(&self.unproven);
            match room(&unproven, from, now) {
                Room::Free => {}
                Room::Of(oldest) => unproven.remove(&oldest).iter().for_each(Caller::end),
                Room::None => return,
            }
            let Ok(handle) = socket.try_clone() else { return };
            unproven.insert(id, Caller { socket: Some(handle), from, since: now });
        }
        let serve = move || {
            let proven = if self.stopped() { None } else { self.prove(socket) };
            // Before handing over: from then on the connection no longer belongs to the gate.
            lock(&self.unproven).remove(&id);
            if let Some((stream, claim)) = proven {
                (self.deliver)(stream, claim);
            }
        };
        let builder = thread::Builder::new().name("sirtaki-caller".into()).stack_size(256 << 10);
        if builder.spawn_scoped(threads, serve).is_err() {
            lock(&self.unproven).remove(&id);
        }
    }

    fn prove(&self, socket: TcpStream) -> Option<(SecureStream, Claim)> {
        let mut stream = SecureStream::plain(socket).ok()?;
        match self.access.answer(&mut stream, &self.me, Instant::now() + PROOF_LIMIT) {
            Ok(claim) => Some((stream, claim)),
            Err(error) => {
                let mut refusals = lock(&self.refusals);
                if refusals.len() == REMEMBERED {
                    refusals.pop_front();
                }
                refusals.push_back(error.to_string());
                drop(refusals);
                stream.part(Instant::now() + PART_LIMIT);
                None
            }
        }
    }
}

impl Caller {
    fn end(&self) {
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Whether there is a place for one more.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    Free,
    /// If this caller goes.
    Of(u64),
    None,
}

/// Whether these callers leave a place for one from `from`.
fn room(unproven: &BTreeMap<u64, Caller>, from: IpAddr, now: Instant) -> Room {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    unproven.values().for_each(|caller| *counts.entry(caller.from).or_default() += 1);
    let crowd = match counts.get(&from) {
        Some(&count) if count >= UNPROVEN_PER_ADDRESS => Some(from),
        _ if unproven.len() < UNPROVEN => return Room::Free,
        _ => counts.into_iter().max_by_key(|&(_, count)| count).map(|(address, _)| address),
    };
    let oldest = unproven.iter().find(|(_, caller)| Some(caller.from) == crowd);
    match oldest.filter(|(_, caller)| now.saturating_duration_since(caller.since) >= GRACE) {
        Some((&id, _)) => Room::Of(id),
        None => Room::None,
    }
}

/// The part of an address that a caller cannot change at will: with IPv6, people have whole networks.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 100;

    /// Callers numbered by age, `count` from each address, one every 10 ms.
    fn callers(groups: &[(&str, usize)], start: Instant) -> BTreeMap<u64, Caller> {
        let from = groups.iter().flat_map(|&(address, count)| vec![address.parse().unwrap(); count]);
        let caller = |(at, from)| {
            (START + at as u64, Caller { socket: None, from, since: start + Duration::from_millis(10 * at as u64) })
        };
        from.enumerate().map(caller).collect()
    }

    #[test]
    fn strangers_make_room_for_others_and_have_no_more_than_their_share() {
        let (start, other) = (Instant::now(), "10.0.0.9".parse().unwrap());
        let crowd = callers(&[("10.0.0.1", UNPROVEN_PER_ADDRESS)], start);
        let late = start + GRACE;
        assert_eq!(room(&crowd, other, start), Room::Free);
        assert_eq!(room(&crowd, "10.0.0.1".parse().unwrap(), start), Room::None, "all of them are new");
        assert_eq!(room(&crowd, "10.0.0.1".parse().unwrap(), late), Room::Of(START), "the oldest goes");
        let full = callers(&[("10.0.0.2", 40), ("10.0.0.1", 120), ("10.0.0.3", UNPROVEN - 160)], start);
        assert_eq!(room(&full, other, late), Room::None, "the largest crowd is still new");
        assert_eq!(room(&full, other, late + GRACE), Room::Of(START + 40), "the oldest of the largest crowd goes");
    }

    #[test]
    fn addresses_are_those_of_people() {
        let origin = |text: &str| origin(text.parse().unwrap()).to_string();
        assert_eq!(origin("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(origin("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
