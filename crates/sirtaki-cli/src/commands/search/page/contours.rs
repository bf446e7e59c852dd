//! Values over two parameters at a time, for the pairs of those that matter most.
//!
//! Between trials the surface is their mean, weighted by how near they are; it passes through what was measured as far as
//! trials agree, and needs no model that could be wrong. Where all values are positive, means are those of logarithms.

use sirtaki_search::{
    importance::importance,
    space::{Domain, Parameter},
    study::Study,
};

use super::figures::{BEST, ranked, tip};
use crate::{
    commands::report::figures::Figure,
    plot::{Contour, Marked, Upright},
    study::{summary, template},
};

/// Parameters that are paired.
const PAIRED: usize = 3;
/// Fewer trials than this say nothing about a surface.
const FEWEST: usize = 5;
/// Places along each side.
const GRID: usize = 25;
/// Distance up to which a trial counts as much as at its own place.
const NEAR: f64 = 0.03;
/// Most marks.
const MOST_MARKS: usize = 400;

/// The figures.
pub(super) fn contours(study: &Study) -> Vec<Figure> {
    let definition = study.definition();
    let shares = importance(&definition.space, study.history(), 0, definition.seed);
    let mut numbers: Vec<(&Parameter, f64)> = definition
        .space
        .parameters()
        .iter()
        .zip(shares)
        .filter(|(known, _)| !known.domain.is_choice() && known.domain.count() != Some(1))
        .collect();
    numbers.sort_by(|a, b| b.1.total_cmp(&a.1));
    numbers.truncate(PAIRED);
    let pairs = (0..numbers.len()).flat_map(|first| (first + 1..numbers.len()).map(move |second| (first, second)));
    pairs.filter_map(|(first, second)| contour(study, numbers[first].0, numbers[second].0)).collect()
}

fn contour(study: &Study, across: &Parameter, up: &Parameter) -> Option<Figure> {
    let mut marks = Vec::new();
    let mut values = Vec::new();
    for (rank, (trial, value)) in ranked(study).into_iter().enumerate() {
        let at = |known: &Parameter| Some(known.domain.to_unit(trial.setting(&known.name)?.value));
        let (Some(x), Some(y)) = (at(across), at(up)) else { continue };
        values.push(((x, y), value));
        if marks.len() < MOST_MARKS {
            marks.push(Marked { place: (x, y), best: rank < BEST, tip: tip(trial, value) });
        }
    }
    if values.len() < FEWEST {
        return None;
    }
    let positive = values.iter().all(|(_, value)| *value > 0.0);
    let place = |index: usize| index as f64 / (GRID - 1) as f64;
    let row = |y: usize| (0..GRID).map(|x| surface(&values, (place(x), place(y)), positive)).collect();
    let title = format!("{} and {}", across.name, up.name);
    let plot = Contour {
        title: title.clone(),
        axes: (axis(across), axis(up)),
        field: (0..GRID).map(row).collect(),
        marks,
        show: summary::short,
    };
    let objective = &study.definition().objectives[0].name;
    let note = format!("Lines of equal {objective} between the trials, whatever their other parameters were.");
    Some(Figure::new(title, note, plot.draw()))
}

fn axis(known: &Parameter) -> Upright {
    let end = |unit: f64| match &known.domain {
        Domain::Float { .. } => summary::short(known.domain.from_unit(unit)),
        domain => template::word(domain, domain.from_unit(unit)),
    };
    Upright { name: known.name.clone(), ends: (end(0.0), end(1.0)) }
}

/// The mean of all values, weighted by nearness.
fn surface(values: &[((f64, f64), f64)], (x, y): (f64, f64), logarithmic: bool) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for ((left, low), value) in values {
        let square = (x - left).powi(2) + (y - low).powi(2) + NEAR * NEAR;
        let weight = square.powf(-1.5);
        sum += weight * if logarithmic { value.ln() } else { *value };
        weights += weight;
    }
    let mean = sum / weights;
    if logarithmic { mean.exp() } else { mean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_surface_is_near_what_was_measured() {
        let values = [((0.0, 0.0), 1.0), ((1.0, 1.0), 100.0)];
        for logarithmic in [false, true] {
            assert!((surface(&values, (0.0, 0.0), logarithmic) - 1.0).abs() < 0.02);
        }
        assert!((surface(&values, (0.5, 0.5), true) - 10.0).abs() < 1e-9);
        assert!((surface(&values, (0.5, 0.5), false) - 50.5).abs() < 1e-9);
    }
}
