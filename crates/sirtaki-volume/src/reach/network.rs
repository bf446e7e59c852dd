//! A network as operators along axes, for volumes of one size.
//!
//! Front ends that know a framework's layers describe them here; ONNX files are turned into this too. Sizes are followed
//! while the network is put together, so that a volume that it cannot take is refused with the operator's name.

use super::along::{Along, Ratio};
use crate::VolumeError;

/// A value inside a network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    /// Its size along each axis of space.
    pub(crate) sizes: Vec<u64>,
    /// How many values there are at each place.
    pub(crate) channels: u64,
    /// How many voxels of the volume one of its own is, along each axis.
    pub(crate) scales: Vec<Ratio>,
}

/// An operator of a network.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) operator: String,
    pub(crate) inputs: Vec<usize>,
    pub(crate) along: Vec<Along>,
}

/// Names a value inside a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(pub(crate) usize);

/// A network for volumes of one size.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// The input, and then the result of each step.
    pub(crate) parts: Vec<Part>,
    pub(crate) steps: Vec<Step>,
    pub(crate) output: usize,
}

impl Network {
    /// A network that takes a volume of these sizes, with so many values per voxel, and does nothing to it yet.
    pub fn new(sizes: &[u64], channels: u64) -> (Self, Place) {
        let part = Part { sizes: sizes.to_vec(), channels, scales: vec![Ratio::ONE; sizes.len()] };
        (Self { parts: vec![part], steps: Vec::new(), output: 0 }, Place(0))
    }

    /// Adds an operator, which becomes the output: `operator` is its kind (`Conv`), `name` its own. Several inputs are
    /// joined voxel by voxel, by concatenation or addition. `channels` is how many values each voxel has afterwards.
    pub fn add(
        &mut self,
        (operator, name): (&str, &str),
        inputs: &[Place],
        along: &[Along],
        channels: u64,
    ) -> Result<Place, VolumeError> {
        let said = format!("`{name}` ({operator})");
        let Some((first, others)) = inputs.split_first() else {
            return Err(VolumeError::Invalid(format!("{said} has no input")));
        };
        let part = &self.parts[first.0];
        for other in others.iter().map(|other| &self.parts[other.0]) {
            if other.sizes != part.sizes || other.scales != part.scales {
                let (one, two) = (listed(&part.sizes), listed(&other.sizes));
                return Err(VolumeError::refused(
                    format!("{said} joins {one} and {two} voxels: the network cannot take a volume of this size"),
                    "pad the volume to a multiple of the network's stride",
                ));
            }
        }
        if along.len() != part.sizes.len() || !along.iter().all(Along::is_reasonable) {
            return Err(VolumeError::Invalid(format!("{said} has impossible settings: {along:?}")));
        }
        let (mut sizes, mut scales) = (Vec::new(), Vec::new());
        for ((along, size), scale) in along.iter().zip(&part.sizes).zip(&part.scales) {
            let small = || {
                let problem = format!("{said} gets {} voxels, which is too few for it", listed(&part.sizes));
                VolumeError::refused(problem, "the volume is smaller than the network needs: pad it")
            };
            sizes.push(along.size(*size).ok_or_else(small)?);
            let scale = along.scale().and_then(|by| scale.times(by));
            let far = || VolumeError::Invalid(format!("{said} changes the scale too much"));
            scales.push(scale.ok_or_else(far)?);
        }
        self.parts.push(Part { sizes, channels, scales });
        let inputs = inputs.iter().map(|place| place.0).collect();
        self.steps.push(Step { name: name.to_owned(), operator: operator.to_owned(), inputs, along: along.to_vec() });
        self.output = self.steps.len();
        Ok(Place(self.output))
    }

    /// Takes another value than the last one for the output.
    pub fn set_output(&mut self, place: Place) {
        self.output = place.0;
    }

    /// The sizes of a value along the axes of space.
    pub fn sizes(&self, place: Place) -> &[u64] {
        &self.parts[place.0].sizes
    }

    /// Whether the same network for another size differs in sizes alone; otherwise what a tile gives depends on its size.
    pub(crate) fn same_as(&self, larger: &Network) -> Result<(), VolumeError> {
        let differs = self.steps.iter().zip(&larger.steps).find(|(one, two)| one != two);
        let (name, operator) = match differs {
            Some((one, _)) => (&one.name, &one.operator),
            None if self.steps.len() == larger.steps.len() => return Ok(()),
            None => return Err(VolumeError::Invalid("the network has other operators for other sizes".to_owned())),
        };
        let sizes = listed(&self.parts[0].sizes);
        Err(VolumeError::Inexact {
            problem: format!("`{name}` ({operator}) does something else for {sizes} voxels than for a step more: no tile equals the whole"),
            hint: "pad the volume to a multiple of the network's stride, or export the network with scale factors instead of \
                   sizes"
                .to_owned(),
        })
    }
}

pub(crate) fn listed(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" × ")
}
