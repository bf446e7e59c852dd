//! Signals sent to the launcher, received by a dedicated thread.
//!
//! A signal that ends a job is passed on, and the job ends in good order. A second one is obeyed at once, whatever the
//! launcher is doing: if it has not ended a moment later by itself, this thread kills everything below it and
//! ends it. Once the job is over, only output is left to be written, and the first signal suffices.

use std::{
    io::Write,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2},
    iterator::Signals,
};
use sirtaki_launch::{Controller, ended::signal_name, tree};

/// How long a launcher that was asked twice may take.
const HURRY: Duration = Duration::from_millis(600);
/// How long killing may take then.
const KILLING: Duration = Duration::from_millis(200);

/// Who receives the signals of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receiver(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The job that runs, if there is one.
    job: Mutex<Option<Controller>>,
    /// Somebody wants this process to end.
    asked: AtomicBool,
    /// Nothing is left of the job but its output.
    over: AtomicBool,
}

impl Receiver {
    /// Receives signals from now on.
    pub(crate) fn start() -> Result<Self> {
        let all = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP];
        let mut signals = Signals::new(all).context("cannot listen to signals")?;
        let receiver = Self::default();
        let known = receiver.clone();
        thread::spawn(move || signals.forever().for_each(|signal| known.received(signal)));
        Ok(receiver)
    }

    /// Passes signals on to this job from now on.
    pub(crate) fn pass_on_to(&self, job: Controller) {
        *self.job() = Some(job);
    }

    /// Whether somebody wants this process to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Acquire)
    }

    /// All ranks have ended, and so has everything that they started.
    pub(crate) fn set_over(&self) {
        self.0.over.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Acquire)
    }

    fn job(&self) -> std::sync::MutexGuard<'_, Option<Controller>> {
        self.0.job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn received(&self, signal: i32) {
        if let Some(job) = &*self.job() {
            job.signal(signal);
        }
        if matches!(signal, SIGTERM | SIGINT | SIGHUP | SIGQUIT) {
            let over = self.is_over();
            if self.0.asked.swap(true, Ordering::AcqRel) || over {
                let known = self.clone();
                thread::spawn(move || known.end(signal, if over { Duration::ZERO } else { HURRY }));
            }
        }
    }

    /// Ends the process if it has not ended by itself.
    fn end(&self, signal: i32, after: Duration) -> ! {
        thread::sleep(after);
        if !self.is_over() {
            tree::kill_all(KILLING);
            let hosts = self.job().as_ref().map(|job| job.other_hosts().join(", ")).unwrap_or_default();
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
}
