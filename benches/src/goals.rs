//! The goals, so that the benchmark can say which are missed.

use std::fmt;

const MIB: usize = 1 << 20;

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Ranks of one host, over shared memory if the library supports it.
    Shared(usize),
    /// Ranks of one host submitting named tensors to the engine.
    Engine(usize),
    /// Two ranks over TCP on loopback.
    Loopback,
    /// Two ranks over TCP between two network namespaces.
    Namespaces,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Shared(ranks) => write!(f, "{ranks} ranks on one host"),
            Setting::Engine(ranks) => write!(f, "{ranks} ranks, engine"),
            Setting::Loopback => f.write_str("2 ranks, TCP over loopback"),
            Setting::Namespaces => f.write_str("2 ranks, TCP between two namespaces"),
        }
    }
}

/// The least ratio of a library's time to sirtaki's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal(pub f64);

impl Goal {
    /// Whether a measured ratio is good enough, to the two digits that are shown.
    pub fn is_reached(self, ratio: f64) -> bool {
        (ratio * 100.0).round() >= (self.0 * 100.0).round()
    }
}

/// The goal for a library at a size; `None` where there is none.
pub fn goal(setting: &Setting, bytes: usize, library: &str) -> Option<Goal> {
    let least = match (setting, library) {
        (Setting::Shared(2), "openmpi") if bytes >= 64 * MIB => 3.0,
        (Setting::Shared(2), "openmpi") if bytes >= MIB => 1.5,
        (Setting::Shared(4), "openmpi") if bytes >= MIB => 2.0,
        (Setting::Shared(_), "openmpi") => 1.0,
        (Setting::Shared(2), "gloo") => 4.0,
        (Setting::Shared(4), "gloo") => 5.0,
        (Setting::Shared(2), "add") if bytes >= 64 * MIB => 1.0 / 2.0,
        (Setting::Shared(2), "shared") if bytes >= 64 * MIB => 1.0 / 1.3,
        (Setting::Engine(_), "works" | "buckets" | "hvd gloo" | "hvd mpi") if bytes >= MIB => 3.0,
        (Setting::Engine(_), "hvd gloo" | "hvd mpi") => 5.0,
        (Setting::Engine(_), "sirtaki") if bytes >= MIB => 1.0 / 1.3,
        (Setting::Loopback | Setting::Namespaces, "gloo") if bytes >= MIB => 2.0,
        (Setting::Loopback | Setting::Namespaces, "gloo") => 1.0,
        _ => return None,
    };
    Some(Goal(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_reached_when_the_shown_digits_say_so() {
        assert!(Goal(1.0).is_reached(0.996));
        assert!(!Goal(1.0).is_reached(0.99));
    }

    #[test]
    fn distances_from_the_limit_are_goals_for_large_messages() {
        assert_eq!(goal(&Setting::Shared(2), 256 * MIB, "add"), Some(Goal(0.5)));
        assert_eq!(goal(&Setting::Shared(2), MIB, "add"), None);
        assert_eq!(goal(&Setting::Shared(8), 4, "openmpi"), Some(Goal(1.0)));
    }
}
