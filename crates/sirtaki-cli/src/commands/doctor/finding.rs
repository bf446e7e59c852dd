//! One line of the page.

use serde::Serialize;

use crate::printer::Style;

/// Whether a thing is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Present, and fine.
    Ok,
    /// Not present; much works without it.
    Missing,
    /// Present, but likely to cause trouble.
    Warning,
}

impl State {
    /// The mark before the line.
    pub(super) fn mark(self) -> &'static str {
        match self {
            State::Ok => "✓",
            State::Missing => "–",
            State::Warning => "!",
        }
    }

    /// The colour of the mark.
    pub(super) fn style(self) -> Style {
        match self {
            State::Ok => Style::Good,
            State::Missing => Style::Faint,
            State::Warning => Style::Warning,
        }
    }
}

/// What was found about one thing.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    /// The thing.
    pub name: String,
    /// Whether it is as it should be.
    pub state: State,
    /// What was found, in words.
    pub value: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// Something that is there.
    pub(super) fn ok(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), state: State::Ok, value: value.into(), hint: None }
    }

    /// Something that is not there, and how to get it.
    pub(super) fn missing(name: impl Into<String>, value: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { state: State::Missing, hint: Some(hint.into()), ..Self::ok(name, value) }
    }

    /// Something that is not there and is not needed.
    pub(super) fn absent(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { state: State::Missing, ..Self::ok(name, value) }
    }

    /// Something that is likely to cause trouble, and what to do.
    pub(super) fn warning(name: impl Into<String>, value: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { state: State::Warning, hint: Some(hint.into()), ..Self::ok(name, value) }
    }
}
