//! What becomes of the network's output: cut to the core, turned into what is wanted, and written in whole units.

use sirtaki_volume::{
    Extent, Region, VolumeError, checksum,
    format::{Choices, Dtype, Existing, Volume, VolumeLayout, resume},
};

use crate::{Content, InferError, Job, source::Source};

/// The output of a job, open for writing.
#[derive(Debug)]
pub(crate) struct Sink<'a> {
    job: &'a Job,
    volume: Box<dyn Volume>,
    mask: Option<Source>,
}

impl<'a> Sink<'a> {
    /// Opens an output that was begun.
    pub(crate) fn open(job: &'a Job) -> Result<Self, InferError> {
        let choices = Choices {
            shape: Some(job.layout.shape.sizes().to_vec()),
            dtype: Some(job.layout.dtype),
            ..Choices::default()
        };
        let existing = if job.settings.replace { Existing::Replace } else { Existing::Keep };
        let volume = resume(&job.settings.output, &choices, existing)?;
        let mask = job.settings.mask.as_deref().map(|path| Source::open(path, &Choices::default())).transpose()?;
        Ok(Self { job, volume, mask })
    }

    /// The volume itself.
    pub(crate) fn volume(&self) -> &dyn Volume {
        &*self.volume
    }

    /// The bytes that are written for a core, from the values of the network there.
    pub(crate) fn encode(&self, core: &Region, channels: usize, mut values: Vec<f32>) -> Result<Vec<u8>, VolumeError> {
        if self.job.settings.content == Content::Argmax {
            let classes = self.classes(core, channels, &values)?;
            return Ok(match self.job.layout.dtype {
                Dtype::UInt8 => classes.iter().map(|class| *class as u8).collect(),
                _ => to_bytes(&classes, |class| (*class as u16).to_ne_bytes()),
            });
        }
        let voxels = core.voxels() as usize;
        if self.job.settings.content == Content::Probabilities {
            probabilities(&mut values, voxels, channels);
        }
        if let Some(mask) = &self.mask {
            let wanted = mask.read(core, &[0])?;
            let each = values.iter_mut().enumerate().filter(|(place, _)| wanted[place % voxels] == 0.0);
            each.for_each(|(_, value)| *value = 0.0);
        }
        Ok(to_bytes(&values, |value| value.to_ne_bytes()))
    }

    /// The class of each voxel of a core, from the values of the network there; 0 where a mask is.
    pub(crate) fn classes(&self, core: &Region, channels: usize, values: &[f32]) -> Result<Vec<u32>, VolumeError> {
        let voxels = core.voxels() as usize;
        let mut classes = match self.job.settings.content {
            // A single channel tells objects from everything else, as its logistic function would with a half.
            Content::Labels if channels == 1 => values.iter().map(|value| u32::from(*value > 0.0)).collect(),
            _ => argmax(values, voxels, channels),
        };
        if let Some(mask) = &self.mask {
            let wanted = mask.read(core, &[0])?;
            classes.iter_mut().zip(&wanted).for_each(|(class, wanted)| *class *= u32::from(*wanted != 0.0));
        }
        Ok(classes)
    }

    /// Writes what was encoded for a core; returns its checksum. Units that the core fills only in part, at the edges of
    /// the region that is wanted, are zero elsewhere.
    pub(crate) fn write(&self, core: &Region, bytes: &[u8]) -> Result<u64, VolumeError> {
        let region = self.job.in_output(core)?;
        let layout = self.volume.layout();
        let whole = whole_units(layout, &region)?;
        if whole == region {
            self.volume.write(&region, bytes)?;
        } else {
            let width = layout.dtype.size();
            let mut padded = vec![0; whole.voxels() as usize * width];
            let inside = region.relative_to(&whole);
            copy_rows(
                region.size(),
                (bytes, region.size(), &vec![0; region.axes()]),
                (&mut padded, whole.size(), inside.start()),
                width,
            );
            self.volume.write(&whole, &padded)?;
        }
        Ok(checksum::of(bytes))
    }
}

/// Values one after the other as bytes; many times faster than collecting single bytes.
pub(crate) fn to_bytes<T, const N: usize>(values: &[T], one: impl Fn(&T) -> [u8; N]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * N];
    bytes.as_chunks_mut::<N>().0.iter_mut().zip(values).for_each(|(bytes, value)| *bytes = one(value));
    bytes
}

/// The smallest region of whole units around another one.
fn whole_units(layout: &VolumeLayout, region: &Region) -> Result<Region, VolumeError> {
    let (unit, shape, end) = (layout.unit(), layout.shape.sizes(), region.end());
    let from: Vec<u64> = region.start().iter().zip(&unit).map(|(start, unit)| start / unit * unit).collect();
    let to = (0..end.len()).map(|axis| end[axis].next_multiple_of(unit[axis]).min(shape[axis]));
    Ok(Region::between(&from, &to.collect::<Vec<_>>()))
}

/// A box inside an array: the array, its sizes, and where the box begins.
type Inside<'a> = (&'a [u8], &'a [u64], &'a [u64]);

/// Copies a box from one array into another, row by row.
fn copy_rows(size: &[u64], from: Inside<'_>, to: (&mut [u8], &[u64], &[u64]), width: usize) {
    let Some((row, outer)) = size.split_last() else { return };
    let row = *row as usize * width;
    let count: u64 = outer.iter().product();
    let place = |sizes: &[u64], start: &[u64], number: u64| {
        let (mut rest, mut at, mut step) = (number, 0, 1);
        for axis in (0..sizes.len()).rev() {
            let inside = if axis + 1 == sizes.len() { 0 } else { rest % size[axis] };
            if axis + 1 < sizes.len() {
                rest /= size[axis];
            }
            at += (start[axis] + inside) * step;
            step *= sizes[axis];
        }
        at as usize * width
    };
    for number in 0..count {
        let (source, target) = (place(from.1, from.2, number), place(to.1, to.2, number));
        to.0[target..target + row].copy_from_slice(&from.0[source..source + row]);
    }
}

/// Cuts a region out of what a network gave, channels first.
pub(crate) fn crop(sizes: &[u64], values: &[f32], region: &Region) -> Result<(usize, Vec<f32>), VolumeError> {
    let Some((channels, space)) = sizes.split_first() else {
        return Err(VolumeError::Invalid("the network gave no axes".to_owned()));
    };
    if !region.is_within(&Extent::new(space)?) {
        return Err(VolumeError::Invalid(format!("the network gave {space:?} voxels, and {region} of them is needed")));
    }
    let (last, outer) = (region.axes() - 1, region.size().split_last().map_or(&[][..], |(_, outer)| outer));
    let row = region.size()[last] as usize;
    let rows: u64 = outer.iter().product();
    let mut cut = Vec::with_capacity(*channels as usize * region.voxels() as usize);
    for channel in 0..*channels {
        for number in 0..rows {
            let mut rest = number;
            let mut place = region.start().to_vec();
            for axis in (0..last).rev() {
                place[axis] += rest % region.size()[axis];
                rest /= region.size()[axis];
            }
            let at = place.iter().zip(space).fold(channel, |at, (place, size)| at * size + place) as usize;
            cut.extend_from_slice(&values[at..at + row]);
        }
    }
    Ok((*channels as usize, cut))
}

/// The channel with the largest value at each voxel; of equal ones, the first.
fn argmax(values: &[f32], voxels: usize, channels: usize) -> Vec<u32> {
    let mut best = vec![0_u32; voxels];
    let mut most = values[..voxels.min(values.len())].to_vec();
    for channel in 1..channels {
        let row = &values[channel * voxels..(channel + 1) * voxels];
        for ((best, most), value) in best.iter_mut().zip(&mut most).zip(row) {
            if *value > *most {
                (*best, *most) = (channel as u32, *value);
            }
        }
    }
    best
}

/// Softmax over the channels, or the logistic function of a single one.
fn probabilities(values: &mut [f32], voxels: usize, channels: usize) {
    if channels == 1 {
        values.iter_mut().for_each(|value| *value = 1.0 / (1.0 + (-*value).exp()));
        return;
    }
    for voxel in 0..voxels {
        let places = || (0..channels).map(|channel| channel * voxels + voxel);
        let most = places().map(|place| values[place]).fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for place in places() {
            values[place] = (values[place] - most).exp();
            sum += values[place];
        }
        places().for_each(|place| values[place] /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_cut_out_of_every_channel() {
        let values: Vec<f32> = (0..24).map(|value| value as f32).collect();
        let region = Region::new([1, 2], [2, 2]).unwrap();
        assert_eq!(crop(&[2, 3, 4], &values, &region).unwrap(), (2, vec![6., 7., 10., 11., 18., 19., 22., 23.]));
        assert!(crop(&[2, 2, 4], &values[..16], &region).is_err());
    }

    #[test]
    fn classes_and_probabilities() {
        let values = [1.0, 5.0, 2.0, 5.0, 0.0, 7.0];
        assert_eq!(argmax(&values, 2, 3), [1, 2]);
        let mut two = vec![0.0, 1.0, 0.0, 1.0];
        probabilities(&mut two, 2, 2);
        assert_eq!(two, [0.5; 4]);
        let mut one = vec![0.0, 100.0];
        probabilities(&mut one, 2, 1);
        assert_eq!(one, [0.5, 1.0]);
    }

    #[test]
    fn units_are_written_whole() {
        let mut layout = VolumeLayout::new(Extent::new([10, 10]).unwrap(), Dtype::UInt8);
        layout.chunk = Some(Extent::new([4, 4]).unwrap());
        let whole = whole_units(&layout, &Region::new([1, 5], [2, 5]).unwrap()).unwrap();
        assert_eq!(whole, Region::new([0, 4], [4, 6]).unwrap());
        let mut target = vec![0; 24];
        copy_rows(&[2, 5], (&[1; 10], &[2, 5], &[0, 0]), (&mut target, &[4, 6], &[1, 1]), 1);
        assert_eq!(target[..12], [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
        assert_eq!(target.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 10);
    }
}
