//! Why a process has no place in a job. Every text names the variable or the file, and what it holds.

use super::variables;

/// A place, or a setting, that cannot be made out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JobError {
    /// A variable has to be there and is not.
    #[error("{name} is not set; it must be {allowed}")]
    Missing {
        /// Which one.
        name: &'static str,
        /// What it may be.
        allowed: &'static str,
    },
    /// A variable is there and wrong.
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

impl JobError {
    /// What the user can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            JobError::Missing { name, .. } | JobError::Bad { name, .. } if variables::is_place(name) => Some(
                "start the program with `sirtaki run`, which sets all of these, or unset every SIRTAKI_ variable to \
                 run alone",
            ),
            JobError::Missing { .. } | JobError::Bad { .. } => {
                Some("correct or unset it; docs/environment.md lists all variables")
            }
        }
    }
}
