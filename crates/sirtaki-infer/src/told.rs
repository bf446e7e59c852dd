//! Networks of which nobody can read the graph, such as a function in Python: how far they look is told, and checked.

use sirtaki_volume::{
    Extent, VolumeError,
    grid::halo::Halo,
    reach::{Reach, probe::Probe},
};

use crate::{Facts, InferError, Model, Network, error::refused};

/// Values that are assumed to exist at once for each voxel.
const FEATURES: u64 = 64;
/// The largest difference between tile and whole that may be rounding, in standard deviations of the output.
const ROUNDING: f64 = 1e-3;
/// Where the random numbers of the check begin.
const SEED: u64 = 20;

/// What is told about a network whose output has the size of its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its facts.
    pub facts: Facts,
    /// How far it looks along each axis.
    pub halo: Vec<u32>,
    /// The steps in which it moves along each axis.
    pub stride: Vec<u32>,
    /// Channels of its output.
    pub given: u64,
}

impl Told {
    /// Computes noise, to find the channels of the output and whether what is told is true.
    pub fn check(mut self, model: &mut dyn Model, channels: u64, space: &Extent) -> Result<Self, InferError> {
        let mut run = |sizes: &[u64], values: &[f32]| {
            let shape: Vec<u64> = [channels].into_iter().chain(sizes.iter().copied()).collect();
            let mut result = (0, Vec::new(), Vec::new());
            let mut keep = |sizes: &[u64], values: &[f32]| {
                result = (sizes[0], sizes[1..].to_vec(), values.to_vec());
                Ok(())
            };
            model.run(&shape, &mut values.to_vec(), &mut keep)?;
            Ok::<_, InferError>(result)
        };
        let steps = |axis: usize| u64::from(self.stride[axis]) * 4 + space.sizes()[axis] % u64::from(self.stride[axis]);
        let sizes: Vec<u64> = (0..space.axes()).map(steps).collect();
        let count = sizes.iter().product::<u64>() * channels;
        let (given, output, _) = run(&sizes, &vec![0.0; count as usize])?;
        if output != sizes {
            return Err(refused(
                format!("the network makes {output:?} voxels of {sizes:?}"),
                "use one whose output has the size of its input, or export it to ONNX",
            ));
        }
        self.given = given;
        let reach = self.reach(channels, space)?;
        let probe = Probe { channels, seed: SEED, sizes };
        let mut sample = |sizes: &[u64], values: &[f32]| {
            let ran = run(sizes, values).map(|(_, sizes, values)| (sizes, values));
            ran.map_err(|error| VolumeError::Invalid(error.to_string()))
        };
        for seen in probe.check(&reach, &mut sample)? {
            if !seen.equal && seen.error > ROUNDING * seen.deviation {
                let (halo, axis) = (self.halo[seen.axis], seen.axis);
                let error = seen.error / seen.deviation;
                return Err(refused(
                    format!(
                        "with a halo of {halo} voxels along axis {axis}, tiles differ from the whole by {error:.1e} standard \
                         deviations of the output"
                    ),
                    "give a larger halo, and the network's stride if it pools; instance and group norm are never exact",
                ));
            }
        }
        Ok(self)
    }
}

impl Network for Told {
    fn reach(&self, _: u64, space: &Extent) -> Result<Reach, InferError> {
        let halos = self.halo.iter().zip(&self.stride).map(|(halo, stride)| Halo::symmetric(*halo, *stride)).collect();
        Ok(Reach { halos, output: space.sizes().to_vec(), channels: self.given, notes: Vec::new() })
    }

    fn values_at_once(&self, _: u64, _: &Extent, tile: &Extent) -> Option<u64> {
        tile.voxels().checked_mul(FEATURES)
    }
}
