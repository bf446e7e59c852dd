//! Statistics of the whole input, for networks that were trained on volumes scaled by their own.
//!
//! They are gathered once, before the job begins, by as many threads as there are cores; the volume is read in slabs. Sums
//! are exact, so that processes which begin a job at the same moment find the same numbers.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use sirtaki_volume::{
    Extent, Region, VolumeError,
    format::Dtype,
    normalise::{
        Scaling,
        histogram::{Histogram, Kind, Percentile},
        moments::Moments,
    },
};

use crate::{InferError, Job, settings::Normalise, source::Source};

/// Voxels that a thread reads at a time.
const SLAB: u64 = 1 << 22;

/// What the input of a job is scaled by: one scaling for each channel that the network is given.
pub fn scaling(job: &Job, threads: usize) -> Result<Option<Vec<Scaling>>, InferError> {
    let Some(how) = job.settings.normalise else { return Ok(None) };
    let source = Source::open(&job.settings.input, &job.settings.choices)?;
    let gather = Gather { source: &source, slabs: slabs(&source.extent()?), threads, nan: job.settings.allow_nan };
    let each = job.channels.iter().map(|channel| match how {
        Normalise::Mean => Scaling::standard(&gather.moments(*channel)?),
        Normalise::Percentiles(low, high) => {
            let (low, high) = gather.percentiles(*channel, (low, high))?;
            Scaling::between(low, high, false)
        }
    });
    Ok(Some(each.collect::<Result<_, VolumeError>>()?))
}

struct Gather<'a> {
    source: &'a Source,
    slabs: Vec<Region>,
    threads: usize,
    /// Whether voxels that are not numbers are passed over instead of refused.
    nan: bool,
}

impl Gather<'_> {
    fn moments(&self, channel: u64) -> Result<Moments, VolumeError> {
        let parts = self.all(channel, Moments::default, |moments, values| {
            moments.add(values);
            Ok(())
        })?;
        Ok(parts.iter().fold(Moments::default(), |mut sum, part| {
            sum.merge(part);
            sum
        }))
    }

    /// Two percentiles. Numbers of 32 bits need a second look at the volume for each.
    fn percentiles(&self, channel: u64, (low, high): (f64, f64)) -> Result<(f64, f64), VolumeError> {
        let first = self.histogram(channel, || Histogram::new(self.kind()))?;
        let exact = |percent: f64| match first.percentile(percent)? {
            Percentile::Exact(value) => Ok(value),
            Percentile::Inside { bin, place, low, .. } => {
                match self.histogram(channel, || Histogram::within(bin))?.at(place)? {
                    Percentile::Exact(value) => Ok(value),
                    Percentile::Inside { .. } => Ok(f64::from(low)),
                }
            }
        };
        Ok((exact(low)?, exact(high)?))
    }

    fn kind(&self) -> Kind {
        match self.source.layout().dtype {
            Dtype::Bool | Dtype::UInt8 | Dtype::UInt16 => Kind::Unsigned,
            Dtype::Int8 | Dtype::Int16 => Kind::Signed,
            _ => Kind::Float,
        }
    }

    fn histogram(&self, channel: u64, empty: impl Fn() -> Histogram + Sync) -> Result<Histogram, VolumeError> {
        let kind = self.kind();
        let parts = self.all(channel, &empty, |histogram: &mut Histogram, values| match kind {
            Kind::Float => histogram.add(values),
            _ => histogram.add_integers(values.iter().map(|value| *value as i32)),
        })?;
        let mut sum = empty();
        parts.iter().try_for_each(|part| sum.merge(part))?;
        Ok(sum)
    }

    /// What each thread makes of the slabs that it takes.
    fn all<T: Send>(
        &self,
        channel: u64,
        empty: impl Fn() -> T + Sync,
        add: impl Fn(&mut T, &[f32]) -> Result<(), VolumeError> + Sync,
    ) -> Result<Vec<T>, VolumeError> {
        let next = AtomicUsize::new(0);
        let one = || {
            let mut part = empty();
            while let Some(slab) = self.slabs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let values = self.source.read(slab, &[channel])?;
                if !self.nan {
                    self.source.check_numbers(&values, slab)?;
                }
                add(&mut part, &values)?;
            }
            Ok(part)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads.max(1)).map(|_| scope.spawn(one)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|part| part.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }
}

/// The volume in slabs along its first axis, small enough to be read one at a time.
pub fn slabs(volume: &Extent) -> Vec<Region> {
    let (all, layer) = (volume.sizes()[0], volume.voxels() / volume.sizes()[0]);
    let thick = (SLAB / layer.max(1)).max(1);
    let slab = |number: u64| {
        let (mut from, mut to) = (vec![0; volume.axes()], volume.sizes().to_vec());
        (from[0], to[0]) = (number * thick, all.min((number + 1) * thick));
        Region::between(&from, &to)
    };
    (0..all.div_ceil(thick)).map(slab).collect()
}
