//! Voxels as the network wants them: numbers of single precision, channels first.

use std::path::Path;

use half::f16;
use sirtaki_volume::{
    Extent, Region, VolumeError, checksum,
    format::{self, AxisKind, Choices, Dtype, Volume, VolumeLayout},
};

use crate::{Facts, InferError, error::refused};

/// A volume that a network reads.
#[derive(Debug)]
pub struct Source {
    volume: Box<dyn Volume>,
    path: std::path::PathBuf,
    /// Which axes of the file are those of space.
    space: Vec<usize>,
    /// Which one has channels.
    channel: Option<usize>,
}

impl Source {
    /// Opens a volume.
    pub fn open(path: &Path, choices: &Choices) -> Result<Self, InferError> {
        let volume = format::open(path, choices)?;
        let layout = volume.layout();
        let of = |kind: AxisKind| (0..layout.axes.len()).filter(move |axis| layout.axes[*axis].kind == kind);
        let (space, mut channels) = (of(AxisKind::Space).collect(), of(AxisKind::Channel));
        let channel = channels.next();
        let sizes = layout.shape.sizes();
        if let Some(axis) = channels.next().or_else(|| of(AxisKind::Time).find(|axis| sizes[*axis] > 1)) {
            let name = &layout.axes[axis].name;
            return Err(refused(
                format!("{}: the axis `{name}` of {} is neither channels nor space", path.display(), sizes[axis]),
                "take one volume out of it, and process each on its own",
            ));
        }
        Ok(Self { space, channel, path: path.to_owned(), volume })
    }

    /// What is known about it besides its voxels.
    pub fn layout(&self) -> &VolumeLayout {
        self.volume.layout()
    }

    /// What whoever opened it should know about how it was understood.
    pub fn note(&self) -> Option<&str> {
        self.volume.note()
    }

    /// Its sizes along the axes of space.
    pub fn extent(&self) -> Result<Extent, VolumeError> {
        Extent::new(self.space.iter().map(|axis| self.layout().shape.sizes()[*axis]).collect::<Vec<_>>())
    }

    /// The name of an axis of space.
    pub fn space_name(&self, number: usize) -> String {
        self.layout().axes[self.space[number]].name.clone()
    }

    /// The channels that a network is given: those that are asked for, or all, if they are as many as it takes.
    pub fn channels(&self, facts: &Facts, asked: Option<&[u64]>) -> Result<Vec<u64>, InferError> {
        let (name, axes) = (self.path.display(), self.space.len());
        if axes != facts.axes {
            let shape = &self.layout().shape;
            let names: Vec<&str> = self.layout().axes.iter().map(|axis| axis.name.as_str()).collect();
            return Err(refused(
                format!(
                    "{name}: {shape} ({}) has {axes} axes of space, and the network takes {}",
                    names.join(", "),
                    facts.axes
                ),
                "an axis of channels is named `c` in zarr; in npy and raw files it is the first of four",
            ));
        }
        let there = self.channel.map_or(1, |axis| self.layout().shape.sizes()[axis]);
        let channels = asked.map_or_else(|| (0..there).collect(), <[u64]>::to_vec);
        if let Some(wrong) = channels.iter().find(|channel| **channel >= there) {
            let hint = format!("channels are counted from 0 to {}", there - 1);
            return Err(refused(format!("{name}: there is no channel {wrong}"), hint));
        }
        let count = channels.len() as u64;
        match facts.channels {
            Some(wanted) if wanted != count => Err(refused(
                format!("{name} has {there} channels, of which {count} are used, and the network takes {wanted}"),
                format!("choose {wanted} of them: --channels 0,…"),
            )),
            _ if count == 0 => Err(refused("no channel was chosen", "name at least one, as in --channels 0")),
            _ => Ok(channels),
        }
    }

    /// Something that differs for another volume of the same name, as far as that shows without reading it.
    pub fn sum(&self) -> u64 {
        let layout = serde_json::to_string(self.layout()).unwrap_or_default();
        let file = format::file_of(&self.path);
        let written = file.metadata().and_then(|found| found.modified()).ok();
        let written = written.filter(|_| file.is_file());
        checksum::of(format!("{layout} {written:?}").as_bytes())
    }

    /// Reads a region of the axes of space; the values of each channel follow those of the one before.
    pub fn read(&self, region: &Region, channels: &[u64]) -> Result<Vec<f32>, VolumeError> {
        let mut values = Vec::new();
        let first = self.channel.is_none_or(|channel| self.space.iter().all(|axis| channel < *axis));
        let consecutive = channels.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let parts: Vec<&[u64]> = match first && consecutive {
            true => vec![channels],
            false => channels.chunks(1).collect(),
        };
        for part in parts {
            self.read_part(region, part, &mut values)?;
        }
        Ok(values)
    }

    fn read_part(&self, region: &Region, channels: &[u64], values: &mut Vec<f32>) -> Result<(), VolumeError> {
        let layout = self.layout();
        let (mut start, mut size) = (vec![0; layout.axes.len()], vec![1; layout.axes.len()]);
        for (number, axis) in self.space.iter().enumerate() {
            (start[*axis], size[*axis]) = (region.start()[number], region.size()[number]);
        }
        if let (Some(axis), Some(first)) = (self.channel, channels.first()) {
            (start[axis], size[axis]) = (*first, channels.len() as u64);
        }
        let region = Region::new(start, size)?;
        let mut bytes = vec![0; region.voxels() as usize * layout.dtype.size()];
        self.volume.read(&region, &mut bytes)?;
        append_numbers(&bytes, layout.dtype, values);
        Ok(())
    }

    /// Refuses values that are not numbers, with the place of the first one.
    pub fn check_numbers(&self, values: &[f32], region: &Region) -> Result<(), VolumeError> {
        let Some(at) = values.iter().position(|value| value.is_nan()) else { return Ok(()) };
        let place = place_of(at as u64 % region.voxels(), region);
        let hint = "replace it, or let the network see it: --allow-nan";
        Err(VolumeError::format(&self.path, format!("voxel {place:?} is not a number"), hint))
    }
}

/// Where the voxel of this number among those of a region lies.
pub fn place_of(number: u64, region: &Region) -> Vec<u64> {
    let (mut rest, mut place) = (number, vec![0; region.axes()]);
    for axis in (0..region.axes()).rev() {
        place[axis] = region.start()[axis] + rest % region.size()[axis];
        rest /= region.size()[axis];
    }
    place
}

/// Appends voxels as numbers of single precision.
fn append_numbers(bytes: &[u8], dtype: Dtype, values: &mut Vec<f32>) {
    macro_rules! each {
        ($kind:ty, $convert:expr) => {
            values.extend(
                bytes
                    .as_chunks::<{ size_of::<$kind>() }>()
                    .0
                    .iter()
                    .map(|voxel| $convert(<$kind>::from_ne_bytes(*voxel))),
            )
        };
    }
    match dtype {
        Dtype::Bool | Dtype::UInt8 => values.extend(bytes.iter().map(|voxel| f32::from(*voxel))),
        Dtype::Int8 => each!(i8, f32::from),
        Dtype::Int16 => each!(i16, f32::from),
        Dtype::UInt16 => each!(u16, f32::from),
        Dtype::Int32 => each!(i32, |voxel| voxel as f32),
        Dtype::UInt32 => each!(u32, |voxel| voxel as f32),
        Dtype::Int64 => each!(i64, |voxel| voxel as f32),
        Dtype::UInt64 => each!(u64, |voxel| voxel as f32),
        Dtype::Float16 => each!(f16, f16::to_f32),
        Dtype::Float32 => each!(f32, |voxel| voxel),
        Dtype::Float64 => each!(f64, |voxel| voxel as f32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voxels_of_any_type_are_numbers() {
        let mut values = Vec::new();
        append_numbers(&[1, 255], Dtype::Int8, &mut values);
        append_numbers(&[1, 255], Dtype::UInt8, &mut values);
        append_numbers(&f16::from_f32(0.5).to_ne_bytes(), Dtype::Float16, &mut values);
        append_numbers(&[(-3_i16).to_ne_bytes(), 500_i16.to_ne_bytes()].concat(), Dtype::Int16, &mut values);
        append_numbers(&7_u64.to_ne_bytes(), Dtype::UInt64, &mut values);
        append_numbers(&(-1.5_f64).to_ne_bytes(), Dtype::Float64, &mut values);
        assert_eq!(values, [1.0, -1.0, 1.0, 255.0, 0.5, -3.0, 500.0, 7.0, -1.5]);
    }
}
