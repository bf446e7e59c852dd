//! Every `SIRTAKI_*` variable: one table for people and one function for the program.
//!
//! The libraries below never read the environment; they take [`Settings`]. So this file is all there is to know, and
//! `docs/environment.md` is generated from it.

use std::{net::SocketAddr, time::Duration};

use sirtaki_comm::{Settings, collective::Algorithm, secure::Secret};

/// This process's rank.
pub const RANK: &str = "SIRTAKI_RANK";
/// Number of processes.
pub const SIZE: &str = "SIRTAKI_SIZE";
/// Where the ranks meet.
pub const STORE: &str = "SIRTAKI_STORE";
/// The job's secret.
pub const SECRET: &str = "SIRTAKI_SECRET";
/// Patience with a silent rank.
pub const TIMEOUT: &str = "SIRTAKI_TIMEOUT";
/// Patience at start-up.
pub const START_TIMEOUT: &str = "SIRTAKI_START_TIMEOUT";
/// The all-reduce algorithm.
pub const ALGORITHM: &str = "SIRTAKI_ALGORITHM";
/// Encryption.
pub const TLS: &str = "SIRTAKI_TLS";
/// The network interface.
pub const INTERFACE: &str = "SIRTAKI_INTERFACE";
/// Shared memory.
pub const SHM: &str = "SIRTAKI_SHM";

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The values it may have.
    pub allowed: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
}

const SECONDS: &str = "seconds above zero, such as 60 or 0.5";
const SWITCH: &str = "1, true, yes, on, 0, false, no or off";

/// All of them, in the order of the reference page.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: RANK,
        allowed: "a number from 0 to SIRTAKI_SIZE - 1",
        default: "set by whoever starts the job",
        about: "Which process of the job this is.",
    },
    Variable {
        name: SIZE,
        allowed: "a number above zero",
        default: "set by whoever starts the job",
        about: "How many processes the job has.",
    },
    Variable {
        name: STORE,
        allowed: "tcp://ADDRESS:PORT, such as tcp://127.0.0.1:29400",
        default: "set by whoever starts the job",
        about: "Where the processes of the job find each other.",
    },
    Variable {
        name: SECRET,
        allowed: "64 hexadecimal digits",
        default: "drawn at random for every job",
        about: "What every process proves to know before another one listens to it. Keep it out of arguments and logs.",
    },
    Variable {
        name: TIMEOUT,
        allowed: SECONDS,
        default: "60",
        about: "How long a rank may wait for another without any progress before that is an error.",
    },
    Variable {
        name: START_TIMEOUT,
        allowed: SECONDS,
        default: "60",
        about: "How long to wait for all ranks to appear.",
    },
    Variable {
        name: ALGORITHM,
        allowed: "auto, flat, ring, doubling, halving, tree, direct or layered",
        default: "auto",
        about: "The all-reduce algorithm; auto decides by size and topology. Must be the same for all ranks.",
    },
    Variable {
        name: TLS,
        allowed: SWITCH,
        default: "0",
        about: "Encrypt connections between processes. Must be the same for all ranks.",
    },
    Variable {
        name: INTERFACE,
        allowed: "an interface, an address or a network, such as eth0, 10.0.0.5 or 10.0.0.0/24",
        default: "the fastest one that reaches all peers, by measuring",
        about: "The network interface to use between hosts.",
    },
    Variable {
        name: SHM,
        allowed: SWITCH,
        default: "1",
        about: "Let ranks of one host share memory; without, they talk over loopback.",
    },
];

/// A variable that is missing or cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// It has to be there.
    #[error("{name} is not set; it must be {allowed}")]
    Missing {
        /// Which one.
        name: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// It is there and wrong.
    #[error("{name} is `{value}`, but must be {allowed}")]
    Bad {
        /// Which one.
        name: &'static str,
        /// What it is; secrets are not shown.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
}

/// One process's place in a job, and the job's settings.
#[derive(Debug, Clone)]
pub struct Job {
    /// Which process this is.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// Where they meet.
    pub store: SocketAddr,
    /// What was chosen about communication.
    pub settings: Settings,
}

/// How variables are looked up, so that tests need not touch the process's own.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The process's own environment.
pub fn process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// This process's place in a job.
pub fn job(get: Lookup<'_>) -> Result<Job, EnvError> {
    let size = required(get, SIZE, |text| text.parse().ok().filter(|&size: &usize| size > 0))?;
    let rank = required(get, RANK, |text| text.parse().ok().filter(|&rank| rank < size))?;
    let store = required(get, STORE, |text| text.strip_prefix("tcp://")?.parse().ok())?;
    Ok(Job { rank, size, store, settings: settings(get)? })
}

/// What was chosen about communication. Variables that are not set, or are empty, leave the defaults.
pub fn settings(get: Lookup<'_>) -> Result<Settings, EnvError> {
    let mut settings = Settings::new(required(get, SECRET, |text| Secret::from_hex(text).ok())?);
    if let Some(timeout) = optional(get, TIMEOUT, |text| seconds(text).ok())? {
        settings.timeout = timeout;
    }
    if let Some(timeout) = optional(get, START_TIMEOUT, |text| seconds(text).ok())? {
        settings.start_timeout = timeout;
    }
    settings.algorithm = optional(get, ALGORITHM, algorithm)?.flatten();
    if let Some(tls) = optional(get, TLS, switch)? {
        settings.tls = tls;
    }
    settings.interface = optional(get, INTERFACE, |text| Some(text.to_owned()))?;
    if let Some(shared) = optional(get, SHM, switch)? {
        settings.shared_memory = shared;
    }
    Ok(settings)
}

/// A duration from a number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|&number| number > 0.0);
    number.and_then(|number| Duration::try_from_secs_f64(number).ok()).ok_or_else(|| format!("must be {SECONDS}"))
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn algorithm(text: &str) -> Option<Option<Algorithm>> {
    if text == "auto" { Some(None) } else { text.parse().ok().map(Some) }
}

fn optional<T>(get: Lookup<'_>, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, EnvError> {
    let Some(value) = get(name).filter(|value| !value.trim().is_empty()) else { return Ok(None) };
    match parse(value.trim()) {
        Some(parsed) => Ok(Some(parsed)),
        None => {
            let value = if name == SECRET { "(not shown)".into() } else { value };
            Err(EnvError::Bad { name, value, allowed: allowed(name) })
        }
    }
}

fn required<T>(get: Lookup<'_>, name: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, EnvError> {
    optional(get, name, parse)?.ok_or_else(|| EnvError::Missing { name, allowed: allowed(name) })
}

fn allowed(name: &str) -> &'static str {
    VARIABLES.iter().find(|variable| variable.name == name).map_or("set", |variable| variable.allowed)
}

/// The reference page `docs/environment.md`.
pub fn reference() -> String {
    let mut page = String::from(
        "# Environment variables\n\n\
         Written by `cargo xtask docs` from `crates/sirtaki-cli/src/env.rs`; change it there.\n\
         Flags of the command line come before variables, variables before defaults.\n\n\
         | variable | values | default | what it does |\n|---|---|---|---|\n",
    );
    for Variable { name, allowed, default, about } in VARIABLES.iter().chain(crate::launch::variables::VARIABLES) {
        page += &format!("| `{name}` | {allowed} | {default} | {about} |\n");
    }
    page + "| `NO_COLOR` | anything | not set | No colours, whatever the terminal can do. |\n"
}

#[cfg(test)]
#[path = "env_tests.rs"]
mod tests;
