//! What can be typed about processes that are no ranks.

use std::num::NonZeroUsize;

use clap::Args;

use super::{at_least_one, run::yes_or_no};

/// Options of a job with servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Servers (docs/elastic.md)")]
pub struct RoleOptions {
    /// Start the program N more times, as servers: SIRTAKI_ROLE is server, SIRTAKI_SERVER their number. They are no ranks,
    /// and are asked to end when the ranks have ended
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub servers: Option<NonZeroUsize>,

    /// Start the program once more, with SIRTAKI_ROLE=coordinator; the job ends with it, and ranks and servers are asked
    /// to end
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true
    )]
    pub coordinator: Option<bool>,

    /// How often a server is started again in its place after a failure, before the job ends [default: 3]
    #[arg(long, value_name = "N")]
    pub server_restarts: Option<u32>,

    /// The same for ranks, while the others go on; for programs whose ranks do not wait for each other [default: 0]
    #[arg(long, value_name = "N")]
    pub worker_restarts: Option<u32>,
}

impl RoleOptions {
    /// What the parser calls them.
    pub const NAMES: [&'static str; 4] = ["servers", "coordinator", "server_restarts", "worker_restarts"];

    /// These options, completed by those `below` that are not given here.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            servers: self.servers.or(below.servers),
            coordinator: self.coordinator.or(below.coordinator),
            server_restarts: self.server_restarts.or(below.server_restarts),
            worker_restarts: self.worker_restarts.or(below.worker_restarts),
        }
    }
}
