//! What computes a tile, behind one trait.
//!
//! A model takes values of one sample, channels first, followed by the axes of space, and hands its result to whoever
//! asked: the memory of the result belongs to the model's own library, so that a tile's core is cut out of it without a copy
//! of the whole.

use sirtaki_volume::{Extent, reach::Reach};

use crate::InferError;

/// What is known of a model without a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// How many axes of space its input has.
    pub axes: usize,
    /// How many channels it takes, where that is fixed.
    pub channels: Option<u64>,
    /// The sizes along the axes of space, where they are fixed.
    pub fixed: Option<Extent>,
}

/// What hears the result of a tile: its sizes, channels first, and its values.
pub type Heard<'a> = dyn FnMut(&[u64], &[f32]) -> Result<(), InferError> + 'a;

/// A network that can be run on any part of a volume.
pub trait Model {
    /// What is known of it without a volume.
    fn facts(&self) -> &Facts;

    /// Computes values of these sizes, channels first.
    fn run(&mut self, sizes: &[u64], values: &mut [f32], out: &mut Heard<'_>) -> Result<(), InferError>;
}

/// What is known of a model for a volume of one size.
pub trait Network {
    /// How far it looks when it is given so many channels and voxels.
    fn reach(&self, channels: u64, space: &Extent) -> Result<Reach, InferError>;

    /// The most values that it keeps at once for a tile of these sizes; nothing where that is not known.
    fn values_at_once(&self, channels: u64, space: &Extent, tile: &Extent) -> Option<u64>;
}
