//! The launcher as a library: several jobs of one process that leave each other alone, and leave nothing behind.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    num::NonZeroUsize,
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sirtaki_launch::{
    Controller, Ending, Job, JobSpec, Launcher, Observer, Outcome, outside::Outside, placement::Placement,
    protocol::Stream,
};
use sirtaki_tests::launch::{PATIENCE, is_agent, state};

const SIGTERM: i32 = Signal::TERM.as_raw();

/// Passes on what ranks write.
struct Listener(Sender<(usize, String)>);

impl Observer for Listener {
    fn wrote(&mut self, _: Instant, rank: usize, _: Stream, bytes: &[u8]) {
        for line in String::from_utf8_lossy(bytes).lines() {
            let _ = self.0.send((rank, line.to_owned()));
        }
    }
}

/// A job that runs in a thread of its own.
struct Running {
    controller: Controller,
    id: String,
    heard: Receiver<(usize, String)>,
    thread: thread::JoinHandle<Ending>,
}

impl Running {
    fn start(ranks: usize, script: &str) -> Self {
        let spec = JobSpec {
            ranks: NonZeroUsize::new(ranks),
            grace: Duration::from_secs(60),
            ..JobSpec::new(["sh", "-c", script])
        };
        let placement = Placement::find(&spec, &Outside::real(), "here").unwrap();
        let job = Job::new(spec, placement, Path::new(env!("CARGO_BIN_EXE_sirtaki-under-test"))).unwrap();
        let launcher = Launcher::new();
        let (controller, id, (to, heard)) = (launcher.controller(), job.id.clone(), channel());
        let thread = thread::spawn(move || launcher.run(&job, &mut Listener(to)).unwrap());
        Self { controller, id, heard, thread }
    }

    fn line(&self) -> (usize, String) {
        self.heard.recv_timeout(PATIENCE).expect("a line")
    }

    fn end(self) -> (Ending, Vec<(usize, String)>) {
        let ending = self.thread.join().unwrap();
        (ending, self.heard.into_iter().collect())
    }
}

fn process(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

/// Whether a process is there and has not ended.
fn runs(pid: Pid) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

#[test]
fn jobs_of_one_process_end_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let go_on = folder.path().join("go on");
    let slow =
        Running::start(2, &format!("echo $$; until [ -e '{}' ]; do sleep 0.05; done; echo end", go_on.display()));
    let processes = [slow.line().1, slow.line().1].map(|line| process(&line));
    let (failed, _) = Running::start(2, "exit $((3 * SIRTAKI_RANK))").end();
    assert!(matches!(failed.outcome, Outcome::Failed { rank: 1, .. }), "{failed:?}");
    assert_eq!(failed.outcome.code(), 3);
    let interrupted = Running::start(1, "echo here; sleep 1000");
    interrupted.line();
    interrupted.controller.signal(SIGTERM);
    assert_eq!(interrupted.end().0.outcome, Outcome::Interrupted(SIGTERM));
    assert!(processes.into_iter().all(runs), "another job's end is none of theirs");
    fs::write(go_on, "").unwrap();
    let (ending, rest) = slow.end();
    assert_eq!((ending.outcome, rest.len()), (Outcome::Success, 2));
}

#[test]
fn nothing_is_left_of_a_job_whose_agent_was_killed() {
    let other = Running::start(1, "echo $$; sleep 1000");
    let bystander = process(&other.line().1);
    let job = Running::start(1, "setsid sleep 1000 & echo $!; wait");
    let sleeper = process(&job.line().1);
    let agent = agent_above(sleeper);
    kill_process(agent, Signal::KILL).unwrap();
    let id = job.id.clone();
    let (ending, _) = job.end();
    assert!(matches!(ending.outcome, Outcome::Failed { rank: 0, .. }), "job {id}: {ending:?}");
    assert!(!runs(sleeper), "what a rank started is gone too");
    assert!(runs(bystander));
    other.controller.signal(SIGTERM);
    assert_eq!(other.end().0.outcome, Outcome::Interrupted(SIGTERM));
}

/// The agent that a process is below.
fn agent_above(mut pid: Pid) -> Pid {
    while !is_agent(pid) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        pid = process(stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap());
    }
    pid
}
