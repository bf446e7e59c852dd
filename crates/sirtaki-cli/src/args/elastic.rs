//! What can be typed about workers that come and go.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::Args;

use super::at_least_one;
use crate::env;

/// Options of an elastic job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Workers that come and go (docs/elastic.md)")]
pub struct ElasticOptions {
    /// Go on with at least N processes when others are lost, and with more when others come [default: -n, or 1]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub min_ranks: Option<NonZeroUsize>,

    /// Go on with at most N processes [default: -n, or all slots]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub max_ranks: Option<NonZeroUsize>,

    /// A program that prints the hosts there are, one per line, such as `a:4`; it is asked every second
    #[arg(long, value_name = "PROGRAM")]
    pub discover: Option<PathBuf>,

    /// Slots of hosts for which that program prints none [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub slots: Option<NonZeroUsize>,

    /// How long there may be fewer processes than --min-ranks before the job ends [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = env::seconds)]
    pub elastic_timeout: Option<Duration>,

    /// How often processes may come or go before the job ends [default: any number of times]
    #[arg(long, value_name = "N")]
    pub reset_limit: Option<u32>,

    /// How long nothing new is started on a host after a failure there; doubled each time, up to MAX [default: 1,60]
    #[arg(long, value_name = "MIN,MAX", value_parser = cooldown)]
    pub cooldown: Option<Cooldown>,
}

/// The shortest and the longest time for which a host is avoided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooldown(pub Duration, pub Duration);

impl ElasticOptions {
    /// These options, completed by those `below` that are not given here.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            min_ranks: self.min_ranks.or(below.min_ranks),
            max_ranks: self.max_ranks.or(below.max_ranks),
            discover: self.discover.or(below.discover),
            slots: self.slots.or(below.slots),
            elastic_timeout: self.elastic_timeout.or(below.elastic_timeout),
            reset_limit: self.reset_limit.or(below.reset_limit),
            cooldown: self.cooldown.or(below.cooldown),
        }
    }
}

fn cooldown(text: &str) -> Result<Cooldown, String> {
    let wrong = || "must be two numbers of seconds, such as 1,60".to_owned();
    let (min, max) = text.split_once(',').ok_or_else(wrong)?;
    let (min, max) = (env::seconds(min.trim())?, env::seconds(max.trim())?);
    if min <= max { Ok(Cooldown(min, max)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cooldown_is_two_times_in_order() {
        let seconds = |number: u64| Duration::from_secs(number);
        assert_eq!(cooldown("1, 60"), Ok(Cooldown(seconds(1), seconds(60))));
        assert_eq!(cooldown("2,2"), Ok(Cooldown(seconds(2), seconds(2))));
        for text in ["1", "60,1", "a,b", "1,2,3", "-1,2"] {
            assert!(cooldown(text).is_err(), "{text}");
        }
    }
}
