//! Points as vectors for samplers that think in vectors.
//!
//! There are two forms. The *unit* form has one coordinate in `[0, 1]` per parameter. The *encoded* form has one
//! coordinate per ordered parameter and one per choice of a categorical one, so that all choices are equally far
//! from each other; distances in it make sense.

use std::ops::Range;

use super::{Point, Space};

/// Which coordinates of the encoded form belong to which parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    ranges: Vec<Range<usize>>,
    width: usize,
}

impl Layout {
    /// The coordinates of a parameter.
    pub fn range(&self, parameter: usize) -> Range<usize> {
        self.ranges[parameter].clone()
    }

    /// How many coordinates there are.
    pub fn width(&self) -> usize {
        self.width
    }
}

impl Space {
    /// How the encoded form is laid out.
    pub fn layout(&self) -> Layout {
        let mut width = 0;
        let ranges = self.parameters().iter().map(|parameter| {
            let coordinates =
                if parameter.domain.is_choice() { parameter.domain.count().unwrap_or(1) as usize } else { 1 };
            width += coordinates;
            width - coordinates..width
        });
        let ranges = ranges.collect();
        Layout { ranges, width }
    }

    /// The unit form of a point: none where a parameter is off.
    pub fn to_unit(&self, point: &Point) -> Vec<Option<f64>> {
        let unit =
            |(index, value): (usize, &Option<f64>)| value.map(|value| self.parameters()[index].domain.to_unit(value));
        point.0.iter().enumerate().map(unit).collect()
    }

    /// The point at a place in the unit cube, with one coordinate per parameter. Those of parameters that are off
    /// do not count.
    pub fn from_unit(&self, unit: &[f64]) -> Point {
        self.fill(|index, _| self.parameters()[index].domain.from_unit(unit[index]))
    }

    /// The encoded form of a point. The coordinates of parameters that are off are those of the middle of their domain:
    /// 0.5, and equal parts for choices.
    pub fn encode(&self, point: &Point) -> Vec<f64> {
        let mut encoded = Vec::new();
        for (parameter, value) in self.parameters().iter().zip(&point.0) {
            if parameter.domain.is_choice() {
                let choices = parameter.domain.count().unwrap_or(1) as usize;
                encoded.extend((0..choices).map(|choice| match value {
                    Some(value) => f64::from(u8::from(*value == choice as f64)),
                    None => 1.0 / choices as f64,
                }));
            } else {
                encoded.push(value.map_or(0.5, |value| parameter.domain.to_unit(value)));
            }
        }
        encoded
    }

    /// The point whose encoded form is nearest: of a parameter's choices the one with the largest coordinate.
    pub fn decode(&self, encoded: &[f64]) -> Point {
        let layout = self.layout();
        self.fill(|index, _| {
            let coordinates = &encoded[layout.range(index)];
            let domain = &self.parameters()[index].domain;
            if domain.is_choice() {
                let largest = (0..coordinates.len()).rev().max_by(|&a, &b| coordinates[a].total_cmp(&coordinates[b]));
                largest.unwrap_or(0) as f64
            } else {
                domain.from_unit(coordinates[0])
            }
        })
    }
}
