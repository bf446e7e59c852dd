//! A program that is a trial of `sirtaki search`: what it says to its study, and what it hears.
//!
//! Reports are lines of JSON on standard output, which any program could write; here is only what makes that convenient. A
//! trial that is given up gets SIGTERM. Whoever has a [`Trial`] hears of it through [`Trial::should_stop`] and has some
//! seconds to save something; all others simply end.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::consts::SIGTERM;

/// The variables that a trial has.
const TRIAL: &str = "SIRTAKI_TRIAL";
const OBJECTIVE: &str = "SIRTAKI_OBJECTIVE";
/// What a value is called outside of a study.
const VALUE: &str = "value";

/// This process as a trial.
///
/// ```
/// let trial = sirtaki::trial::Trial::begin()?;
/// for step in 0..3 {
///     let loss = 1.0 / (step + 1) as f64;
///     trial.report(step, loss)?;
///     if trial.should_stop() {
///         break; // after saving what is worth it
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Trial {
    objective: String,
    stop: Arc<AtomicBool>,
}

impl Trial {
    /// From now on, SIGTERM is noted rather than obeyed, if this is a trial. Outside of a study reports are lines that nobody
    /// waits for.
    pub fn begin() -> io::Result<Self> {
        let trial = Self::of(std::env::var(OBJECTIVE).ok().as_deref());
        if std::env::var_os(TRIAL).is_some() {
            signal_hook::flag::register(SIGTERM, trial.stop.clone())?;
        }
        Ok(trial)
    }

    fn of(objectives: Option<&str>) -> Self {
        let first = objectives.and_then(|names| names.split(',').next()).filter(|name| !name.is_empty());
        Self { objective: first.unwrap_or(VALUE).to_owned(), stop: Arc::default() }
    }

    /// Reports the value of the study's objective, or of the first one, after a step.
    pub fn report(&self, step: i64, value: f64) -> io::Result<()> {
        self.report_all(Some(step), &[(&self.objective, value)])
    }

    /// Reports values by their names: after a step, or at the end.
    pub fn report_all(&self, step: Option<i64>, values: &[(&str, f64)]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", line(step, values))?;
        out.flush()
    }

    /// Whether the study has given this trial up.
    pub fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn line(step: Option<i64>, values: &[(&str, f64)]) -> String {
    // What is not a number is written as Python does, for which JSON has no word.
    let number = |value: f64| match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        value => format!("{value:?}"),
    };
    let name = |name: &str| serde_json::Value::from(name).to_string();
    let step = step.map(|step| format!("\"step\": {step}"));
    let values = values.iter().map(|(of, value)| format!("{}: {}", name(of), number(*value)));
    format!("{{{}}}", step.into_iter().chain(values).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_lines_of_json() {
        assert_eq!(line(Some(3), &[("val_loss", 0.31)]), "{\"step\": 3, \"val_loss\": 0.31}");
        assert_eq!(
            line(None, &[("a\"b", 1e-300), ("c", f64::NAN), ("d", f64::NEG_INFINITY)]),
            "{\"a\\\"b\": 1e-300, \"c\": NaN, \"d\": -Infinity}"
        );
    }

    #[test]
    fn the_first_objective_is_what_a_value_is_of() {
        for (names, first) in [(Some("loss,speed"), "loss"), (Some(""), VALUE), (None, VALUE)] {
            assert_eq!(Trial::of(names).objective, first);
        }
        let trial = Trial::of(None);
        assert!(!trial.should_stop());
        trial.stop.store(true, Ordering::Relaxed);
        assert!(trial.should_stop());
    }
}
