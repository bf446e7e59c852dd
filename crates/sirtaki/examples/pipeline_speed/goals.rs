//! What is to be reached, and whether it was.

use std::fmt::Write;

/// A goal with what was measured.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    pub(crate) is_reached: bool,
    pub(crate) text: String,
}

impl Goal {
    /// At most so much.
    pub(crate) fn at_most(what: &str, value: f64, most: f64, show: impl Fn(f64) -> String) -> Self {
        Self { is_reached: value <= most, text: format!("{what}: {}, to be at most {}", show(value), show(most)) }
    }

    /// At least so much.
    pub(crate) fn at_least(what: &str, value: f64, least: f64, show: impl Fn(f64) -> String) -> Self {
        Self { is_reached: value >= least, text: format!("{what}: {}, to be at least {}", show(value), show(least)) }
    }
}

/// All goals, and how many were missed.
pub(crate) fn summary(goals: &[Goal]) -> String {
    let mut text = String::new();
    for Goal { is_reached, text: goal } in goals {
        let _ = writeln!(text, "{} {goal}", if *is_reached { '✓' } else { '✗' });
    }
    let missed = goals.iter().filter(|goal| !goal.is_reached).count();
    let _ = write!(text, "{missed} of {} goals missed", goals.len());
    text
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

pub(crate) fn ratio(value: f64) -> String {
    format!("{value:.3}")
}
