//! What a job can configure about its communication. Plain values: the program that starts the job reads flags and
//! environment and passes them in; nothing below it reads either.

use std::time::Duration;

use crate::{collective::Algorithm, secure::Secret};

/// Waiting ranks look around many times a second. One that has not looked for this long stood still itself (Ctrl-Z, a
/// debugger), and does not count that time as others' silence.
pub const STANDSTILL: Duration = Duration::from_secs(1);

/// The choices, with defaults that suit most jobs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What every peer has to prove it knows.
    pub secret: Secret,
    /// How long a rank may wait for another without any progress before that is an error.
    pub timeout: Duration,
    /// How long start-up may wait for all ranks to appear.
    pub start_timeout: Duration,
    /// The all-reduce algorithm to use whatever the size; `None` lets size and topology decide.
    pub algorithm: Option<Algorithm>,
    /// Encrypt all connections between processes. Those that carry decisions between hosts are encrypted in any case.
    pub tls: bool,
    /// Name or address of the network interface to use between hosts; `None` measures and takes the fastest.
    pub interface: Option<String>,
    /// Whether ranks on one host may share memory; without it, they talk over loopback.
    pub shared_memory: bool,
}

impl Settings {
    /// The defaults for a job with this secret.
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            timeout: Duration::from_secs(60),
            start_timeout: Duration::from_secs(60),
            algorithm: None,
            tls: false,
            interface: None,
            shared_memory: true,
        }
    }
}
