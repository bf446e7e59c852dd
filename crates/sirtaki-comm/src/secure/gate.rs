//! Answering others: a listener that lets in only who proves the secret.
//!
//! Every caller gets a thread and a short deadline of its own, so a silent or strange one delays nobody. The number of
//! unproven callers at a time is bounded; more wait in the kernel's queue until one of them is through or thrown out.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{
    Access, Stream,
    handshake::{Claim, Purpose},
};
use crate::CommError;

/// How long a caller may take to prove itself.
const PROOF_LIMIT: Duration = Duration::from_secs(5);
/// How long a refused caller may take to read why.
const PART_LIMIT: Duration = Duration::from_millis(300);
/// Callers that have not proven themselves yet, at a time.
const UNPROVEN_LIMIT: usize = 128;
/// Refusals remembered for error messages.
const REMEMBERED: usize = 4;

/// Called with every proven connection, on that connection's own thread.
type Deliver = dyn Fn(Stream, Claim) + Send + Sync;

/// A listener and its threads. Dropping it throws out unproven callers and waits for `deliver` to return everywhere;
/// connections already delivered stay open.
pub struct Gate {
    address: SocketAddr,
    state: Arc<State>,
    acceptor: Option<JoinHandle<()>>,
}

struct State {
    access: Access,
    expected: (Purpose, [u8; 16]),
    deliver: Box<Deliver>,
    stop: AtomicBool,
    bell: OwnedFd,
    /// Sockets of unproven callers, to end them from outside.
    open: Mutex<HashMap<u64, TcpStream>>,
    unproven: Mutex<usize>,
    fewer: Condvar,
    refusals: Mutex<VecDeque<String>>,
}

impl Gate {
    /// A listener on `bind` at a port of the system's choice. It answers nobody before [`Gate::open`].
    pub fn bind(bind: IpAddr) -> Result<(TcpListener, SocketAddr), CommError> {
        let what = |error| CommError::io(format!("cannot listen on {bind}"), error);
        let listener = TcpListener::bind((bind, 0)).map_err(what)?;
        let address = listener.local_addr().map_err(what)?;
        Ok((listener, address))
    }

    /// Answers callers with this purpose and group and hands them to `deliver`, each on a thread of its own.
    pub fn open(
        listener: TcpListener,
        access: Access,
        expected: (Purpose, [u8; 16]),
        deliver: impl Fn(Stream, Claim) + Send + Sync + 'static,
    ) -> Result<Self, CommError> {
        let what = |error: io::Error| CommError::io("cannot start answering connections", error);
        let address = listener.local_addr().map_err(what)?;
        listener.set_nonblocking(true).map_err(what)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| what(e.into()))?;
        let state = Arc::new(State {
            access,
            expected,
            deliver: Box::new(deliver),
            stop: AtomicBool::new(false),
            bell,
            open: Mutex::default(),
            unproven: Mutex::new(0),
            fewer: Condvar::new(),
            refusals: Mutex::default(),
        });
        let shared = state.clone();
        let acceptor = thread::Builder::new()
            .name("sirtaki-gate".into())
            .spawn(move || thread::scope(|threads| shared.accept_all(&listener, threads)))
            .map_err(what)?;
        Ok(Self { address, state, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The latest refusals, for people: whom and why.
    pub fn refusals(&self) -> Vec<String> {
        lock(&self.state.refusals).iter().cloned().collect()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&self.state.bell, &1u64.to_ne_bytes());
        drop(lock(&self.state.unproven));
        self.state.fewer.notify_all();
        for socket in lock(&self.state.open).values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl State {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn accept_all<'scope>(&'scope self, listener: &TcpListener, threads: &'scope thread::Scope<'scope, '_>) {
        let mut next = 0;
        while !self.stopped() {
            self.wait_for_room();
            match listener.accept() {
                Ok((socket, _)) => {
                    next += 1;
                    self.start(next, socket, threads);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.sleep(listener, None),
                // Too many open files, a caller that hung up at once: nothing that answering again makes worse.
                Err(_) => self.sleep(listener, Some(Duration::from_millis(20))),
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

    fn wait_for_room(&self) {
        let mut unproven = lock(&self.unproven);
        while *unproven >= UNPROVEN_LIMIT && !self.stopped() {
            unproven = self.fewer.wait(unproven).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn start<'scope>(&'scope self, id: u64, socket: TcpStream, threads: &'scope thread::Scope<'scope, '_>) {
        let Ok(handle) = socket.try_clone() else { return };
        lock(&self.open).insert(id, handle);
        *lock(&self.unproven) += 1;
        let serve = move || {
            let proven = if self.stopped() { None } else { self.prove(socket) };
            *lock(&self.unproven) -= 1;
            self.fewer.notify_one();
            // Before handing over: from then on the connection is no longer the gate's to end.
            lock(&self.open).remove(&id);
            if let Some((stream, claim)) = proven {
                (self.deliver)(stream, claim);
            }
        };
        let builder = thread::Builder::new().name("sirtaki-caller".into()).stack_size(256 << 10);
        if builder.spawn_scoped(threads, serve).is_err() {
            lock(&self.open).remove(&id);
            *lock(&self.unproven) -= 1;
        }
    }

    fn prove(&self, socket: TcpStream) -> Option<(Stream, Claim)> {
        let mut stream = Stream::plain(socket).ok()?;
        match self.access.answer(&mut stream, self.expected, Instant::now() + PROOF_LIMIT) {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
