//! Values over values: lines, marks, ranges, and lines to compare with.

use super::{LETTER, WIDTH, axis::Axis, axis::Scale, svg::Svg};
use crate::commands::report::words::shorten;

pub(super) const HEIGHT: f64 = 290.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 44.0;
/// Letters of a name at the end of a line.
const NAME: usize = 15;
/// Height of a name.
const LABEL: f64 = 13.0;

/// Points that belong together.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// At the end of its line; may be empty.
    pub name: String,
    /// How it is drawn.
    pub style: usize,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
    /// The range of each point, if known.
    pub ranges: Vec<(f64, f64)>,
    /// In the background.
    pub faint: bool,
    /// Whether every point has a mark, and the text of its tooltip.
    pub marks: Option<Vec<String>>,
    /// Whether no line connects its points.
    pub loose: bool,
    /// Whether a mean over neighbours says more than single points.
    pub noisy: bool,
    /// What it is called where there is room for more than its name; its name if empty.
    pub full_name: String,
    /// The entry of the page's legend that shows and hides it.
    pub key: Option<usize>,
}

/// Something to compare with.
#[derive(Debug, Clone)]
pub struct Guide {
    /// Beside its line.
    pub name: String,
    /// From the left, as a function of x at its ends: a level or a straight line.
    pub at: (f64, f64),
}

/// A plot of values over values.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Of the plot, for those who cannot see it.
    pub title: String,
    /// The horizontal axis.
    pub x: (&'static str, Scale),
    /// The vertical axis.
    pub y: (&'static str, Scale),
    /// Whether both axes begin at zero, unless logarithmic.
    pub from_zero: (bool, bool),
    /// What is drawn.
    pub series: Vec<Series>,
    /// What it is compared with: `y = at.0 + at.1 * x`.
    pub guides: Vec<Guide>,
}

pub(super) struct Frame {
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) right: f64,
}

/// The place of a plot within its picture: left, top and bottom; the right side depends on the names there.
pub(super) const SIDES: (f64, f64, f64) = (LEFT, TOP, HEIGHT - BOTTOM);

impl Frame {
    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (LEFT + self.x.place(x) * (self.right - LEFT), HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - BOTTOM - TOP))
    }
}

impl Chart {
    /// Whether there is anything to see.
    pub fn is_empty(&self) -> bool {
        self.series.iter().all(|series| series.points.is_empty())
    }

    /// The plot.
    pub fn draw(&self) -> String {
        let mut svg = Svg::new(HEIGHT);
        let frame = self.frame();
        self.axes(&mut svg, &frame);
        let mut labels = Vec::new();
        for guide in &self.guides {
            let (low, high) = frame.x.ends();
            let at = |x: f64| frame.place((x, guide.at.0 + guide.at.1 * x));
            // A straight line on logarithmic axes is straight only if it passes through both ends; none does here.
            svg.line("guide", at(low), at(high));
            labels.push((at(high), guide.name.clone(), "name guided".to_owned()));
        }
        let (background, foreground): (Vec<&Series>, Vec<&Series>) =
            self.series.iter().partition(|series| series.faint);
        for series in background.into_iter().chain(foreground) {
            self.series(&mut svg, &frame, series);
            if let Some(&last) = series.points.last() {
                labels.push((frame.place(last), series.name.clone(), format!("name n{}", series.style % 8)));
            }
        }
        names(&mut svg, labels);
        svg.finish(&self.title, &self.description(&frame))
    }

    pub(super) fn frame(&self) -> Frame {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let ranges = self.series.iter().flat_map(|series| &series.ranges).flat_map(|range| [range.0, range.1]);
        let x: Vec<f64> = points().map(|point| point.0).collect();
        let mut y: Vec<f64> = points().map(|point| point.1).chain(ranges).collect();
        let x = Axis::new(self.x.1, &x, self.from_zero.0);
        let end = x.ends().1;
        y.extend(self.guides.iter().map(|guide| guide.at.0 + guide.at.1 * end));
        let longest = |name: &String| name.chars().count().min(NAME);
        let names = self.series.iter().map(|series| longest(&series.name));
        let names = names.chain(self.guides.iter().map(|guide| longest(&guide.name))).max().unwrap_or(0);
        let margin = if names == 0 { 14.0 } else { 12.0 + LETTER * names as f64 };
        Frame { x, y: Axis::new(self.y.1, &y, self.from_zero.1), right: WIDTH - margin }
    }

    fn axes(&self, svg: &mut Svg, frame: &Frame) {
        let (left, bottom) = (LEFT, HEIGHT - BOTTOM);
        for (value, text) in frame.y.ticks() {
            let y = frame.place((0.0, value)).1;
            svg.line("grid", (left, y), (frame.right, y));
            svg.text("tick", "end", (left - 7.0, y + 4.0), &text);
        }
        for (value, text) in frame.x.ticks() {
            let x = frame.place((value, 0.0)).0;
            svg.line("axis", (x, bottom), (x, bottom + 4.0));
            svg.text("tick", "middle", (x, bottom + 17.0), &text);
        }
        svg.line("axis", (left, bottom), (frame.right, bottom));
        svg.text("unit", "start", (0.0, 13.0), &frame.y.label(self.y.0));
        svg.text("unit", "end", (frame.right, HEIGHT - 8.0), &frame.x.label(self.x.0));
    }

    fn series(&self, svg: &mut Svg, frame: &Frame, series: &Series) {
        let places: Vec<(f64, f64)> = series.points.iter().map(|&point| frame.place(point)).collect();
        if !series.loose {
            svg.path(series.style, series.faint, &places);
        }
        for (point, range) in series.points.iter().zip(&series.ranges) {
            let (low, high) = (frame.place((point.0, range.0)), frame.place((point.0, range.1)));
            if low.1 - high.1 > 1.0 {
                svg.line(&format!("range n{}", series.style % 8), low, high);
                for end in [low, high] {
                    svg.line(&format!("range n{}", series.style % 8), (end.0 - 3.0, end.1), (end.0 + 3.0, end.1));
                }
            }
        }
        match &series.marks {
            Some(tips) => places.iter().zip(tips).for_each(|(&place, tip)| svg.mark(series.style, place, tip)),
            None if series.faint => {}
            None => places.last().into_iter().for_each(|&place| svg.mark(series.style, place, &series.name)),
        }
    }

    fn description(&self, frame: &Frame) -> String {
        let (x, y) = (frame.x.label(self.x.0), frame.y.label(self.y.0));
        let named = self.series.iter().filter(|series| !series.name.is_empty());
        let ends: Vec<String> = named
            .filter_map(|series| {
                let last = series.points.last()?;
                let texts = [last.1, last.0].map(crate::commands::report::words::figure);
                Some(format!("{} ends with {} at {}", series.name, texts[0], texts[1]))
            })
            .take(12)
            .collect();
        format!("{y} over {x}. {}", ends.join("; "))
    }
}

/// Names beside the ends of lines, moved down where they would cover each other, and up again where the plot ends.
fn names(svg: &mut Svg, mut labels: Vec<((f64, f64), String, String)>) {
    labels.retain(|(_, name, _)| !name.is_empty());
    labels.sort_by(|a, b| a.0.1.total_cmp(&b.0.1));
    let mut taken: Vec<(f64, f64, f64)> = Vec::new();
    for (at, name, class) in labels {
        let name = shorten(&name, NAME);
        let x = (at.0 + 7.0).min(WIDTH - LETTER * name.chars().count() as f64 - 2.0);
        let end = x + LETTER * name.chars().count() as f64;
        let free = |y: f64| taken.iter().all(|&(from, to, other)| end < from || x > to || (y - other).abs() >= LABEL);
        let wanted = at.1 + 4.0;
        let away = |index: i32| wanted + f64::from(if index % 2 == 0 { index / 2 } else { -(index + 1) / 2 }) * 4.0;
        let inside = |y: &f64| (TOP + 4.0..HEIGHT - BOTTOM + 2.0).contains(y);
        let Some(y) = (0..120).map(away).find(|y| inside(y) && free(*y)) else { continue };
        svg.text(&class, "start", (x, y), &name);
        taken.push((x, end, y));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(series: Vec<Series>) -> Chart {
        let guides = vec![Guide { name: "ideal".into(), at: (0.0, 1.0) }];
        let (x, y) = (("workers", Scale::Workers), ("speed-up", Scale::Plain));
        Chart { title: "Speed-up".into(), x, y, from_zero: (true, true), series, guides }
    }

    #[test]
    fn lines_have_names_marks_and_no_wild_numbers() {
        let line = |style, name: &str, end| Series {
            name: name.into(),
            style,
            points: vec![(1.0, 1.0), (2.0, end)],
            ranges: vec![(1.0, 1.0), (end - 0.5, end + 0.5)],
            marks: Some(vec!["one".into(), "two".into()]),
            ..Series::default()
        };
        let svg = chart(vec![line(0, "A", 1.8), line(1, "B <b>", 1.8)]).draw();
        for part in
            [">A</text>", ">B &lt;b&gt;</text>", ">ideal</text>", "<title>two</title>", "role=\"img\"", "<desc>"]
        {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("<b>"));
        assert!(chart(Vec::new()).is_empty());
        assert!(!chart(Vec::new()).draw().contains("NaN"));
    }

    #[test]
    fn names_never_cover_each_other() {
        let mut svg = Svg::new(HEIGHT);
        names(&mut svg, (0..9).map(|index| ((300.0, 100.0), format!("run {index}"), "name".into())).collect());
        let svg = svg.finish("", "");
        let mut heights: Vec<f64> =
            svg.split(" y=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
        heights.sort_by(f64::total_cmp);
        assert_eq!(heights.len(), 9);
        assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= LABEL - 0.1), "{heights:?}");
    }
}
