//! Axes: from values to places, with round numbers as ticks.

use crate::commands::report::words;

/// What an axis measures, and so how its numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Numbers without a unit, or with the unit in the label.
    Plain,
    /// The same, logarithmic if the values span a lot.
    Wide,
    /// Always logarithmic, in powers of ten.
    Powers,
    /// Always logarithmic, in steps of four, in bytes.
    Bytes,
    /// Always logarithmic, in seconds.
    Moments,
    /// Shares, in percent.
    Share,
    /// Seconds, minutes or hours.
    Time,
    /// Whole numbers, marked where there are points.
    Workers,
}

/// Ratio of the largest to the smallest value from which an axis of [`Scale::Wide`] is logarithmic.
const WIDE: f64 = 12.0;

/// An axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Scale {
    /// The name by which the script of a page knows it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scale::Plain | Scale::Wide | Scale::Powers => "number",
            Scale::Bytes => "bytes",
            Scale::Moments => "moments",
            Scale::Share => "share",
            Scale::Time => "time",
            Scale::Workers => "whole",
        }
    }
}

impl Axis {
    /// An axis that shows all these values, and zero if `from_zero` and it is not logarithmic.
    pub(super) fn new(scale: Scale, values: &[f64], from_zero: bool) -> Self {
        let (low, high) =
            values.iter().fold((f64::MAX, f64::MIN), |(low, high), &value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let logarithmic = low > 0.0
            && match scale {
                Scale::Wide => high / low > WIDE,
                Scale::Powers | Scale::Bytes | Scale::Moments => true,
                _ => false,
            };
        let mut axis = Self { scale, low, high, logarithmic, ticks: Vec::new() };
        if logarithmic {
            axis.round_logarithms()
        } else {
            axis.round(if from_zero { low.min(0.0) } else { low }, values)
        }
        axis
    }

    /// From one round number to another, a few in between.
    fn round(&mut self, low: f64, values: &[f64]) {
        let high = if self.high > low { self.high } else { low + if low == 0.0 { 1.0 } else { low.abs() } };
        let unit = self.unit().0;
        let (low, high) = (low / unit, high / unit);
        let step = step((high - low) / 4.5);
        let step = if self.scale == Scale::Workers { step.ceil() } else { step };
        let (first, mut last) = ((low / step).floor(), (high / step).ceil());
        if self.scale == Scale::Share && high * unit <= 1.0 {
            last = last.min((1.0 / unit / step).round());
        }
        self.ticks = (first as i64..=last as i64).map(|index| index as f64 * step * unit).collect();
        (self.low, self.high) = (first * step * unit, last * step * unit);
        if self.scale == Scale::Workers {
            let mut marked = values.to_vec();
            marked.sort_by(f64::total_cmp);
            marked.dedup();
            if marked.len() <= 6 && marked.windows(2).all(|pair| pair[1] - pair[0] > 0.06 * self.high) {
                self.ticks = marked;
            }
        }
    }

    /// Powers of ten, or of four for bytes; less than one apart, values get a whole one around them.
    fn round_logarithms(&mut self) {
        let base: f64 = if self.scale == Scale::Bytes { 4.0 } else { 10.0 };
        let first = (self.low.ln() / base.ln() + 1e-9).floor();
        let last = (self.high.ln() / base.ln() - 1e-9).ceil().max(first + 1.0);
        let every = ((last - first) / 6.0).ceil().max(1.0);
        let count = ((last - first) / every).floor() as i32;
        self.ticks = (0..=count).map(|index| base.powf(first + f64::from(index) * every)).collect();
        (self.low, self.high) = (base.powf(first), base.powf(last));
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self.logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Whether orders of magnitude have the same width.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Its ends.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The label with its unit.
    pub(super) fn label(&self, name: &str) -> String {
        let unit = self.unit().1;
        let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
        format!("{name}{unit}{}", if self.logarithmic { ", logarithmic" } else { "" })
    }

    fn unit(&self) -> (f64, &'static str) {
        match self.scale {
            Scale::Time if self.high > 3.0 * 3600.0 => (3600.0, "h"),
            Scale::Time if self.high > 180.0 => (60.0, "min"),
            Scale::Time => (1.0, "s"),
            Scale::Share => (0.01, "%"),
            _ => (1.0, ""),
        }
    }

    /// Round numbers with their texts.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let unit = self.unit().0;
        let apart = self.ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::MAX, f64::min) / unit;
        let digits = |apart: f64| {
            (0..6).find(|&digits| {
                (apart * 10_f64.powi(digits)).fract().min(1.0 - (apart * 10_f64.powi(digits)).fract()) < 1e-6
            })
        };
        let digits = digits(apart).unwrap_or(6) as usize;
        let text = |value: f64| match self.scale {
            Scale::Bytes => words::bytes(value),
            Scale::Moments => words::duration(value),
            _ if self.logarithmic => short(value),
            _ if (value / unit).abs() >= 10_000.0 => short(value / unit),
            _ => format!("{:.digits$}", value / unit),
        };
        self.ticks.iter().map(|&value| (value, text(value))).collect()
    }
}

/// A round step that is at least this large: 1, 2, 2.5 or 5 times a power of ten.
fn step(at_least: f64) -> f64 {
    let power = 10_f64.powf(at_least.max(1e-12).log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|times| times * power)
        .into_iter()
        .find(|&step| step >= at_least * 0.999)
        .unwrap_or(power)
}

/// `20k`, `1.5M`.
fn short(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(size, _)| value.abs() >= *size) {
        Some((size, unit)) => format!("{}{unit}", plain(value / size)),
        None => plain(value),
    }
}

/// Without zeros at the end.
fn plain(value: f64) -> String {
    let text = if value.abs() < 0.001 && value != 0.0 { format!("{value:.0e}") } else { format!("{value:.3}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, values: &[f64], from_zero: bool) -> Vec<String> {
        Axis::new(scale, values, from_zero).ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn numbers_on_an_axis_are_round() {
        assert_eq!(texts(Scale::Plain, &[0.3, 9.7], true), ["0.0", "2.5", "5.0", "7.5", "10.0"]);
        assert_eq!(texts(Scale::Share, &[0.953, 0.991], false), ["95", "96", "97", "98", "99", "100"]);
        assert_eq!(texts(Scale::Plain, &[0.0, 60_000.0], true), ["0", "20k", "40k", "60k"]);
        assert_eq!(texts(Scale::Wide, &[0.02, 2.3], true), ["0.01", "0.1", "1", "10"]);
        assert_eq!(texts(Scale::Powers, &[0.02, 0.03], true), ["0.01", "0.1"]);
        assert_eq!(texts(Scale::Bytes, &[4.0, 1024.0], false), ["4 B", "16 B", "64 B", "256 B", "1 KiB"]);
        assert_eq!(texts(Scale::Workers, &[1.0, 2.0, 4.0], true), ["1", "2", "4"]);
        let time = Axis::new(Scale::Time, &[0.0, 600.0], true);
        assert_eq!(time.label("time"), "time (min)");
        assert_eq!(time.ticks().last().unwrap().1, "10.0");
    }

    #[test]
    fn whatever_values_there_are_places_are_on_the_axis() {
        let cases: [&[f64]; 6] = [&[], &[0.0], &[5.0], &[-3.0, -3.0], &[1e-300, 1e14], &[1e14, -1e14]];
        let numbers = [Scale::Plain, Scale::Wide, Scale::Powers, Scale::Workers];
        for scale in numbers.into_iter().chain([Scale::Bytes, Scale::Moments, Scale::Share, Scale::Time]) {
            for values in cases {
                let axis = Axis::new(scale, values, true);
                assert!(axis.ticks().len() < 100, "{scale:?} {values:?}");
                for &value in values.iter().chain(&[0.0, 1.0]) {
                    assert!((0.0..=1.0).contains(&axis.place(value)), "{scale:?} {values:?}");
                }
            }
        }
    }
}
