//! Which part of a volume is computed when, and how much is read for it.
//!
//! A tile is a *core*, which it writes, and a *read* region around it. Cores are whole chunks of the output (or whole
//! shards, where chunks are stored in those), so no two tiles ever write one file, and writers need no lock. What is
//! read is the core and the halo that the network needs, rounded outwards so that
//!
//! - it begins on a multiple of the network's stride: pooling then groups the same voxels as in the whole volume;
//! - its size is that of the volume modulo the stride: a network that accepts the volume accepts the tile, and rounds
//!   sizes inside the same way;
//! - it ends where the volume ends: what the network pads there is padded in the tile as well.
//!
//! The axes here are the spatial ones. Channels, time and batch are whole in every tile and belong to the caller.
//!
//! - [`region`]: boxes of voxels.
//! - [`halo`]: what one axis of a tile must be read with.
//! - [`plan`]: all tiles of a volume, and what they cost.
//! - [`choose`]: the largest tiles that fit the memory.
//! - [`order`]: which tiles are needed, and an order in which neighbours follow each other.

pub mod choose;
pub mod halo;
pub mod order;
pub mod plan;
pub mod region;

#[cfg(test)]
mod tests;
