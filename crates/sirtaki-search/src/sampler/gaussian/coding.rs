//! Points as coordinates for the kernel.
//!
//! An ordered parameter is one coordinate. A choice is one coordinate per alternative, so that all are equally far from
//! each other. In a conditional space each parameter has one more coordinate, which says whether it is there; one that
//! is not sits at a place of its own, in the middle of the others and off to the side. Values of integers, of steps and
//! of choices are those that can really be tried, so the kernel never sees anything between them.

use std::f64::consts::FRAC_1_SQRT_2;

use crate::space::{Point, Space};

/// How far off to the side a parameter is that does not exist.
const ASIDE: f64 = 0.5;

/// The translation of points of one space.
#[derive(Debug, Clone)]
pub(super) struct Coding {
    /// The parameter of each coordinate.
    pub(super) owners: Vec<usize>,
    /// The coordinate that holds the value of an ordered parameter, or the first one of a choice.
    pub(super) places: Vec<usize>,
    conditional: bool,
}

impl Coding {
    pub(super) fn new(space: &Space) -> Self {
        let conditional = space.is_conditional();
        let (mut owners, mut places) = (Vec::new(), Vec::new());
        for (index, parameter) in space.parameters().iter().enumerate() {
            let width = if parameter.domain.is_choice() { parameter.domain.count().unwrap_or(1) as usize } else { 1 };
            owners.extend(std::iter::repeat_n(index, usize::from(conditional)));
            places.push(owners.len());
            owners.extend(std::iter::repeat_n(index, width));
        }
        Self { owners, places, conditional }
    }

    /// The coordinates of a point.
    pub(super) fn encode(&self, space: &Space, point: &Point) -> Vec<f64> {
        let mut coordinates = vec![0.0; self.owners.len()];
        for ((parameter, value), &place) in space.parameters().iter().zip(&point.0).zip(&self.places) {
            let Some(value) = *value else { continue };
            if self.conditional {
                coordinates[place - 1] = ASIDE;
            }
            if parameter.domain.is_choice() {
                coordinates[place + value as usize] = FRAC_1_SQRT_2;
            } else {
                coordinates[place] = parameter.domain.to_unit(value) - 0.5;
            }
        }
        coordinates
    }
}
