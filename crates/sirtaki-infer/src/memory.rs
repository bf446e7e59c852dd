//! How much memory a process needs for a tile.
//!
//! While one tile is computed, the next one is read and the one before is written. The activations of the network are
//! counted from its graph; libraries need some more than that for what they rearrange, and to be what they are.

use sirtaki_volume::Extent;

use crate::Network;

/// What a process needs without any tile: the program, its libraries, and their own buffers.
const PROCESS: u64 = 96 << 20;
/// Values that are assumed to exist at once for each voxel of a window, where the graph does not tell.
const FEATURES: u64 = 64;
/// Values of single precision.
const VALUE: u64 = 4;

/// Everything that memory is needed for.
#[derive(Clone, Copy)]
pub struct Needs<'a> {
    /// The network.
    pub network: &'a dyn Network,
    /// The whole volume, along the axes of space.
    pub space: &'a Extent,
    /// Channels that are read.
    pub channels: u64,
    /// Bytes of a voxel of the input.
    pub read: u64,
    /// Channels that the network gives.
    pub given: u64,
    /// Bytes that are written for each voxel of the output.
    pub written: u64,
    /// What the network is given at a time, where windows are blended.
    pub window: Option<&'a Extent>,
}

impl std::fmt::Debug for Needs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Needs").field("channels", &self.channels).finish_non_exhaustive()
    }
}

impl Needs<'_> {
    /// Bytes for tiles that read and write so much.
    pub fn bytes(&self, read: &Extent, core: &Extent) -> u64 {
        let (inside, outside) = (read.voxels(), core.voxels());
        let times = |voxels: u64, bytes: u64| voxels.saturating_mul(bytes);
        // The input of the tile itself belongs to the activations.
        let at_once = self.window.unwrap_or(read);
        let activations = self.network.values_at_once(self.channels, self.space, at_once);
        let assumed = if self.window.is_some() { FEATURES } else { 2 * (self.channels + self.given) };
        let activations = activations.unwrap_or_else(|| times(at_once.voxels(), assumed));
        let ahead = times(inside, self.channels * (VALUE + self.read));
        let behind = times(outside, 2 * self.given * VALUE + 2 * self.written);
        // Windows are cut out of what was read, and added up in double precision.
        let blended = match self.window {
            Some(_) => times(inside, self.channels * VALUE) + times(outside, (self.given + 1) * 2 * VALUE),
            None => 0,
        };
        [times(activations, VALUE), ahead, behind, blended].into_iter().fold(PROCESS, u64::saturating_add)
    }
}
