//! A tile on its way through the network: read and scaled, computed, and cut to its core.
//!
//! One tile is one run of an exact network. Where windows are blended, a tile computes all windows that meet its core. Those
//! at its borders are computed by its neighbours too: that costs time, but every tile stays independent of all others, and
//! the result of who computes what.

use sirtaki_volume::{Region, VolumeError, blend::Windows, grid::plan::Tile};

use crate::{InferError, Job, Model, sink::crop, source::Source};

/// The values of a region of the input as the network is to see them.
pub(crate) fn read(job: &Job, source: &Source, region: &Region) -> Result<Vec<f32>, VolumeError> {
    let mut values = source.read(region, &job.channels)?;
    if !job.settings.allow_nan {
        source.check_numbers(&values, region)?;
    }
    if let Some(scaling) = &job.scaling {
        let each = values.chunks_exact_mut(region.voxels() as usize);
        each.zip(scaling).for_each(|(channel, scaling)| scaling.apply(channel));
    }
    Ok(values)
}

/// What the network gives for the core of a tile: the channels, and their values.
pub(crate) fn compute(
    job: &Job,
    model: &mut dyn Model,
    tile: &Tile,
    mut values: Vec<f32>,
) -> Result<(usize, Vec<f32>), InferError> {
    match job.windows()? {
        Some(windows) => blend(job, model, tile, (&windows, &values)),
        None => run(model, &sizes(job, tile.read.size()), &mut values, &tile.crop),
    }
}

/// Runs the network and keeps a region of what it gives.
pub(crate) fn run(
    model: &mut dyn Model,
    sizes: &[u64],
    values: &mut [f32],
    region: &Region,
) -> Result<(usize, Vec<f32>), InferError> {
    let mut kept = (0, Vec::new());
    let mut keep = |sizes: &[u64], values: &[f32]| {
        kept = crop(sizes, values, region)?;
        Ok(())
    };
    model.run(sizes, values, &mut keep)?;
    Ok(kept)
}

fn blend(
    job: &Job,
    model: &mut dyn Model,
    tile: &Tile,
    (windows, values): (&Windows, &[f32]),
) -> Result<(usize, Vec<f32>), InferError> {
    let channels = job.reach.channels as usize;
    let mut sum = windows.sum(&tile.core, channels)?;
    for window in windows.meeting(&tile.core) {
        let part = window.relative_to(&tile.read);
        let mut input = crop(&sizes(job, tile.read.size()), values, &part)?.1;
        let all = Region::between(&vec![0; window.axes()], window.size());
        let (_, given) = run(model, &sizes(job, window.size()), &mut input, &all)?;
        sum.add(&window, &given)?;
    }
    Ok((channels, sum.finish()?))
}

/// The sizes of a region with the channels that are read.
pub(crate) fn sizes(job: &Job, space: &[u64]) -> Vec<u64> {
    [job.channels.len() as u64].into_iter().chain(space.iter().copied()).collect()
}
