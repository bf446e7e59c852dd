//! Connections: one request each, limited in time, in size and in number at a time.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::http::{self, Asked, Refused};

/// How long a request and its answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Most connections at a time.
const MOST: usize = 16;
/// A page that asked this recently counts as open; it asks every second.
const RECENTLY: Duration = Duration::from_secs(4);

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const LOOK: &str = include_str!("page.css");

const OK: Refused = Refused(200, "OK");

#[derive(Debug, Default)]
struct State {
    data: Arc<str>,
    /// When data was last served.
    asked: Option<Instant>,
    /// Whether the current data has been served.
    seen: bool,
}

/// What the page is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// A job: fixed files, of which a script fetches data.
    Job,
    /// Whatever a whole page says, in this style; it is loaded again every few seconds.
    Page(String),
}

/// What is served.
#[derive(Debug)]
pub(super) struct Served {
    token: String,
    shown: Shown,
    state: Mutex<State>,
    looked: Condvar,
}

impl Served {
    pub(super) fn new(token: String, shown: Shown) -> Self {
        Self { token, shown, state: Mutex::default(), looked: Condvar::new() }
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn show(&self, data: String) {
        let mut state = self.state();
        (state.data, state.seen) = (data.into(), false);
    }

    /// Waits until an open page has fetched the current data.
    pub(super) fn await_last_look(&self, limit: Duration) {
        let state = self.state();
        if state.asked.is_some_and(|asked| asked.elapsed() < RECENTLY) {
            let unseen = |state: &mut State| !state.seen;
            drop(self.looked.wait_timeout_while(state, limit, unseen));
        }
    }

    /// Answers one request.
    fn answer(&self, stream: &mut TcpStream) -> io::Result<()> {
        let deadline = Instant::now() + LIMIT;
        let asked = read_head(stream, deadline)?.and_then(|head| http::asked(&head, &self.token));
        let data = self.state().data.clone();
        let (page, look) = match &self.shown {
            Shown::Job => (PAGE, LOOK),
            Shown::Page(style) => (&*data, style.as_str()),
        };
        let (kind, body) = match asked {
            Ok(Asked::Page) => ("text/html", page),
            Ok(Asked::Script) => ("text/javascript", SCRIPT),
            Ok(Asked::Look) => ("text/css", look),
            Ok(Asked::Data) => ("application/json", &*data),
            Err(Refused(_, words)) => ("text/plain", words),
        };
        let head = http::head(asked.err().unwrap_or(OK), kind, body.len());
        write(stream, head.as_bytes(), deadline)?;
        write(stream, body.as_bytes(), deadline)?;
        let changing = if self.shown == Shown::Job { Asked::Data } else { Asked::Page };
        if asked == Ok(changing) {
            let mut state = self.state();
            (state.asked, state.seen) = (Some(Instant::now()), Arc::ptr_eq(&state.data, &data));
            self.looked.notify_all();
        }
        Ok(())
    }
}

/// Answers until it is told to close.
pub(super) fn serve(listener: &TcpListener, served: &Arc<Served>, closing: &AtomicBool) {
    let open = Arc::new(());
    while !closing.load(Ordering::Acquire) {
        let Ok((mut stream, _)) = listener.accept() else {
            // There may be no descriptor left for a moment.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if Arc::strong_count(&open) > MOST {
            let Refused(_, words) = http::TOO_MANY;
            let _ = stream.set_write_timeout(Some(Duration::from_millis(10)));
            let _ = stream.write_all((http::head(http::TOO_MANY, "text/plain", words.len()) + words).as_bytes());
            continue;
        }
        let (served, open) = (served.clone(), open.clone());
        let answer = move || {
            // A client that disconnects before the answer does not want it.
            let _ = served.answer(&mut stream);
            drop(open);
        };
        let _ = thread::Builder::new().name("dashboard-answer".into()).spawn(answer);
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The head of a request, without the empty line at its end.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Result<Vec<u8>, Refused>> {
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(Ok(head));
        }
        if head.len() > http::LONGEST {
            return Ok(Err(http::TOO_LONG));
        }
        let Ok(left) = left(deadline) else { return Ok(Err(http::TOO_SLOW)) };
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => head.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes all of it, unless that takes too long.
fn write(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    // A client that asked too slowly is still told so.
    let deadline = deadline.max(Instant::now() + Duration::from_millis(100));
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
