//! What is asked for.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sirtaki_volume::{Extent, format::Choices};

/// What is written of what the network gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    /// Its values as they are.
    #[default]
    Values,
    /// The channel with the largest value, at each voxel.
    Argmax,
    /// Values between 0 and 1: softmax over the channels, or the logistic function of a single one.
    Probabilities,
}

impl Content {
    /// All of them, by name.
    pub const ALL: [(&'static str, Content); 3] =
        [("values", Content::Values), ("argmax", Content::Argmax), ("probabilities", Content::Probabilities)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, content)| *content == self).map_or("", |(name, _)| name)
    }
}

/// Everything that is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The file of the network.
    pub model: PathBuf,
    /// The volume that is read.
    pub input: PathBuf,
    /// The volume that is written.
    pub output: PathBuf,
    /// What the input's file does not say itself.
    pub choices: Choices,
    /// What is written.
    pub content: Content,
    /// The channels of the input that the network is given, in this order; all of them if nothing is said.
    pub channels: Option<Vec<u64>>,
    /// The part of the output that is wanted: the first voxel and the one behind the last, along each axis of space.
    pub region: Option<Vec<(u64, Option<u64>)>>,
    /// A volume that is zero where nothing is wanted.
    pub mask: Option<PathBuf>,
    /// What a tile writes, if it is not to be chosen.
    pub tile: Option<Extent>,
    /// The chunks of the output, if they are not those of the input.
    pub chunk: Option<Extent>,
    /// The error that is accepted for smaller halos, in standard deviations of the output.
    pub tolerance: Option<f64>,
    /// Whether normalisation over a whole sample is accepted to be that of a tile.
    pub inexact: bool,
    /// Whether voxels that are not numbers are given to the network.
    pub allow_nan: bool,
    /// Whether an output that exists is replaced.
    pub replace: bool,
}
