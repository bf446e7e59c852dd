//! The side of the program that makes the call: it starts the ranks, shows what they write and collects their results.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Read},
    net::Ipv4Addr,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use sirtaki_comm::{
    rendezvous::{TcpStore, TcpStoreServer},
    secure::Secret,
};
use sirtaki_engine::{
    files,
    job::{exit_key, variables},
};

use super::{CALL, LaunchError, file, rank::Left};

/// How long the others may take to notice that a rank failed.
const NOTICING: Duration = Duration::from_secs(3);
/// How often ranks are checked for having ended.
const LOOK: Duration = Duration::from_millis(5);
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
    let (sender, lines) = channel();
    let mut team = Team { children: Vec::new(), sender, lines, server };
    for rank in 0..ranks {
        let command = command(rank, ranks, &team.server, &secret, &format!("{}\n{call}", folder.path().display()));
        team.start(command.map_err(|error| start(&error))?).map_err(|error| start(&error))?;
    }
    team.watch(|rank| outcome(folder.path(), call, rank))?;
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

/// This program again, as one rank.
fn command(
    rank: usize,
    ranks: usize,
    server: &TcpStoreServer,
    secret: &Secret,
    call: &str,
) -> std::io::Result<Command> {
    let program = std::env::current_exe()?;
    let test = thread::current().name().filter(|_| is_test(&program)).map(str::to_owned);
    let arguments: Vec<OsString> = match test {
        Some(test) if test != "main" => vec![test.into(), "--exact".into(), "--nocapture".into()],
        _ => std::env::args_os().skip(1).collect(),
    };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command.env(CALL, call).env(variables::RANK, rank.to_string()).env(variables::SIZE, ranks.to_string());
    command.env(variables::STORE, format!("tcp://{}", server.address())).env(variables::SECRET, secret.to_hex());
    // SAFETY: the closure runs between fork and exec and makes one system call; it allocates and locks nothing.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    Ok(command)
}

/// Whether a program is a test binary, which cargo keeps in a separate folder.
fn is_test(program: &Path) -> bool {
    program.parent().and_then(Path::file_name).is_some_and(|folder| folder == "deps")
}

/// What a rank wrote.
type Line = (usize, String);

struct Rank {
    child: Child,
    ended: bool,
    last: VecDeque<String>,
}

/// The ranks of a call; dropping it ends all of them.
struct Team {
    children: Vec<Rank>,
    sender: Sender<Line>,
    lines: Receiver<Line>,
    server: TcpStoreServer,
}

impl Team {
    fn start(&mut self, mut command: Command) -> std::io::Result<()> {
        let mut child = command.spawn()?;
        let rank = self.children.len();
        let streams: [Option<Box<dyn Read + Send>>; 2] =
            [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|err| Box::new(err) as _)];
        self.children.push(Rank { child, ended: false, last: VecDeque::new() });
        for stream in streams.into_iter().flatten() {
            let to = self.sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let _ = to.send((rank, line));
                }
            });
        }
        Ok(())
    }

    /// Waits until all ranks have ended. The first that fails decides the result; the others get a moment to notice by
    /// themselves.
    fn watch(&mut self, left: impl Fn(usize) -> Option<Left<Vec<u8>>>) -> Result<(), LaunchError> {
        let mut failure: Option<(LaunchError, Instant)> = None;
        while self.children.iter().any(|rank| !rank.ended) {
            self.show_lines();
            for rank in 0..self.children.len() {
                let Some(problem) = self.look(rank, &left) else { continue };
                failure.get_or_insert((problem, Instant::now()));
            }
            if failure.as_ref().is_some_and(|(_, since)| since.elapsed() > NOTICING) {
                self.kill();
            }
            thread::sleep(LOOK);
        }
        self.show_lines();
        failure.map_or(Ok(()), |(problem, _)| Err(problem))
    }

    /// The problem of a rank that has just ended with one.
    fn look(&mut self, rank: usize, left: &impl Fn(usize) -> Option<Left<Vec<u8>>>) -> Option<LaunchError> {
        let known = &mut self.children[rank];
        if known.ended {
            return None;
        }
        let status = known.child.try_wait().ok().flatten()?;
        known.ended = true;
        let how = format!("ended with {status}");
        let _ = self.server.local().set(&exit_key(rank), how.as_bytes());
        match left(rank) {
            Some(Ok(_)) if status.success() => None,
            Some(Err(message)) => Some(LaunchError::Rank { rank, message }),
            _ => {
                self.show_lines();
                let last_lines = self.children[rank].last.drain(..).collect();
                Some(LaunchError::Ended { rank, how, last_lines })
            }
        }
    }

    /// Passes on what ranks wrote, line by line.
    #[allow(clippy::print_stderr, reason = "what ranks write is for the people who see this program's messages")]
    fn show_lines(&mut self) {
        for (rank, line) in self.lines.try_iter() {
            eprintln!("[{rank}] {line}");
            let last = &mut self.children[rank].last;
            last.push_back(line);
            if last.len() > KEPT {
                last.pop_front();
            }
        }
    }

    fn kill(&mut self) {
        for rank in self.children.iter_mut().filter(|rank| !rank.ended) {
            let _ = kill_process_group(Pid::from_child(&rank.child), Signal::KILL);
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.kill();
        for rank in &mut self.children {
            let _ = rank.child.wait();
        }
    }
}
