//! Statistics of a whole volume for networks that normalise with them, as instance and group norm do.
//!
//! What the first such operator normalises is computed for the whole volume, tile by tile with exact halos, and only its
//! mean and variance are kept; with these, the same is done for the next one. So the network is computed up to each of
//! its normalisations once, and then as a whole. Sums are exact, so that the statistics do not depend on tiles or threads;
//! rounded once, they are those of the whole volume. The process that begins a job does this, with a thread for each of its
//! workers on this machine.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use sirtaki_volume::{
    Extent,
    grid::{
        choose::{Limits, choose},
        plan::{Plan, PlanSpec, Reads},
    },
    normalise::moments::Moments,
    reach::onnx::rewrite::ChannelStatistics,
};

use crate::{
    InferError, Job, Network,
    apply::{read, run, sizes},
    error::refused,
    memory::Needs,
    onnx::{Graph, Processor, Runtime},
    source::Source,
};

/// What tiles are multiples of, along each axis.
const EDGE: u64 = 16;

/// Gathers the statistics of all normalisations of a network, in the order of computing. Each of the threads may use so
/// many bytes; `told` hears which normalisation of how many comes next.
pub fn gather(
    job: &Job,
    graph: &Graph,
    runtime: &Runtime,
    (threads, memory): (usize, u64),
    told: &mut dyn FnMut(usize, usize),
) -> Result<Vec<ChannelStatistics>, InferError> {
    let groups = graph.normalisations()?;
    if graph.facts().fixed.is_some() {
        return Err(refused(
            "a network with a fixed input cannot be computed in parts",
            "export it with dynamic axes of space to use --global-statistics",
        ));
    }
    let source = Source::open(&job.settings.input, &job.settings.choices)?;
    let mut known = Vec::new();
    for (number, groups_of_one) in groups.iter().enumerate() {
        told(number, groups.len());
        let part = graph.with_statistics(&known)?;
        let plan = plan(job, &part, &source, memory)?;
        let next = AtomicU64::new(0);
        let work = || worker(job, (&part, runtime), &source, &plan, &next);
        let parts: Vec<Vec<Moments>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Result<_, InferError>>()
        })?;
        known.push(statistics(parts, *groups_of_one)?);
    }
    Ok(known)
}

/// The tiles of what a part of the network gives.
fn plan(job: &Job, part: &Graph, source: &Source, memory: u64) -> Result<Plan, InferError> {
    let (channels, input) = (job.channels.len() as u64, source.extent()?);
    let reach = part.reach(channels, &input)?;
    let output = Extent::new(reach.output.clone())?;
    let chunk = |(halo, all): (&sirtaki_volume::grid::halo::Halo, &u64)| {
        halo.output.saturating_mul(EDGE.div_ceil(halo.output)).min(*all)
    };
    let chunk: Vec<u64> = reach.halos.iter().zip(output.sizes()).map(chunk).collect();
    let needs = Needs {
        network: part,
        space: &input,
        channels,
        read: source.layout().dtype.size() as u64,
        given: reach.channels,
        written: 0,
        window: None,
    };
    let spec = PlanSpec {
        chunk: Extent::new(chunk)?,
        core: output.clone(),
        input: input.clone(),
        halo: reach.halos,
        reads: Reads::Least,
        wanted: None,
        output,
    };
    Ok(choose(spec, Limits { memory, tiles: 1 }, |read, core| needs.bytes(read, core))?)
}

/// One thread: sums over the tiles that it takes, for each channel.
fn worker(
    job: &Job,
    (part, runtime): (&Graph, &Runtime),
    source: &Source,
    plan: &Plan,
    next: &AtomicU64,
) -> Result<Vec<Moments>, InferError> {
    let mut model = part.clone().load(runtime, Processor { threads: 1, gpu: None })?;
    let mut sums: Vec<Moments> = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= plan.tiles() {
            return Ok(sums);
        }
        let tile = plan.tile(number);
        let mut values = read(job, source, &tile.read)?;
        let (channels, core) = run(&mut model, &sizes(job, tile.read.size()), &mut values, &tile.crop)?;
        sums.resize_with(channels, Moments::default);
        sums.iter_mut().zip(core.chunks_exact(tile.core.voxels() as usize)).for_each(|(sum, core)| sum.add(core));
    }
}

/// Mean and variance of each channel, from the sums of all threads; of a group of channels, where there are groups.
fn statistics(parts: Vec<Vec<Moments>>, groups: Option<u64>) -> Result<ChannelStatistics, InferError> {
    let mut channels: Vec<Moments> = Vec::new();
    for part in parts {
        channels.resize_with(channels.len().max(part.len()), Moments::default);
        channels.iter_mut().zip(&part).for_each(|(sum, part)| sum.merge(part));
    }
    let each = groups.map_or(1, |groups| (channels.len() / groups.max(1) as usize).max(1));
    let (mut mean, mut variance) = (Vec::new(), Vec::new());
    for group in channels.chunks(each) {
        let mut sum = Moments::default();
        group.iter().for_each(|channel| sum.merge(channel));
        mean.extend(std::iter::repeat_n(sum.mean()? as f32, group.len()));
        variance.extend(std::iter::repeat_n(sum.deviation()?.powi(2) as f32, group.len()));
    }
    Ok(ChannelStatistics { mean, variance })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_a_group_share_its_statistics() {
        let sum = |values: &[f32]| {
            let mut sum = Moments::default();
            sum.add(values);
            sum
        };
        let parts = || vec![vec![sum(&[1.0]), sum(&[5.0])], vec![sum(&[3.0]), sum(&[7.0])], vec![]];
        let apart = statistics(parts(), None).unwrap();
        assert_eq!((apart.mean, apart.variance), (vec![2.0, 6.0], vec![1.0, 1.0]));
        let together = statistics(parts(), Some(1)).unwrap();
        assert_eq!((together.mean, together.variance), (vec![4.0; 2], vec![5.0; 2]));
    }
}
