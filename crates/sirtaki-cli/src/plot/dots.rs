//! Every measurement as a mark: one line per group, with its range and its mean.

use super::{LETTER, WIDTH, axis::Axis, axis::Scale, svg::Svg};
use crate::commands::report::words::shorten;

const NAME: usize = 16;
const NOTE: usize = 18;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;
const LINE: f64 = 26.0;

/// Measurements of one group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dotted {
    /// To the left.
    pub(crate) name: String,
    /// How it is drawn.
    pub(crate) style: usize,
    /// The measurements.
    pub(crate) values: Vec<f64>,
    /// A stroke across.
    pub(crate) mean: Option<f64>,
    /// To the right.
    pub(crate) note: String,
    /// The entry of the page's legend that shows and hides it.
    pub(crate) key: Option<usize>,
}

/// A plot of measurements.
#[derive(Debug, Clone)]
pub(crate) struct Dots {
    /// Of the plot, for those who cannot see it.
    pub(crate) title: String,
    /// What is measured.
    pub(crate) x: (&'static str, Scale),
    /// From top to bottom.
    pub(crate) lines: Vec<Dotted>,
    /// How values are written in the tooltip of a mark.
    pub(crate) show: fn(f64) -> String,
}

impl Dots {
    /// The plot.
    pub(crate) fn draw(&self) -> String {
        let bottom = TOP + LINE * self.lines.len() as f64;
        let mut svg = Svg::new(bottom + BOTTOM);
        let letters = |text: &str, most: usize| text.chars().count().min(most) as f64 * LETTER;
        let left = 12.0 + self.lines.iter().map(|line| letters(&line.name, NAME)).fold(10.0, f64::max);
        let right = WIDTH - 16.0 - self.lines.iter().map(|line| letters(&line.note, NOTE)).fold(0.0, f64::max);
        let mut values: Vec<f64> = self.lines.iter().flat_map(|line| line.values.clone()).collect();
        values.push(0.0);
        let axis = Axis::new(self.x.1, &values, true);
        let place = |value: f64| left + axis.place(value) * (right - left);
        for (value, text) in axis.ticks() {
            svg.line("grid", (place(value), TOP - 6.0), (place(value), bottom));
            svg.text("tick", "middle", (place(value), bottom + 15.0), &text);
        }
        for (index, line) in self.lines.iter().enumerate() {
            let y = TOP + LINE * (index as f64 + 0.5);
            svg.begin(line.key);
            svg.text("tick", "end", (left - 7.0, y + 4.0), &shorten(&line.name, NAME));
            let class = format!("range n{}", line.style % 8);
            if let [low, .., high] = line.values.as_slice() {
                svg.line(&class, (place(*low), y), (place(*high), y));
            }
            for &value in &line.values {
                svg.mark(line.style, (place(value), y), &(self.show)(value));
            }
            if let Some(mean) = line.mean {
                svg.line("mean", (place(mean), y - 9.0), (place(mean), y + 9.0));
            }
            svg.text("tick", "start", (right + 9.0, y + 4.0), &shorten(&line.note, NOTE));
            svg.end();
        }
        svg.line("axis", (left, TOP - 6.0), (left, bottom));
        svg.text("unit", "end", (right, bottom + BOTTOM - 6.0), &axis.label(self.x.0));
        let line = |line: &Dotted| {
            let values: Vec<String> = line.values.iter().map(|&value| (self.show)(value)).collect();
            format!("{}: {} {}", line.name, values.join(", "), line.note)
        };
        svg.finish(&self.title, &self.lines.iter().map(line).collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_measurements_are_marked_and_the_mean_is_a_stroke() {
        let line = Dotted {
            name: "A".into(),
            style: 1,
            values: vec![1.0, 2.0, 6.0],
            mean: Some(3.0),
            note: "2 of 3".into(),
            key: Some(4),
        };
        let none = Dotted { name: "B".into(), note: "not reached".into(), ..Dotted::default() };
        let title = "Time to accuracy".into();
        let svg = Dots { title, x: ("time", Scale::Time), lines: vec![line, none], show: |value| format!("{value} s") }
            .draw();
        assert_eq!((svg.matches("class=\"mark").count(), svg.matches("class=\"mean").count()), (3, 1));
        assert!(svg.contains("<g data-key=\"4\">"), "{svg}");
        assert!(svg.contains("not reached") && svg.contains("<title>6 s</title>") && !svg.contains("NaN"), "{svg}");
    }
}
