//! Several measurements of the same thing, for runs that differ in nothing but their seed.
//!
//! As in MLPerf's time to train: with five or more values, the best and the worst are left out and the rest is
//! averaged. With fewer, nothing is left out. Whatever was left out of the mean is still in the range, and drawn.

/// With this many values or more, the best and the worst are left out of the mean.
pub(crate) const ENOUGH: usize = 5;

/// Measurements of the same thing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spread {
    /// All of them, ascending.
    pub(crate) values: Vec<f64>,
    /// Without the best and the worst, if there are enough.
    pub(crate) mean: f64,
}

impl Spread {
    /// Of these; `None` if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let middle = middle(&values);
        let mean = middle.iter().sum::<f64>() / middle.len() as f64;
        (!values.is_empty()).then_some(Self { values, mean })
    }

    /// The smallest.
    pub(crate) fn low(&self) -> f64 {
        self.values.first().copied().unwrap_or(self.mean)
    }

    /// The largest.
    pub(crate) fn high(&self) -> f64 {
        self.values.last().copied().unwrap_or(self.mean)
    }

    /// The same in another unit.
    pub(crate) fn scaled(&self, factor: f64) -> Self {
        Self { values: self.values.iter().map(|value| value * factor).collect(), mean: self.mean * factor }
    }

    /// For people: the mean, and the range where there is one.
    pub(crate) fn show(&self, number: impl Fn(f64) -> String) -> String {
        let (low, mean, high) = (number(self.low()), number(self.mean), number(self.high()));
        if low == high { mean } else { format!("{mean} ({low} to {high})") }
    }
}

/// What is averaged.
fn middle(sorted: &[f64]) -> &[f64] {
    if sorted.len() >= ENOUGH { &sorted[1..sorted.len() - 1] } else { sorted }
}

/// How long it took runs to reach an accuracy. A run that never did counts as worse than all others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reached {
    /// Times of the runs that reached it.
    pub(crate) times: Vec<f64>,
    /// How many runs there were.
    pub(crate) runs: usize,
    /// The mean of the middle runs, if all of those reached it.
    pub(crate) mean: Option<f64>,
}

impl Reached {
    /// From each run's time, if it has one.
    pub(crate) fn of(times: impl IntoIterator<Item = Option<f64>>) -> Self {
        let mut all: Vec<f64> = times.into_iter().map(|time| time.unwrap_or(f64::INFINITY)).collect();
        all.sort_by(f64::total_cmp);
        let middle = middle(&all);
        let mean = middle.iter().sum::<f64>() / middle.len() as f64;
        let times: Vec<f64> = all.iter().copied().filter(|time| time.is_finite()).collect();
        Self { runs: all.len(), times, mean: mean.is_finite().then_some(mean) }
    }

    /// For people.
    pub(crate) fn show(&self, number: impl Fn(f64) -> String) -> String {
        let range = match self.times.as_slice() {
            [low, .., high] if number(*low) != number(*high) => format!("{} to {}", number(*low), number(*high)),
            [time, ..] => number(*time),
            [] => return "not reached".into(),
        };
        let text = match self.mean.map(number) {
            Some(mean) if mean != range => format!("{mean} ({range})"),
            Some(mean) => mean,
            None => range,
        };
        if self.times.len() == self.runs { text } else { format!("{text}; {} of {} runs", self.times.len(), self.runs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_and_the_worst_count_until_there_are_five() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([4.0, 1.0, f64::NAN]).unwrap().mean, 2.5);
        let four = Spread::of([1.0, 2.0, 3.0, 100.0]).unwrap();
        assert_eq!((four.mean, four.low(), four.high()), (26.5, 1.0, 100.0));
        let five = Spread::of([100.0, 2.0, 3.0, 4.0, -50.0]).unwrap();
        assert_eq!((five.mean, five.low(), five.high()), (3.0, -50.0, 100.0));
        assert_eq!(five.show(|value| format!("{value:.0}")), "3 (-50 to 100)");
        assert_eq!(Spread::of([2.0]).unwrap().show(|value| format!("{value:.0} s")), "2 s");
    }

    #[test]
    fn a_run_that_never_got_there_is_the_worst_one() {
        let seconds = |value: f64| format!("{value:.0} s");
        let one_of_five = Reached::of([Some(1.0), Some(4.0), Some(2.0), Some(3.0), None]);
        assert_eq!(one_of_five.mean, Some(3.0));
        assert_eq!(one_of_five.show(seconds), "3 s (1 s to 4 s); 4 of 5 runs");
        let two_of_five = Reached::of([Some(1.0), None, Some(2.0), Some(3.0), None]);
        assert_eq!((two_of_five.mean, two_of_five.show(seconds).as_str()), (None, "1 s to 3 s; 3 of 5 runs"));
        assert_eq!(Reached::of([None]).show(seconds), "not reached");
        assert_eq!(Reached::of([]).mean, None);
        assert_eq!(Reached::of([Some(2.0), Some(2.0)]).show(seconds), "2 s");
    }
}
