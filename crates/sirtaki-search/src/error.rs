//! The one error of this crate: what was wrong, where, and what was expected instead.

/// Why a space, a study or a journal was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// A parameter's domain makes no sense.
    #[error("parameter `{parameter}`: {problem}")]
    Parameter {
        /// Its name.
        parameter: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A space as a whole makes no sense.
    #[error("the space {0}")]
    Space(String),
    /// A line of a journal makes no sense.
    #[error("line {line} of the journal: {problem}")]
    Journal {
        /// Which one, from 1 on.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A study was asked for something that it cannot do.
    #[error("study `{study}`: {problem}")]
    Study {
        /// Its name.
        study: String,
        /// What and why.
        problem: String,
    },
    /// A trial was asked for something that it cannot do.
    #[error("trial {number}: {problem}")]
    Trial {
        /// Its number.
        number: u64,
        /// What and why.
        problem: String,
    },
    /// A study exists in another space.
    #[error("study `{study}` began in another space:\n  {}", .differences.join("\n  "))]
    Changed {
        /// Its name.
        study: String,
        /// One line per parameter that differs.
        differences: Vec<String>,
    },
    /// A name that nobody knows.
    #[error("unknown {kind} `{name}`{}", nearest(.suggestion))]
    Unknown {
        /// What it should have been the name of.
        kind: &'static str,
        /// What was written.
        name: String,
        /// The nearest known name.
        suggestion: Option<String>,
    },
}

fn nearest(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

impl SearchError {
    pub(crate) fn parameter(parameter: &str, problem: impl Into<String>) -> Self {
        Self::Parameter { parameter: parameter.to_owned(), problem: problem.into() }
    }

    /// `name` is none of `known`; the nearest of them is offered where one is near.
    pub fn unknown<'a>(kind: &'static str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        // Of short names a single slip of the finger leaves little that is the same.
        let slip = |known: &str| if strsim::damerau_levenshtein(name, known) == 1 { 0.9 } else { 0.0 };
        let closeness = |known: &str| strsim::jaro_winkler(name, known).max(slip(known));
        let nearest = known.into_iter().max_by(|a, b| closeness(a).total_cmp(&closeness(b)));
        let suggestion = nearest.filter(|known| closeness(known) > 0.7).map(str::to_owned);
        Self::Unknown { kind, name: name.to_owned(), suggestion }
    }
}
