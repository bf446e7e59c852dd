//! The tables as one picture: time over size, both logarithmic, one chart per setting.

use sirtaki_cli::plot::{Chart, Scale, Series, picture};

use crate::comm::Table;

/// Name in the tables, and in the picture.
const LINES: [(&str, &str); 6] = [
    ("sirtaki", "sirtaki"),
    ("tcp", "sirtaki"),
    ("shared", "sirtaki, shared"),
    ("openmpi", "Open MPI"),
    ("gloo", "Gloo"),
    ("add", "add in place"),
];

/// The picture.
pub fn svg(tables: &[Table]) -> String {
    picture("Time of an all-reduce over its size", &tables.iter().map(chart).collect::<Vec<_>>())
}

fn chart(table: &Table) -> Chart {
    let series = LINES.iter().enumerate().map(|(style, (name, title))| {
        let columns = |columns: &[crate::comm::Column]| {
            columns.iter().find(|column| column.name == *name).map(|column| column.micros)
        };
        let points = table.rows.iter().filter_map(|row| Some((row.bytes as f64, columns(&row.columns)? / 1e6)));
        Series { name: (*title).into(), style, points: points.collect(), ..Series::default() }
    });
    Chart {
        title: format!("{}: time over bytes per rank", table.setting),
        x: ("bytes per rank", Scale::Bytes),
        y: ("time", Scale::Moments),
        from_zero: (false, false),
        series: series.filter(|series| !series.points.is_empty()).collect(),
        guides: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        comm::{Column, Row},
        goals::Setting,
    };

    #[test]
    fn every_library_has_a_line_and_a_name() {
        let column = |name: &str, micros| Column { name: name.into(), micros, ratio: 1.0, goal: None };
        let row = |bytes| Row {
            bytes,
            columns: vec![column("sirtaki", bytes as f64), column("gloo", 9.0 * bytes as f64)],
            absent: Vec::new(),
        };
        let picture = svg(&[Table { setting: Setting::Shared(2), rows: vec![row(4), row(1024)] }]);
        assert_eq!(picture.matches("<path class=\"line ").count(), 2);
        assert!(picture.contains(">Gloo</text>") && picture.contains(">sirtaki</text>"));
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}
