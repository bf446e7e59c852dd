//! How a process ended: sent between machines, put into words and turned into an exit code.

use std::{fmt, os::unix::process::ExitStatusExt, process::ExitStatus};

use serde::{Deserialize, Serialize};

/// How a rank ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// By itself, with this exit code.
    Code(i32),
    /// It was killed by a signal.
    Signal {
        /// Which one.
        number: i32,
        /// Whether the kernel killed it for lack of memory.
        out_of_memory: bool,
    },
    /// It ended with exit code 0 before it met the other ranks, which wait for it.
    Early,
    /// It has not ended: it was stopped by a signal, and nobody continued it.
    Stopped,
    /// It never ran.
    NotStarted {
        /// Why not.
        reason: String,
        /// What to do about it; may be empty.
        hint: String,
    },
    /// Unknown: its host is gone. The text says how, as in `the connection to node7 broke`.
    Lost(String),
}

impl Ended {
    /// Whether it succeeded.
    pub fn is_success(&self) -> bool {
        *self == Ended::Code(0)
    }

    /// The exit code a shell would give: signals are added to 128. A rank without an exit code gets 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Ended::Code(code) => (*code & 0xff) as u8,
            Ended::Signal { number, .. } => (128 + (*number & 0x7f)) as u8,
            Ended::Stopped => 128 + 19,
            Ended::Early | Ended::NotStarted { .. } | Ended::Lost(_) => 1,
        }
    }
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Ended::Code(code),
            // Waiting without special options reports nothing but exit codes and signals.
            None => Ended::Signal { number: status.signal().unwrap_or_default(), out_of_memory: false },
        }
    }
}

/// Follows the name of a rank: `was killed by SIGKILL`.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Code(code) => write!(f, "ended with exit code {code}"),
            Ended::Signal { number, out_of_memory: true } => {
                write!(f, "ran out of memory and was killed by {}", signal_name(*number))
            }
            Ended::Signal { number, .. } => write!(f, "was killed by {}", signal_name(*number)),
            Ended::Early => f.write_str("ended with exit code 0 before it joined the other ranks"),
            Ended::Stopped => f.write_str("was stopped by a signal and never continued"),
            Ended::NotStarted { reason, .. } => write!(f, "could not be started: {reason}"),
            Ended::Lost(how) => write!(f, "was lost: {how}"),
        }
    }
}

/// The usual name of a signal.
pub fn signal_name(number: i32) -> String {
    signal_hook::low_level::signal_name(number).map_or_else(|| format!("signal {number}"), Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_exit_codes_are_those_of_a_shell() {
        let cases = [
            (Ended::Code(0), "ended with exit code 0", 0),
            (Ended::Code(3), "ended with exit code 3", 3),
            (Ended::Signal { number: 9, out_of_memory: false }, "was killed by SIGKILL", 137),
            (Ended::Signal { number: 9, out_of_memory: true }, "ran out of memory and was killed by SIGKILL", 137),
            (Ended::Signal { number: 40, out_of_memory: false }, "was killed by signal 40", 168),
            (Ended::Stopped, "was stopped by a signal and never continued", 147),
            (
                Ended::NotStarted { reason: "no such file".into(), hint: String::new() },
                "could not be started: no such file",
                1,
            ),
            (Ended::Lost("node7 does not answer".into()), "was lost: node7 does not answer", 1),
        ];
        for (ended, words, code) in cases {
            assert_eq!((ended.to_string().as_str(), ended.exit_code()), (words, code));
            assert_eq!(ended.is_success(), code == 0);
        }
    }

    #[test]
    fn what_the_system_reports_is_understood() {
        assert_eq!(Ended::from(ExitStatus::from_raw(3 << 8)), Ended::Code(3));
        assert_eq!(Ended::from(ExitStatus::from_raw(11)), Ended::Signal { number: 11, out_of_memory: false });
    }
}
