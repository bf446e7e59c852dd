//! What is to be made small or large: `minimize val_loss`.

use std::{fmt, str::FromStr};

use crate::{SearchError, journal::Direction};

/// One objective of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    /// Its name, by which trials report it.
    pub name: String,
    /// Which way it should go.
    pub direction: Direction,
}

impl FromStr for Objective {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [way, name] = words[..] else {
            let problem = format!("`{text}` is not a direction and a name, such as `minimize val_loss`");
            return Err(SearchError::parameter("objective", problem));
        };
        let direction = match way {
            "minimize" | "minimise" | "min" => Direction::Minimize,
            "maximize" | "maximise" | "max" => Direction::Maximize,
            _ => return Err(SearchError::unknown("direction", way, ["minimize", "maximize"])),
        };
        Ok(Self { name: name.to_owned(), direction })
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.direction == Direction::Minimize { "minimize" } else { "maximize" };
        write!(f, "{way} {}", self.name)
    }
}
