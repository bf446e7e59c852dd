//! How workers learn together, by name: `sirtaki train` does it, and `sirtaki predict`, which needs no training, forecasts
//! it. So the names are known to both, and spelled the same.

use std::str::FromStr;

use clap::ValueEnum;

/// How workers learn together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum StrategyName {
    #[default]
    Data,
    Sharded,
    Central,
    Server,
    Local,
}

impl StrategyName {
    /// As it is typed.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Strategies to compare, in the order in which they were typed, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrategyNames(pub Vec<StrategyName>);

impl FromStr for StrategyNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().eq_ignore_ascii_case("all") {
            return Ok(Self(StrategyName::value_variants().to_vec()));
        }
        let mut list = Vec::new();
        for part in text.split(',') {
            let name = <StrategyName as ValueEnum>::from_str(part.trim(), true).map_err(|_| {
                let known: Vec<String> = StrategyName::value_variants().iter().map(|name| name.name()).collect();
                format!("`{part}` is not a strategy; known are {}, and all", known.join(", "))
            })?;
            if !list.contains(&name) {
                list.push(name);
            }
        }
        Ok(Self(list))
    }
}

/// How many steps the fastest worker may be ahead of the slowest; without a number, any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayLimit(pub Option<u64>);

impl FromStr for DelayLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            number => number.parse().map(|steps| Self(Some(steps))).map_err(|_| "a number of steps, or none".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_one_several_or_all() {
        let parse = |text: &str| text.parse::<StrategyNames>().map(|names| names.0);
        assert_eq!(parse("data"), Ok(vec![StrategyName::Data]));
        assert_eq!(parse("Local, data,local"), Ok(vec![StrategyName::Local, StrategyName::Data]));
        assert_eq!(parse("all").map(|all| all.len()), Ok(5));
        let refused = parse("data,severs").unwrap_err();
        assert_eq!(refused, "`severs` is not a strategy; known are data, sharded, central, server, local, and all");
    }

    #[test]
    fn delays_are_typed_as_for_training() {
        let parse = |text: &str| text.parse::<DelayLimit>().map(|delay| delay.0);
        assert_eq!((parse("0"), parse("4"), parse("none")), (Ok(Some(0)), Ok(Some(4)), Ok(None)));
        assert!(parse("-1").is_err() && parse("").is_err());
    }
}
