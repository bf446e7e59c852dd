//! Signals sent to the launcher, received by a dedicated thread.
//!
//! A signal that ends a job is passed on, and the job ends in good order. A second one is obeyed at once, whatever the
//! launcher is doing: if it has not ended [a moment](HURRY) later by itself, this thread kills everything below it and
//! ends it. Once the job is over, only output is left to be written, and the first signal suffices.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2},
    iterator::Signals,
};

use super::links::Heard;
use crate::launch::{ended::signal_name, tree};

/// How long a launcher that was asked twice may take.
const HURRY: Duration = Duration::from_millis(600);
/// How long killing may take then.
const KILLING: Duration = Duration::from_millis(200);

/// What the thread has to know about the job.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// All ranks have ended.
    over: AtomicBool,
    /// Other hosts whose agent has not ended.
    hosts: Mutex<Vec<String>>,
}

impl Known {
    /// All ranks have ended, and so have the agents.
    pub(super) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// These other hosts have an agent.
    pub(super) fn set_hosts(&self, hosts: Vec<String>) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }
}

/// Passes signals on from now on.
pub(super) fn listen(to: Sender<Heard>, known: Arc<Known>) -> Result<()> {
    let all = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP];
    let mut signals = Signals::new(all).context("cannot listen to signals")?;
    thread::spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            let _ = to.send(Heard::Signal(signal));
            if matches!(signal, SIGTERM | SIGINT | SIGHUP | SIGQUIT) {
                let over = known.over.load(Ordering::Acquire);
                if std::mem::replace(&mut asked, true) || over {
                    let known = known.clone();
                    thread::spawn(move || end(signal, &known, if over { Duration::ZERO } else { HURRY }));
                }
            }
        }
    });
    Ok(())
}

/// Ends the process if it has not ended by itself.
fn end(signal: i32, known: &Known, after: Duration) -> ! {
    thread::sleep(after);
    if !known.over.load(Ordering::Acquire) {
        tree::kill_all(KILLING);
        let hosts = known.hosts.lock().unwrap_or_else(PoisonError::into_inner).join(", ");
        let name = signal_name(signal);
        let rest = match hosts.is_empty() {
            true => String::new(),
            false => format!("; what runs on {hosts} ends by itself within half a minute"),
        };
        // Standard error may be what hangs.
        thread::spawn(move || {
            let _ = writeln!(std::io::stderr(), "ended at once by a second signal ({name}){rest}");
        });
        thread::sleep(Duration::from_millis(50));
    }
    std::process::exit(128 + signal)
}
