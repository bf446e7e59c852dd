//! How far another host's clock is from ours, from messages there and back.
//!
//! The other host reads its clock between our sending and our receiving, so the offset is known to within half of that
//! time. Of several exchanges the shortest says most; an old one says less and less, because clocks drift.

use std::{collections::VecDeque, time::Duration};

use serde::{Deserialize, Serialize};

/// How many exchanges are remembered.
const KEPT: usize = 32;
/// Clocks of computers drift apart by less than this fraction of the time.
const DRIFT: f64 = 50e-6;

/// The offset of another clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offset {
    /// Nanoseconds to add to our times to get the other's.
    pub(crate) ahead: i64,
    /// By how many nanoseconds that may be wrong.
    pub(crate) error: u64,
}

impl Offset {
    /// One of our times as the other clock shows it.
    pub(crate) fn apply(self, time: u64) -> u64 {
        time.saturating_add_signed(self.ahead)
    }
}

/// Exchanges with another host.
#[derive(Debug, Default)]
pub(crate) struct Exchanges(VecDeque<(Duration, Offset)>);

impl Exchanges {
    /// We asked at `sent`, the other clock showed `there`, and we received that at `heard`.
    pub(crate) fn note(&mut self, sent: Duration, there: Duration, heard: Duration) {
        let Some(took) = heard.checked_sub(sent) else { return };
        let middle = sent + took / 2;
        let ahead = there.as_nanos() as i128 - middle.as_nanos() as i128;
        let Ok(ahead) = i64::try_from(ahead) else { return };
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((heard, Offset { ahead, error: took.as_nanos().div_ceil(2) as u64 }));
    }

    /// The best that is known now.
    pub(crate) fn best(&self, now: Duration) -> Option<Offset> {
        let aged = |(heard, offset): &(Duration, Offset)| {
            let drift = now.saturating_sub(*heard).as_nanos() as f64 * DRIFT;
            Offset { ahead: offset.ahead, error: offset.error + drift as u64 }
        };
        self.0.iter().map(aged).min_by_key(|offset| offset.error)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn the_shortest_exchange_counts_until_it_is_old() {
        let mut exchanges = Exchanges::default();
        assert_eq!(exchanges.best(micros(0)), None);
        exchanges.note(micros(1000), micros(51_000), micros(1900));
        exchanges.note(micros(2000), micros(52_050), micros(2100));
        let best = exchanges.best(micros(2100)).unwrap();
        assert_eq!(best, Offset { ahead: 50_000_000, error: 50_000 });
        assert_eq!(best.apply(1), 50_000_001);
        exchanges.note(micros(10_002_000), micros(10_052_200), micros(10_002_300));
        assert_eq!(exchanges.best(micros(10_002_300)).unwrap().error, 150_000, "500 µs of drift are more");
        exchanges.note(micros(9), micros(1), micros(8));
        assert_eq!(exchanges.0.len(), 3, "time does not go back");
    }

    proptest! {
        #[test]
        fn the_truth_is_within_the_error(
            ahead in -1_000_000_000_i64..1_000_000_000,
            rounds in prop::collection::vec((0_u64..5_000_000, 0_u64..5_000_000, 0_u64..1_000_000), 1..50),
        ) {
            let mut exchanges = Exchanges::default();
            let mut now = 2_000_000_000_u64;
            for (there, back, pause) in rounds {
                let answered = (now + there).saturating_add_signed(ahead);
                let heard = now + there + back;
                let at = Duration::from_nanos;
                exchanges.note(at(now), at(answered), at(heard));
                now = heard + pause;
            }
            let best = exchanges.best(Duration::from_nanos(now)).unwrap();
            prop_assert!(best.ahead.abs_diff(ahead) <= best.error + 1);
        }
    }
}
