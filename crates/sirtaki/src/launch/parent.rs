//! The side of the program that makes the call: it starts the ranks, shows what they write and collects their results.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    ffi::OsString,
    fs,
    net::Ipv4Addr,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;
use sirtaki_comm::{
    rendezvous::{Store, TcpStore, TcpStoreServer},
    secure::Secret,
};
use sirtaki_engine::{
    files,
    job::{exit_key, variables},
};
use sirtaki_launch::{
    ended::Ended,
    local::{LocalJob, WorkerEvent},
};

use super::{CALL, LaunchError, file, rank::Left};

/// How long the others may take to notice that a rank failed.
const NOTICING: Duration = Duration::from_secs(3);
/// Lines of a rank that are kept to explain its end.
const KEPT: usize = 100;

/// What calls have returned, each result as bytes.
pub(super) type Returned = Result<Vec<Vec<u8>>, LaunchError>;

thread_local! {
    static EARLIER: RefCell<HashMap<String, Returned>> = RefCell::default();
}

/// Starts the ranks of a call and waits for them.
pub(super) fn run<T: DeserializeOwned>(ranks: usize, call: &str) -> Result<Vec<T>, LaunchError> {
    let returned = attempt(ranks, call);
    EARLIER.with_borrow_mut(|earlier| earlier.insert(call.to_owned(), returned.clone()));
    let read = |bytes: &Vec<u8>| postcard::from_bytes(bytes).map_err(|error| LaunchError::Start(error.to_string()));
    returned?.iter().map(read).collect()
}

fn attempt(ranks: usize, call: &str) -> Returned {
    let start = |error: &dyn ToString| LaunchError::Start(error.to_string());
    let folder = tempfile::tempdir().map_err(|error| start(&error))?;
    EARLIER.with_borrow(|earlier| {
        earlier.iter().try_for_each(|(name, returned)| {
            let bytes = postcard::to_stdvec(returned).map_err(|error| start(&error))?;
            files::write(&file(folder.path(), name, usize::MAX), &bytes).map_err(|error| start(&error))
        })
    })?;
    let secret = Secret::random().map_err(|error| start(&error))?;
    let server = TcpStore::serve(Ipv4Addr::LOCALHOST.into(), &secret, false).map_err(|error| start(&error))?;
    let program = std::env::current_exe().map_err(|error| start(&error))?;
    let arguments = arguments(&program);
    let call_of_ranks = format!("{}\n{call}", folder.path().display());
    let job = LocalJob::start(ranks, false, |rank| {
        let mut command = Command::new(&program);
        command.args(&arguments).env(CALL, &call_of_ranks);
        command.env(variables::RANK, rank.to_string()).env(variables::SIZE, ranks.to_string());
        command.env(variables::STORE, format!("tcp://{}", server.address())).env(variables::SECRET, secret.to_hex());
        command
    });
    let job = job.map_err(|error| start(&error))?;
    Team { job, last: vec![VecDeque::new(); ranks], server }.watch(|rank| outcome(folder.path(), call, rank))?;
    let read = |rank| match outcome(folder.path(), call, rank) {
        Some(Ok(bytes)) => Ok(bytes),
        _ => Err(LaunchError::Start(format!("rank {rank} left no result"))),
    };
    (0..ranks).map(read).collect()
}

/// What a rank left: its result as bytes, or its error.
fn outcome(folder: &Path, call: &str, rank: usize) -> Option<Left<Vec<u8>>> {
    let bytes = fs::read(file(folder, call, rank)).ok()?;
    // The first byte distinguishes results from errors; what follows a result is the caller's.
    match bytes.split_first()? {
        (0, result) => Some(Ok(result.to_vec())),
        _ => postcard::from_bytes::<Left<()>>(&bytes).ok()?.err().map(Err),
    }
}

/// The arguments of this program that lead to the same call: in a test binary, only the same test is run.
fn arguments(program: &Path) -> Vec<OsString> {
    let test = thread::current().name().filter(|_| is_test(program)).map(str::to_owned);
    match test {
        Some(test) if test != "main" => vec![test.into(), "--exact".into(), "--nocapture".into()],
        _ => std::env::args_os().skip(1).collect(),
    }
}

/// Whether a program is a test binary, which cargo keeps in a separate folder.
fn is_test(program: &Path) -> bool {
    program.parent().and_then(Path::file_name).is_some_and(|folder| folder == "deps")
}

/// The ranks of a call.
struct Team {
    job: LocalJob,
    /// The last lines of every rank.
    last: Vec<VecDeque<String>>,
    server: TcpStoreServer,
}

impl Team {
    /// Waits until all ranks have ended. The first that fails decides the result; the others get a moment to notice by
    /// themselves.
    fn watch(mut self, left: impl Fn(usize) -> Option<Left<Vec<u8>>>) -> Result<(), LaunchError> {
        let mut failure: Option<(LaunchError, Instant)> = None;
        while !self.job.is_over() && failure.as_ref().is_none_or(|(_, since)| since.elapsed() < NOTICING) {
            let event = self.job.next(NOTICING).map_err(|error| LaunchError::Start(error.to_string()))?;
            match event {
                Some(WorkerEvent::Output { rank, line } | WorkerEvent::Message { rank, line }) => self.show(rank, line),
                Some(WorkerEvent::Ended { rank, status }) => {
                    if let Some(problem) = self.ended(rank, &Ended::from(status), &left) {
                        failure.get_or_insert((problem, Instant::now()));
                    }
                }
                None => {}
            }
        }
        failure.map_or(Ok(()), |(problem, _)| Err(problem))
    }

    /// The problem of a rank that has ended with one.
    fn ended(
        &mut self,
        rank: usize,
        how: &Ended,
        left: &impl Fn(usize) -> Option<Left<Vec<u8>>>,
    ) -> Option<LaunchError> {
        let words = how.to_string();
        let _ = self.server.local().set(&exit_key(rank), words.as_bytes());
        match left(rank) {
            Some(Ok(_)) if how.is_success() => None,
            Some(Err(message)) => Some(LaunchError::Rank { rank, message }),
            _ => {
                let last_lines = self.last[rank].drain(..).collect();
                Some(LaunchError::Ended { rank, how: words, last_lines })
            }
        }
    }

    /// Passes on a line that a rank wrote.
    #[allow(clippy::print_stderr, reason = "what ranks write is for the people who see this program's messages")]
    fn show(&mut self, rank: usize, line: String) {
        eprintln!("[{rank}] {line}");
        let last = &mut self.last[rank];
        last.push_back(line);
        if last.len() > KEPT {
            last.pop_front();
        }
    }
}
