//! The last seconds of something that is counted, for its rate.

use std::collections::VecDeque;

/// The seconds that a rate is taken over.
const WINDOW: f64 = 10.0;
/// Most points.
const POINTS: usize = 64;

/// Some counters over time.
#[derive(Debug, Clone, Default)]
pub(super) struct Trail<const N: usize> {
    points: VecDeque<(f64, [f64; N])>,
    first: Option<(f64, [f64; N])>,
}

impl<const N: usize> Trail<N> {
    /// The counters at this time, in seconds of any clock. If one has decreased, the trail starts afresh.
    pub(super) fn add(&mut self, time: f64, counts: [f64; N]) {
        let back = |(then, before): &(f64, [f64; N])| {
            time < *then || before.iter().zip(&counts).any(|(before, now)| now < before)
        };
        match self.points.back() {
            Some(last) if back(last) => *self = Self::default(),
            Some((last, _)) if *last == time => return,
            _ => {}
        }
        self.first.get_or_insert((time, counts));
        self.points.push_back((time, counts));
        // The oldest point is the last one before the window.
        while self.points.len() > POINTS || self.points.get(1).is_some_and(|(then, _)| time - then > WINDOW) {
            self.points.pop_front();
        }
    }

    /// How much a counter grows per second.
    pub(super) fn rate(&self, counter: usize) -> Option<f64> {
        rate(*self.points.front()?, *self.points.back()?, counter)
    }

    /// The same since the beginning.
    pub(super) fn mean_rate(&self, counter: usize) -> Option<f64> {
        rate(self.first?, *self.points.back()?, counter)
    }
}

fn rate<const N: usize>(from: (f64, [f64; N]), to: (f64, [f64; N]), counter: usize) -> Option<f64> {
    let span = to.0 - from.0;
    (span > 0.0).then(|| (to.1[counter] - from.1[counter]) / span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let mut trail = Trail::<1>::default();
        assert_eq!(trail.rate(0), None);
        trail.add(0.0, [0.0]);
        assert_eq!(trail.rate(0), None, "one point has no rate");
        (1..=20).for_each(|second| trail.add(f64::from(second), [10.0 * f64::from(second)]));
        (21..=40).for_each(|second| trail.add(f64::from(second), [200.0 + 30.0 * f64::from(second - 20)]));
        assert_eq!((trail.rate(0), trail.mean_rate(0)), (Some(30.0), Some(20.0)));
        trail.add(41.0, [5.0]);
        assert_eq!((trail.rate(0), trail.mean_rate(0)), (None, None), "it began anew");
        (0..1000).for_each(|step| trail.add(41.0 + 0.001 * f64::from(step), [5.0 + f64::from(step)]));
        assert!(trail.points.len() <= POINTS);
    }
}
