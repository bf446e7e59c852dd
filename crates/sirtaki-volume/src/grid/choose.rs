//! The largest tiles that fit the memory.
//!
//! What a tile's halo costs falls with the tile's size, so tiles grow until the memory is used: always by one chunk, along
//! the axis where that saves most. Then all tiles along an axis get about the same size: of 192 voxels, two tiles of 96 need less
//! memory than one of 160 and one of 32, are read with as much around them, and keep two workers busy equally long. What a
//! tile needs is the caller's formula, because only the caller knows the network and who computes it.

use super::{
    plan::{Plan, PlanSpec},
    region::Extent,
};
use crate::VolumeError;

/// What limits the size of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one tile may need.
    pub memory: u64,
    /// Tiles that there should be at least, so that all workers have something to do. A volume of fewer chunks has fewer.
    pub tiles: u64,
}

/// The plan with the least recomputation whose tiles need no more than the memory there is. The core that `spec` names is
/// not looked at. `needs` gives the bytes that a tile takes: for what is read, and for what is written.
pub fn choose(
    spec: PlanSpec,
    limits: Limits,
    mut needs: impl FnMut(&Extent, &Extent) -> u64,
) -> Result<Plan, VolumeError> {
    let mut core: Vec<u64> = clamp(&spec.chunk, &spec.output);
    let mut best = plan_with(&spec, &core)?;
    let least = needs(&best.largest_read(), &best.spec().core);
    if least > limits.memory {
        let (chunk, read, there) = (&spec.chunk, best.largest_read(), limits.memory);
        return Err(VolumeError::refused(
            format!(
                "a tile of one chunk ({chunk}) is read as {read} voxels and needs {least} bytes; there are {there}"
            ),
            "give it more memory, use fewer workers, write smaller chunks, or accept a smaller halo",
        ));
    }
    loop {
        let mut found: Option<(Plan, Vec<u64>)> = None;
        for axis in 0..core.len() {
            let mut grown = core.clone();
            grown[axis] = grown[axis].saturating_add(spec.chunk.sizes()[axis]).min(spec.output.sizes()[axis]);
            if grown[axis] == core[axis] {
                continue;
            }
            // A model with a fixed input allows no larger core.
            let Ok(plan) = plan_with(&spec, &evened(&grown, &spec)) else { continue };
            let fits = plan.tiles() >= limits.tiles && needs(&plan.largest_read(), &plan.spec().core) <= limits.memory;
            if fits && found.as_ref().is_none_or(|(other, _)| gain(&plan) < gain(other)) {
                found = Some((plan, grown));
            }
        }
        match found {
            Some((plan, grown)) => (best, core) = (plan, grown),
            None => return Ok(best),
        }
    }
}

/// Growing never makes more work, but along one axis alone it may make no less; then the smaller tile grows.
fn gain(plan: &Plan) -> (u128, u64) {
    (plan.voxels_read(), plan.spec().core.sizes().iter().copied().max().unwrap_or(0))
}

/// The smallest cores of which there are no more than of these.
fn evened(core: &[u64], spec: &PlanSpec) -> Vec<u64> {
    let even = |axis: usize| {
        let (all, chunk) = (spec.output.sizes()[axis], spec.chunk.sizes()[axis]);
        all.div_ceil(all.div_ceil(core[axis])).next_multiple_of(chunk).min(all)
    };
    (0..core.len()).map(even).collect()
}

fn plan_with(spec: &PlanSpec, core: &[u64]) -> Result<Plan, VolumeError> {
    Plan::new(PlanSpec { core: Extent::new(core)?, ..spec.clone() })
}

fn clamp(chunk: &Extent, output: &Extent) -> Vec<u64> {
    chunk.sizes().iter().zip(output.sizes()).map(|(chunk, all)| *chunk.min(all)).collect()
}
