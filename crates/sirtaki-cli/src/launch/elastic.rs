//! From options to how workers may come and go.

use sirtaki_launch::Elastic;

use crate::{
    args::{elastic::Cooldown, run::Run},
    printer::Advice,
};

/// How workers may come and go; `None` for a job with fixed ranks.
pub(super) fn elastic(all: &mut Run) -> Result<Option<Elastic>, Advice> {
    let typed = std::mem::take(&mut all.elastic);
    if typed.min_ranks.is_none() && typed.max_ranks.is_none() && typed.discover.is_none() {
        let others = [
            ("--slots", typed.slots.is_some()),
            ("--elastic-timeout", typed.elastic_timeout.is_some()),
            ("--reset-limit", typed.reset_limit.is_some()),
            ("--cooldown", typed.cooldown.is_some()),
        ];
        return match others.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                let hint = "say how few may go on: --min-ranks 2";
                Err(Advice::new(format!("{name} is for workers that come and go"), hint))
            }
            None => Ok(None),
        };
    }
    let min = typed.min_ranks.or(all.ranks).unwrap_or(std::num::NonZeroUsize::MIN);
    let max = typed.max_ranks.or(all.ranks);
    if let Some(max) = max.filter(|max| *max < min) {
        let hint = "give --min-ranks at most as much as --max-ranks and -n";
        return Err(Advice::new(format!("at least {min} and at most {max} processes cannot be"), hint));
    }
    if all.mpi == Some(true) {
        let hint = "leave out --mpi, or --min-ranks; --restarts starts all processes again";
        return Err(Advice::new("MPI cannot go on without one of its processes", hint));
    }
    let defaults = Elastic::at_least(min);
    Ok(Some(Elastic {
        max,
        wait: typed.elastic_timeout.unwrap_or(defaults.wait),
        resets: typed.reset_limit,
        cooldown: typed.cooldown.map_or(defaults.cooldown, |Cooldown(least, most)| (least, most)),
        discover: typed.discover,
        slots: typed.slots.unwrap_or(defaults.slots),
        ..defaults
    }))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::args::elastic::ElasticOptions;

    fn number(number: usize) -> Option<NonZeroUsize> {
        NonZeroUsize::new(number)
    }

    #[test]
    fn limits_come_from_what_is_given() {
        let of = |ranks, min_ranks, max_ranks| {
            let elastic = ElasticOptions { min_ranks, max_ranks, ..ElasticOptions::default() };
            super::elastic(&mut Run { ranks, elastic, ..Run::default() })
        };
        assert_eq!(of(number(4), None, None).unwrap(), None);
        let limits = |elastic: Option<Elastic>| elastic.map(|elastic| (elastic.min.get(), elastic.max));
        assert_eq!(limits(of(None, number(2), number(8)).unwrap()), Some((2, number(8))));
        assert_eq!(limits(of(number(4), number(2), None).unwrap()), Some((2, number(4))));
        assert_eq!(limits(of(None, None, number(8)).unwrap()), Some((1, number(8))));
        assert!(of(None, number(3), number(2)).unwrap_err().message.contains("at least 3"));
    }

    #[test]
    fn details_alone_are_refused() {
        let elastic = ElasticOptions { reset_limit: Some(3), ..ElasticOptions::default() };
        let error = super::elastic(&mut Run { elastic, ..Run::default() }).unwrap_err();
        assert!(error.message.contains("--reset-limit") && error.hint.contains("--min-ranks"));
    }
}
