//! How far a network looks, and in which steps it moves: found from its graph, not asked for.
//!
//! Every operator of a convolutional network looks at an interval of its input along each axis. Going through the graph
//! from the output to the input, with the union where paths meet, gives the voxels of the volume that a stretch of the
//! output depends on, exactly: one less and some voxel of the core sees padding instead of data. Forwards, each strided
//! operator widens the grid on which tiles may begin.
//!
//! All of it is done for the sizes of the volume at hand. Real graphs compute shapes while they run (`Shape`, `Slice`, a
//! `Resize` to the size of another tensor) and padding that depends on the size; with known sizes these are plain
//! numbers. That a tile is treated like the volume is then checked, by looking at the graph once more for a volume that
//! is one step larger: it must differ in sizes alone.
//!
//! Some operators look at everything: normalisation over a whole sample, global pooling, attention, interpolation with
//! aligned corners. No tile can be exact for them; the error names the operator and the ways out.
//!
//! That everything needed is read makes a tile equal to the whole, but equal in every bit only with a library that adds in
//! the same order whatever the shape. ONNX Runtime does on processors, as far as measured. oneDNN, which PyTorch uses, picks another kernel for
//! some shapes, so there the last bit may differ; the [`probe`] tells.
//!
//! - [`along`]: what an operator does along one axis.
//! - [`mod@network`]: operators put together, by hand or from a file.
//! - [`onnx`]: ONNX files, read. `lower` turns one into a [`Network`].
//! - [`probe`]: the result checked by numbers, with the network itself.

pub mod along;
mod lower;
pub mod network;
pub mod onnx;
pub mod probe;
mod solve;

use std::{fs, path::Path};

pub use solve::Reach;

use crate::{VolumeError, grid::region::Extent};
use network::Network;
use onnx::OnnxModel;

/// Where the axes of a network's input are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The size of each axis, channels and batch included.
    pub shape: Vec<u64>,
    /// Which of them are those of space, in the volume's order.
    pub spatial: Vec<usize>,
}

impl Layout {
    /// One sample of so many channels, followed by the axes of space: what most networks take.
    pub fn channels_first(channels: u64, space: &Extent) -> Self {
        let shape: Vec<u64> = [1, channels].into_iter().chain(space.sizes().iter().copied()).collect();
        let spatial = (2..shape.len()).collect();
        Self { shape, spatial }
    }
}

/// Reads the description of a network from a file.
pub fn open(path: &Path) -> Result<OnnxModel, VolumeError> {
    let bytes = fs::read(path).map_err(VolumeError::io(path))?;
    let problem = |problem: String| VolumeError::format(path, problem, "is it a complete ONNX file?");
    OnnxModel::parse(&bytes).map_err(problem)
}

/// The operators of a network that is fed with a volume of this layout.
pub fn network(model: &OnnxModel, layout: &Layout) -> Result<Network, VolumeError> {
    lower::lower(model, layout)
}

/// How far a network looks when it is fed with a volume of this layout. For one with a fixed input, this is the layout of
/// a tile.
pub fn of_onnx(model: &OnnxModel, layout: &Layout) -> Result<Reach, VolumeError> {
    let network = network(model, layout)?;
    let reach = network.reach()?;
    let fixed = lower::sole_input(model)?
        .sizes
        .as_ref()
        .is_some_and(|sizes| layout.spatial.iter().any(|axis| sizes.get(*axis).copied().flatten().is_some()));
    if !fixed {
        let mut larger = layout.clone();
        for (axis, halo) in layout.spatial.iter().zip(&reach.halos) {
            larger.shape[*axis] = larger.shape[*axis].saturating_add(halo.input);
        }
        network.same_as(&lower::lower(model, &larger)?)?;
    }
    Ok(Reach { notes: lower::notes(&network), ..reach })
}

#[cfg(test)]
mod tests;
