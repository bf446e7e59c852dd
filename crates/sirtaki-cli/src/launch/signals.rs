//! Signals sent to the launcher, received by a dedicated thread.
//!
//! A signal that ends a job is passed on, and the job ends in good order. A second one is obeyed at once, whatever the
//! launcher is doing: if it has not ended [a moment](HURRY) later by itself, this thread kills everything below it and
//! ends it. Once the job is over, only output is left to be written, and the first signal suffices.

use std::{
    io::Write,
    sync::{
        Arc,
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

/// Whether nothing is left of the job but its output.
#[derive(Debug, Clone, Default)]
pub struct Over(Arc<AtomicBool>);

impl Over {
    /// All ranks have ended, and so has everything that they started.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Passes signals on from now on.
pub fn listen(to: Controller) -> Result<Over> {
    let all = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP];
    let mut signals = Signals::new(all).context("cannot listen to signals")?;
    let over = Over::default();
    let known = over.clone();
    thread::spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            to.signal(signal);
            if matches!(signal, SIGTERM | SIGINT | SIGHUP | SIGQUIT) {
                let is_over = known.is_set();
                if std::mem::replace(&mut asked, true) || is_over {
                    let (to, known) = (to.clone(), known.clone());
                    thread::spawn(move || end(signal, &to, &known, if is_over { Duration::ZERO } else { HURRY }));
                }
            }
        }
    });
    Ok(over)
}

/// Ends the process if it has not ended by itself.
fn end(signal: i32, job: &Controller, over: &Over, after: Duration) -> ! {
    thread::sleep(after);
    if !over.is_set() {
        tree::kill_all(KILLING);
        let hosts = job.other_hosts().join(", ");
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
