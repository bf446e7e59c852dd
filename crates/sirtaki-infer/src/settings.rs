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
    /// The number of the object that each voxel belongs to: connected voxels of one class, over the whole volume.
    Labels,
}

impl Content {
    /// All of them, by name.
    pub const ALL: [(&'static str, Content); 4] = [
        ("values", Content::Values),
        ("argmax", Content::Argmax),
        ("probabilities", Content::Probabilities),
        ("labels", Content::Labels),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, content)| *content == self).map_or("", |(name, _)| name)
    }

    /// Whether it is a single whole number for each voxel, whatever the network's channels.
    pub fn is_number(self) -> bool {
        matches!(self, Content::Argmax | Content::Labels)
    }
}

/// What all voxels of the input are scaled by, from statistics of the whole volume; channels each for themselves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalise {
    /// To mean 0 and standard deviation 1.
    Mean,
    /// So that these two percentiles become 0 and 1.
    Percentiles(f64, f64),
}

/// Everything that is asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
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
    /// Whether normalisation over a whole sample gets statistics of the whole volume, gathered beforehand.
    #[serde(default)]
    pub global_statistics: bool,
    /// The part of a window by which windows overlap, where they are to be blended instead of tiles to be exact.
    #[serde(default)]
    pub blend: Option<f64>,
    /// What the network is given at a time, where windows are blended.
    #[serde(default)]
    pub window: Option<Extent>,
    /// What the input is scaled by.
    #[serde(default)]
    pub normalise: Option<Normalise>,
    /// Whether voxels that are not numbers are given to the network.
    pub allow_nan: bool,
    /// Whether an output that exists is replaced.
    pub replace: bool,
}
