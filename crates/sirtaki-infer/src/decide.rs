//! From what is asked for to what is done: axes and channels, the halo, the tiles and the output.

use std::path::Path;

use sirtaki_volume::{
    Extent, Region, VolumeError, checksum,
    format::{self, Choices, Dtype, VolumeLayout},
    grid::{
        choose::{Limits, choose},
        halo::Halo,
        order::ordered,
        plan::{Plan, PlanSpec, Reads},
    },
    reach::{Reach, probe::Probe},
};

use crate::{Content, Facts, InferError, Job, Model, Network, Settings, error::refused, memory::Needs, source::Source};

/// The least edge of what one tile writes, where the format of the output would allow less.
const EDGE: u64 = 32;
/// The edge of a window where nothing else is said.
const WINDOW: u64 = 96;
/// Tiles that a worker has at least where tiles are exact.
const CROWD: u64 = 4;
/// Bytes for each voxel while objects are numbered: classes, and labels in several stages.
const LABELLING: u64 = 16;
/// Where the random numbers of probes begin.
const SEED: u64 = 20;

/// What computes, as far as it is there.
pub struct Means<'a> {
    /// What is known of the network.
    pub network: &'a dyn Network,
    /// The network's own facts.
    pub facts: &'a Facts,
    /// Something that differs for another network of the same name.
    pub sum: u64,
    /// The network itself, asked for only where something has to be measured.
    pub model: &'a mut dyn FnMut() -> Result<Box<dyn Model>, InferError>,
}

impl std::fmt::Debug for Means<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Means").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// What a job is, for so much memory per process and at least so many tiles.
pub fn decide(settings: &Settings, means: &mut Means<'_>, limits: Limits) -> Result<Job, InferError> {
    let source = Source::open(&settings.input, &settings.choices)?;
    let channels = source.channels(means.facts, settings.channels.as_deref())?;
    let input = source.extent()?;
    let window = settings.blend.map(|_| window(settings, means.facts, &input)).transpose()?;
    let mut reach = match &window {
        Some(window) => blended(means, channels.len() as u64, window, &input)?,
        None => means.network.reach(channels.len() as u64, &input)?,
    };
    let fixed = means.facts.fixed.clone().filter(|_| window.is_none());
    if let Some(fixed) = &fixed {
        reach.output = output_of_fixed(&reach, &input, fixed)?;
    }
    let exact = reach.clone();
    let error = match settings.tolerance {
        Some(tolerance) => {
            let bounds = Bounds { input: &input, channels: channels.len() as u64, memory: limits.memory };
            Some(tolerate(&mut reach, tolerance, &bounds, means)?)
        }
        None => None,
    };
    let output = Extent::new(reach.output.clone())?;
    let layout = output_layout(settings, source.layout(), &exact, &output)?;
    let spec = PlanSpec {
        chunk: granule(settings, &layout, &exact, &output)?,
        core: output.clone(),
        input,
        halo: reach.halos.clone(),
        reads: fixed.map_or(Reads::Least, Reads::Exactly),
        wanted: settings.region.as_deref().map(|spans| wanted(spans, &output)).transpose()?,
        output,
    };
    let needs = Needs {
        network: means.network,
        space: &spec.input.clone(),
        channels: channels.len() as u64,
        read: source.layout().dtype.size() as u64,
        given: reach.channels,
        written: written(settings.content, layout.dtype, reach.channels),
        window: window.as_ref(),
    };
    // Windows at the borders of tiles are computed by all of them, so tiles that are blended are as large as may be.
    let limits = if window.is_some() { Limits { tiles: limits.tiles.div_ceil(CROWD), ..limits } } else { limits };
    let plan = match &settings.tile {
        Some(tile) => Plan::new(PlanSpec { core: clamp(tile, &spec.output)?, ..spec })?,
        None => choose(spec, limits, |read, core| needs.bytes(read, core))?,
    };
    Ok(Job {
        tiles: settings.mask.as_deref().map(|mask| unmasked(mask, &plan)).transpose()?,
        memory: needs.bytes(&plan.largest_read(), &plan.spec().core),
        spec: plan.spec().clone(),
        settings: settings.clone(),
        channels,
        layout,
        reach: exact,
        error,
        window,
        scaling: None,
        statistics: Vec::new(),
        model_sum: means.sum,
        input_sum: source.sum(),
    })
}

/// Bytes that are needed to write a voxel.
fn written(content: Content, dtype: Dtype, channels: u64) -> u64 {
    match content {
        Content::Labels => LABELLING,
        Content::Argmax => dtype.size() as u64,
        _ => dtype.size() as u64 * channels,
    }
}

/// What the network is given at a time where windows are blended.
fn window(settings: &Settings, facts: &Facts, input: &Extent) -> Result<Extent, InferError> {
    match (&facts.fixed, &settings.window) {
        (Some(fixed), Some(window)) if fixed != window => Err(refused(
            format!("the network takes {fixed} voxels and nothing else"),
            "leave --window out, or export the network with dynamic axes of space",
        )),
        (Some(fixed), _) if fixed.sizes().iter().zip(input.sizes()).any(|(window, all)| window > all) => {
            let problem = format!("the network takes {fixed} voxels and nothing else, and the volume has {input}");
            Err(refused(problem, "export it with dynamic axes of space, or pad the volume"))
        }
        (Some(fixed), _) => Ok(fixed.clone()),
        (None, Some(window)) => clamp(window, input),
        (None, None) => clamp(&Extent::new(vec![WINDOW; input.axes()])?, input),
    }
}

/// How far tiles of blended windows look: as far as a window is wide. What the network gives is found by trying.
fn blended(means: &mut Means<'_>, channels: u64, window: &Extent, input: &Extent) -> Result<Reach, InferError> {
    let mut model = (means.model)()?;
    let shape: Vec<u64> = [channels].into_iter().chain(window.sizes().iter().copied()).collect();
    let mut given = Vec::new();
    let mut values = vec![0.0; (window.voxels() * channels) as usize];
    model.run(&shape, &mut values, &mut |sizes, _| {
        given = sizes.to_vec();
        Ok(())
    })?;
    let (channels, space) = given.split_first().unwrap_or((&0, &[]));
    if space != window.sizes() {
        return Err(refused(
            format!("the network makes {space:?} voxels of a window of {window}"),
            "blending needs a network whose output has the size of its input; --window chooses another size",
        ));
    }
    let halo = |size: &u64| Halo::symmetric(u32::try_from(size - 1).unwrap_or(u32::MAX), 1);
    Ok(Reach {
        halos: window.sizes().iter().map(halo).collect(),
        output: input.sizes().to_vec(),
        channels: *channels,
        notes: vec![format!("windows of {window} are blended: the result is not that of the whole volume")],
    })
}

/// What a network with a fixed input makes of a whole volume, if it is given it tile by tile.
fn output_of_fixed(reach: &Reach, input: &Extent, fixed: &Extent) -> Result<Vec<u64>, InferError> {
    if input.sizes().iter().zip(fixed.sizes()).any(|(all, width)| all < width) {
        return Err(refused(
            format!("the network takes {fixed} voxels and nothing else, and the volume has {input}"),
            "export it with dynamic axes of space, or pad the volume",
        ));
    }
    let along = |axis: usize| {
        let more = (input.sizes()[axis] - fixed.sizes()[axis]) / reach.halos[axis].input;
        reach.output[axis] + more * reach.halos[axis].output
    };
    Ok((0..input.axes()).map(along).collect())
}

/// Makes halos smaller as far as the error stays below a tolerance; the error of each axis.
fn tolerate(
    reach: &mut Reach,
    tolerance: f64,
    bounds: &Bounds<'_>,
    means: &mut Means<'_>,
) -> Result<Vec<f64>, InferError> {
    if means.facts.fixed.is_some() {
        return Err(refused(
            "a network with a fixed input reads the same for every tile, whatever the tolerance",
            "leave --tolerance out, or export the network with dynamic axes",
        ));
    }
    let (mut model, channels) = ((means.model)()?, bounds.channels);
    let probe = Probe { channels, seed: SEED, sizes: probe_sizes(reach, bounds.input) };
    let mut run = |sizes: &[u64], values: &[f32]| {
        let shape: Vec<u64> = [channels].into_iter().chain(sizes.iter().copied()).collect();
        let mut result = (Vec::new(), Vec::new());
        let mut keep = |sizes: &[u64], values: &[f32]| {
            result = (sizes[1..].to_vec(), values.to_vec());
            Ok(())
        };
        let ran = model.run(&shape, &mut values.to_vec(), &mut keep);
        ran.map_err(|error| VolumeError::Invalid(error.to_string()))?;
        Ok(result)
    };
    let mut found = probe.tolerate(reach, tolerance, &mut run)?;
    if tolerance > 0.0 && reach.output == bounds.input.sizes() {
        probe.confirm(reach, tolerance, &mut found, &bounds.longest(reach, means.network), &mut run)?;
    }
    reach.halos = found.iter().map(|(halo, _)| *halo).collect();
    Ok(found.iter().map(|(_, seen)| if seen.deviation > 0.0 { seen.error / seen.deviation } else { 0.0 }).collect())
}

/// What a probe may be given.
struct Bounds<'a> {
    input: &'a Extent,
    channels: u64,
    /// Bytes that its values may take.
    memory: u64,
}

impl Bounds<'_> {
    /// The longest volume along each axis: not longer than the input, and small enough for the memory there is.
    /// They have the input's size modulo the network's steps.
    fn longest(&self, reach: &Reach, network: &dyn Network) -> Vec<u64> {
        let sizes = |edge: u64| {
            let along = |(all, halo): (&u64, &Halo)| match *all > edge + halo.input {
                true => edge + (all - edge) % halo.input,
                false => *all,
            };
            self.input.sizes().iter().zip(&reach.halos).map(along).collect::<Vec<_>>()
        };
        let fits = |edge: &u64| {
            let tile = Extent::new(sizes(*edge)).ok();
            let values = tile.and_then(|tile| network.values_at_once(self.channels, self.input, &tile));
            values.is_some_and(|values| values.saturating_mul(4) <= self.memory)
        };
        let edge = [512, 384, 256, 192, 128, 96, 64, 48].into_iter().find(fits);
        sizes(edge.unwrap_or(32))
    }
}

/// Sizes for probes along the axes that are not looked at: a few steps of the network, and what it crops.
fn probe_sizes(reach: &Reach, input: &Extent) -> Vec<u64> {
    let size = |(axis, halo): (usize, &Halo)| {
        let all = input.sizes()[axis];
        let cropped = all.saturating_sub(reach.output[axis] / halo.output * halo.input);
        cropped.next_multiple_of(halo.input) + 8_u64.div_ceil(halo.input).max(4) * halo.input + all % halo.input
    };
    reach.halos.iter().enumerate().map(size).collect()
}

/// The output: that of the input as far as it can be, in what the network gives.
fn output_layout(
    settings: &Settings,
    input: &VolumeLayout,
    reach: &Reach,
    output: &Extent,
) -> Result<VolumeLayout, InferError> {
    let dtype = match settings.content {
        Content::Labels => Dtype::UInt32,
        Content::Argmax if reach.channels > 256 => Dtype::UInt16,
        Content::Argmax => Dtype::UInt8,
        _ => Dtype::Float32,
    };
    let mut layout = input.clone().with_channels(None)?.with_dtype(dtype);
    let space = output.axes();
    let first = layout.shape.axes() - space;
    let with = |extent: &Extent, sizes: &[u64]| Extent::new([&extent.sizes()[..first], sizes].concat());
    for (axis, halo) in reach.halos.iter().enumerate() {
        layout.axes[first + axis].scale *= halo.input as f64 / halo.output as f64;
    }
    layout.shape = with(&layout.shape, output.sizes())?;
    if let Some(chunk) = &settings.chunk {
        if chunk.axes() != space {
            let problem = format!("chunks of {chunk} do not have the volume's {space} axes of space");
            return Err(refused(problem, "give one number per axis, as in --chunk 64,64,64"));
        }
        layout.chunk = Some(with(&layout.shape, chunk.sizes())?);
        layout.shard = None;
    }
    if !settings.content.is_number() && reach.channels > 1 {
        layout = layout.with_some_chunks().with_channels(Some(reach.channels))?;
    }
    Ok(layout)
}

/// What tiles are multiples of: what one writer has to write as a whole, and no less than is worthwhile.
/// What the user says is taken as it is.
fn granule(settings: &Settings, layout: &VolumeLayout, reach: &Reach, output: &Extent) -> Result<Extent, InferError> {
    let unit = format::unit(&settings.output, layout)?;
    let unit = &unit[unit.len() - output.axes()..];
    if settings.tile.is_some() {
        return Ok(Extent::new(unit)?);
    }
    let along = |axis: usize| {
        let step = reach.halos[axis].output;
        let unit = unit[axis];
        // A tile that begins between two steps of the network reads some voxels for nothing.
        let even = if step > unit && step.is_multiple_of(unit) { step } else { unit };
        even * EDGE.div_ceil(even).max(1)
    };
    Ok(Extent::new((0..output.axes()).map(along).collect::<Vec<_>>())?)
}

/// The region of the output that is asked for.
fn wanted(spans: &[(u64, Option<u64>)], output: &Extent) -> Result<Region, InferError> {
    let to: Vec<u64> = spans.iter().zip(output.sizes()).map(|((_, to), all)| to.unwrap_or(*all)).collect();
    let from: Vec<u64> = spans.iter().map(|(from, _)| *from).collect();
    let backwards = from.iter().zip(&to).any(|(from, to)| from >= to);
    if spans.len() != output.axes() || backwards || to.iter().zip(output.sizes()).any(|(to, all)| to > all) {
        let span =
            |(from, to): &(u64, Option<u64>)| format!("{from}:{}", to.map_or(String::new(), |to| to.to_string()));
        let said: Vec<String> = spans.iter().map(span).collect();
        return Err(refused(
            format!("the region {} is not inside the output of {output}", said.join(",")),
            "give the first voxel and the one behind the last, for each axis of space, as in 0:64,100:228,:",
        ));
    }
    Ok(Region::between(&from, &to))
}

fn clamp(tile: &Extent, output: &Extent) -> Result<Extent, InferError> {
    if tile.axes() != output.axes() {
        let problem = format!("{tile} does not have the volume's {} axes of space", output.axes());
        return Err(refused(problem, "give one number per axis, as in --tile 128,128,128"));
    }
    Ok(Extent::new(tile.sizes().iter().zip(output.sizes()).map(|(tile, all)| *tile.min(all)).collect::<Vec<_>>())?)
}

/// The tiles in which a mask is not zero everywhere.
fn unmasked(path: &Path, plan: &Plan) -> Result<Vec<u64>, InferError> {
    let mask = Source::open(path, &Choices::default())?;
    let (there, wanted) = (mask.extent()?, &plan.spec().output);
    if there != *wanted {
        return Err(refused(
            format!("{}: the mask has {there} voxels, and the output {wanted}", path.display()),
            "make a mask of the output's size",
        ));
    }
    let tiles = ordered(plan, |core: &Region| Ok(mask.read(core, &[0])?.iter().any(|voxel| *voxel != 0.0)))?;
    match tiles.is_empty() {
        true => Err(refused(format!("{}: the mask is zero everywhere", path.display()), "is it the right file?")),
        false => Ok(tiles),
    }
}

/// The checksum of a file.
pub fn sum_of(path: &Path) -> Result<u64, InferError> {
    Ok(checksum::of(&std::fs::read(path).map_err(VolumeError::io(path))?))
}
