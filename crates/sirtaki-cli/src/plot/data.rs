//! A chart as data, beside its drawing: what the script needs to draw it again, with other axes or fewer lines.

use serde_json::{Value, json};

use super::{
    Chart, Scale, Series, WIDTH,
    axis::Axis,
    chart::SIDES,
    svg::{COLOURS, dashes, shape},
};
use crate::commands::report::words::visible;

impl Chart {
    /// JSON that may stand inside an element of HTML: no letter of it can end that element.
    pub(crate) fn data(&self) -> String {
        let frame = self.frame();
        let guides: Vec<Value> =
            self.guides.iter().map(|guide| json!({ "name": visible(&guide.name), "at": guide.at })).collect();
        let data = json!({
            "frame": { "left": SIDES.0, "top": SIDES.1, "bottom": SIDES.2, "right": round(frame.right), "width": WIDTH },
            "x": axis(self.x, self.from_zero.0, &frame.x),
            "y": axis(self.y, self.from_zero.1, &frame.y),
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
            "guides": guides,
        });
        data.to_string().replace('<', "\\u003c")
    }
}

fn axis((name, scale): (&str, Scale), from_zero: bool, axis: &Axis) -> Value {
    let (low, high) = axis.ends();
    json!({
        "name": name,
        "scale": scale.name(),
        "zero": from_zero,
        "log": axis.is_logarithmic(),
        "ends": [round(low), round(high)],
    })
}

fn series(series: &Series) -> Value {
    let full = if series.full_name.is_empty() { &series.name } else { &series.full_name };
    let pairs =
        |pairs: &[(f64, f64)]| pairs.iter().map(|pair| json!([round(pair.0), round(pair.1)])).collect::<Vec<_>>();
    json!({
        "name": visible(&series.name),
        "full": visible(full),
        "key": series.key,
        "colour": series.style % COLOURS,
        "dashes": dashes(series.style),
        "shape": shape(series.style),
        "points": pairs(&series.points),
        "ranges": pairs(&series.ranges),
        "tips": series.marks.as_ref().map(|tips| tips.iter().map(|tip| visible(tip)).collect::<Vec<_>>()),
        "faint": series.faint,
        "loose": series.loose,
        "noisy": series.noisy,
    })
}

/// Six digits are more than a screen can show.
fn round(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Guide;

    #[test]
    fn data_has_what_was_drawn_and_cannot_end_its_element() {
        let line = Series {
            name: "</script><b>".into(),
            full_name: "A seed 1\u{202e}".into(),
            style: 9,
            points: vec![(0.0, 1.0 / 3.0), (2.0, 40.0)],
            ranges: vec![(0.1, 0.5), (30.0, 50.0)],
            marks: Some(vec!["<one>".into(), "two".into()]),
            key: Some(3),
            ..Series::default()
        };
        let chart = Chart {
            title: "Loss".into(),
            x: ("time", Scale::Time),
            y: ("loss", Scale::Wide),
            from_zero: (true, false),
            series: vec![line],
            guides: vec![Guide { name: "goal".into(), at: (0.5, 0.0) }],
        };
        let text = chart.data();
        assert!(!text.contains('<'), "{text}");
        let data: Value = serde_json::from_str(&text).unwrap();
        let time = json!({ "name": "time", "scale": "time", "zero": true, "log": false, "ends": [0.0, 2.0] });
        let loss = json!({ "name": "loss", "scale": "number", "zero": false, "log": true, "ends": [0.1, 100.0] });
        assert_eq!((&data["x"], &data["y"]), (&time, &loss));
        let series = &data["series"][0];
        assert_eq!((&series["name"], &series["full"]), (&json!("</script><b>"), &json!("A seed 1\u{fffd}")));
        assert_eq!(series["points"], json!([[0.0, 0.333333], [2.0, 40.0]]));
        assert_eq!((&series["ranges"][1], &series["tips"][0]), (&json!([30.0, 50.0]), &json!("<one>")));
        assert_eq!((&series["key"], &series["colour"]), (&json!(3), &json!(1)));
        assert_eq!(data["guides"][0], json!({ "name": "goal", "at": [0.5, 0.0] }));
    }
}
