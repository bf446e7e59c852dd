//! Statistics of a whole volume, gathered tile by tile in a first pass.
//!
//! What a network was trained on was scaled by the volume's own percentiles or by its mean and standard deviation. A tile's
//! own would differ from tile to tile and show at every seam, so they are gathered over everything first. Each worker
//! gathers its part, and parts are merged. All sums are exact, so the result depends neither on the number of workers nor
//! on the order of tiles: the same volume always gives the same bits.
//!
//! - [`moments`]: mean and standard deviation, from exact sums.
//! - [`histogram`]: percentiles. Exact in one pass for whole numbers of up to 16 bits; for other numbers the pass gives
//!   bounds, and a second one the exact value.
//! - [`Scaling`]: what is done to each voxel.

pub mod histogram;
pub mod moments;

use serde::{Deserialize, Serialize};

use crate::VolumeError;
use moments::Moments;

/// What is done to each voxel before the network sees it: `(value − shift) / scale`, perhaps clipped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// What is subtracted.
    pub shift: f64,
    /// What is divided by.
    pub scale: f64,
    /// Between which values the result is kept.
    pub clip: Option<(f32, f32)>,
}

impl Scaling {
    /// To mean 0 and standard deviation 1.
    pub fn standard(moments: &Moments) -> Result<Self, VolumeError> {
        let (mean, deviation) = (moments.mean()?, moments.deviation()?);
        Ok(Self { shift: mean, scale: nonzero(deviation)?, clip: None })
    }

    /// So that these two values become 0 and 1; with `clip`, what lies outside becomes 0 or 1 too.
    pub fn between(low: f64, high: f64, clip: bool) -> Result<Self, VolumeError> {
        Ok(Self { shift: low, scale: nonzero(high - low)?, clip: clip.then_some((0.0, 1.0)) })
    }

    /// Applies it to voxels in place.
    pub fn apply(&self, values: &mut [f32]) {
        for value in values {
            let scaled = ((f64::from(*value) - self.shift) / self.scale) as f32;
            *value = match self.clip {
                Some((low, high)) if !scaled.is_nan() => scaled.clamp(low, high),
                _ => scaled,
            };
        }
    }
}

/// A volume in which all voxels are alike cannot be scaled.
fn nonzero(scale: f64) -> Result<f64, VolumeError> {
    match scale.is_finite() && scale > 0.0 {
        true => Ok(scale),
        false => Err(VolumeError::refused(
            "all voxels that count have the same value: there is nothing to scale by",
            "is it the right volume, and the right channel? Otherwise leave out the scaling, or give it in numbers",
        )),
    }
}

#[cfg(test)]
mod tests;
