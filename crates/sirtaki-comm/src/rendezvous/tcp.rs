//! A store served over TCP by one process, usually the one that started the job.
//!
//! Every client proves the job's secret first and then has a thread of its own in the server, so a client that dies or
//! misbehaves ends only its own thread. Long waits are cut into short requests: a dead client is noticed at the next
//! one, and the server can stop at once.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    MemoryStore, Store,
    wire::{self, PREFIX, Request, Response},
};
use crate::{
    CommError,
    secure::{
        Access, Gate, Secret, SecureStream, Tls,
        handshake::{Acceptor, Claim, Purpose},
    },
};

/// How long the server may hold back one answer.
const WAIT_SLICE: Duration = Duration::from_secs(1);
/// How long the rest of a message, or an answer that needs no waiting, may take.
const MESSAGE_TIME: Duration = Duration::from_secs(30);
/// Most clients at a time.
const CLIENTS: usize = 1 << 14;

const CLAIM: Claim = Claim { purpose: Purpose::Store, rank: 0, group: [0; 16], to: 0 };
const ACCEPTOR: Acceptor = Acceptor { purpose: Purpose::Store, group: [0; 16], rank: 0 };

/// A client of a store served elsewhere.
pub struct TcpStore {
    address: SocketAddr,
    access: Access,
    /// Connections not in use; each request takes one, so that a waiting thread does not hold up another.
    idle: Mutex<Vec<SecureStream>>,
}

impl TcpStore {
    /// Serves an empty store on `bind`, at a port of the system's choice.
    pub fn serve(bind: IpAddr, secret: &Secret, tls: bool) -> Result<TcpStoreServer, CommError> {
        Self::serve_on(&[bind], secret, tls)
    }

    /// Serves an empty store on all of these addresses, each with a port of its own.
    pub fn serve_on(addresses: &[IpAddr], secret: &Secret, tls: bool) -> Result<TcpStoreServer, CommError> {
        let access = access(secret, tls)?;
        let shared = Arc::new(Shared::default());
        let gate = |&address: &IpAddr| {
            let (listener, _) = Gate::bind(address)?;
            let server = shared.clone();
            Gate::open(listener, access.clone(), ACCEPTOR, move |stream, _| server.admit(stream))
        };
        let gates = addresses.iter().map(gate).collect::<Result<Vec<_>, _>>()?;
        if gates.is_empty() {
            return Err(CommError::Invalid { problem: "a store needs an address".into() });
        }
        Ok(TcpStoreServer { shared, gates, closed: Vec::new() })
    }

    /// Connects to the server at `address`, waiting until `deadline` for it to be up.
    pub fn connect(address: SocketAddr, secret: &Secret, tls: bool, deadline: Instant) -> Result<Self, CommError> {
        let access = access(secret, tls)?;
        let stream = access.call_patiently(address, &CLAIM, deadline, deadline)?;
        Ok(Self { address, access, idle: Mutex::new(vec![stream]) })
    }

    fn ask<T>(
        &self,
        request: &Request<'_>,
        time: Duration,
        answer: impl FnOnce(Response<'_>) -> Option<T>,
    ) -> Result<T, CommError> {
        let what = |error| CommError::io(format!("the store at {} does not answer", self.address), error);
        let message = wire::frame(request)?;
        let deadline = Instant::now() + time;
        let idle = lock(&self.idle).pop();
        let mut stream = match idle {
            Some(stream) => stream,
            None => self.access.call(self.address, &CLAIM, deadline)?,
        };
        stream.set_deadline(Some(deadline));
        let mut bytes = Vec::new();
        stream.write_all(&message).and_then(|()| read_message(&mut stream, &mut bytes)).map_err(what)?;
        let response = wire::parse_response(&bytes)?;
        lock(&self.idle).push(stream);
        if let Response::Problem(problem) = response {
            return Err(CommError::Invalid { problem: problem.into() });
        }
        answer(response).ok_or_else(|| what(io::Error::other("it answered another question")))
    }
}

impl Store for TcpStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError> {
        wire::check(key, value)?;
        self.ask(&Request::Set { key, value }, MESSAGE_TIME, |r| matches!(r, Response::Done).then_some(()))
    }

    fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError> {
        wire::check(key, &[])?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let limit_ms = left.min(WAIT_SLICE).as_millis() as u32;
            let value = self.ask(&Request::Wait { key, limit_ms }, MESSAGE_TIME, |response| match response {
                Response::Value(value) => Some(Some(value.to_vec())),
                Response::NotYet => Some(None),
                _ => None,
            })?;
            if value.is_some() || left.is_zero() {
                return Ok(value);
            }
        }
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64, CommError> {
        wire::check(key, &[])?;
        self.ask(&Request::Add { key, amount }, MESSAGE_TIME, |response| match response {
            Response::Sum(sum) => Some(sum),
            _ => None,
        })
    }
}

/// The server's side of a [`TcpStore`]. Dropping it ends all its connections and threads.
pub struct TcpStoreServer {
    shared: Arc<Shared>,
    gates: Vec<Gate>,
    /// These accept no more callers, but still have some that came earlier.
    closed: Vec<Gate>,
}

impl TcpStoreServer {
    /// Where it listens; the first address, if there are several.
    pub fn address(&self) -> SocketAddr {
        self.gates[0].address()
    }

    /// Everywhere it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.gates.iter().map(Gate::address).collect()
    }

    /// Stops listening on all addresses but this one, if it is among them. Connected clients stay.
    pub fn keep(&mut self, address: IpAddr) {
        if self.gates.iter().any(|gate| gate.address().ip() == address) {
            let (kept, closed) = self.gates.drain(..).partition(|gate| gate.address().ip() == address);
            self.gates = kept;
            closed.iter().for_each(Gate::close);
            self.closed.extend::<Vec<Gate>>(closed);
        }
    }

    /// The served store itself, for the process that serves it.
    pub fn local(&self) -> Arc<MemoryStore> {
        self.shared.store.clone()
    }

    /// The latest callers that were refused, for people.
    pub fn refusals(&self) -> Vec<String> {
        self.gates.iter().flat_map(Gate::refusals).collect()
    }
}

impl Drop for TcpStoreServer {
    fn drop(&mut self) {
        let clients = lock(&self.shared.clients).take().unwrap_or_default();
        self.shared.store.close();
        for socket in clients.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

struct Shared {
    store: Arc<MemoryStore>,
    /// Sockets of the clients being served; `None` once the server stops.
    clients: Mutex<Option<HashMap<u64, TcpStream>>>,
    next: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self { store: Arc::default(), clients: Mutex::new(Some(HashMap::new())), next: AtomicU64::new(0) }
    }
}

impl Shared {
    /// Serves one client until it leaves or the server stops.
    fn admit(&self, mut stream: SecureStream) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        match (lock(&self.clients).as_mut(), stream.socket().try_clone()) {
            (Some(clients), Ok(socket)) if clients.len() < CLIENTS => clients.insert(id, socket),
            _ => return,
        };
        let mut bytes = Vec::new();
        while let Ok(answer) = self.hear(&mut stream, &mut bytes) {
            stream.set_deadline(Some(Instant::now() + MESSAGE_TIME));
            if stream.write_all(&answer).is_err() {
                break;
            }
        }
        if let Some(clients) = lock(&self.clients).as_mut() {
            clients.remove(&id);
        }
    }

    /// Waits for one request and returns the framed answer.
    fn hear(&self, stream: &mut SecureStream, bytes: &mut Vec<u8>) -> Result<Vec<u8>, CommError> {
        stream.set_deadline(None);
        read_message(stream, bytes).map_err(|error| CommError::io("a client of the store left", error))?;
        let request = wire::parse_request(bytes)?;
        match self.answer(&request) {
            Ok(answer) => Ok(answer),
            Err(error) => wire::frame(&Response::Problem(&error.to_string())),
        }
    }

    fn answer(&self, request: &Request<'_>) -> Result<Vec<u8>, CommError> {
        match *request {
            Request::Set { key, value } => self.store.set(key, value).and_then(|()| wire::frame(&Response::Done)),
            Request::Add { key, amount } => wire::frame(&Response::Sum(self.store.add(key, amount)?)),
            Request::Wait { key, limit_ms } => {
                let limit = Duration::from_millis(u64::from(limit_ms)).min(WAIT_SLICE);
                match self.store.wait(key, Instant::now() + limit)? {
                    Some(value) => wire::frame(&Response::Value(&value)),
                    None => wire::frame(&Response::NotYet),
                }
            }
        }
    }
}

fn access(secret: &Secret, tls: bool) -> Result<Access, CommError> {
    Ok(Access::new(secret.clone(), if tls { Some(Tls::new()?) } else { None }))
}

/// Reads one message without its length. Its first byte may take as long as the stream's deadline allows.
fn read_message(stream: &mut SecureStream, into: &mut Vec<u8>) -> io::Result<()> {
    let mut prefix = [0; PREFIX];
    stream.read_exact(&mut prefix)?;
    let length = wire::parse_length(prefix).map_err(io::Error::other)?;
    stream.set_deadline(Some(Instant::now() + MESSAGE_TIME));
    into.clear();
    into.resize(length, 0);
    stream.read_exact(into)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
