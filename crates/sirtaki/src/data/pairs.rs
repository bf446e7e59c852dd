//! Pairs of volumes: an input, and the class of each of its voxels.
//!
//! A folder has them in two folders, `inputs` and `labels`, under the same names. They stay in their files: volumes are
//! larger than memory, and patches are read where they are drawn. Opening looks at all of them once, for the number of
//! classes and for mean and deviation of each channel. Networks are given inputs scaled by these, which are the same on
//! every worker in every bit.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use sirtaki_infer::{
    Facts,
    gather::slabs,
    source::{Source, place_of},
};
use sirtaki_volume::{
    Extent, Region,
    format::{AxisKind, Choices},
    normalise::{Scaling, moments::Moments},
};

use crate::{Error, Result, checkpoint::hex};

/// What can be trained with.
pub(crate) const FORMS: &str = "name a folder with two folders, inputs and labels, that have volumes of the same names: \
                                zarr, HDF5, npy, TIFF, NIfTI or MRC";

/// Classes that can be told apart.
const CLASSES: u32 = 256;

/// Volumes with the classes of their voxels.
#[derive(Debug)]
pub struct Pairs {
    pub(super) pairs: Vec<Pair>,
    axes: usize,
    channels: Vec<u64>,
    classes: u32,
    scaling: Vec<(f32, f32)>,
    digest: String,
}

/// A volume with the classes of its voxels.
#[derive(Debug)]
pub(super) struct Pair {
    input: Source,
    labels: Source,
    /// Along three axes of space; a plane has one voxel along the first.
    pub(super) sizes: [u64; 3],
    /// From one voxel to the next, along the same axes.
    pub(super) scales: [f64; 3],
}

/// Whether a folder has such pairs.
pub(crate) fn are_in(folder: &Path) -> bool {
    folder.join("inputs").is_dir() && folder.join("labels").is_dir()
}

impl Pairs {
    /// Those in a folder.
    pub fn open(folder: &Path) -> Result<Self> {
        if !are_in(folder) {
            let problem = if folder.is_dir() { "there are no pairs of volumes in it" } else { "this is not a folder" };
            return Err(Error::file(folder, problem, FORMS));
        }
        let files = matched(&named(&folder.join("inputs"))?, &named(&folder.join("labels"))?, folder)?;
        let pairs = files.iter().map(|(input, labels)| Pair::open(input, labels)).collect::<Result<Vec<_>>>()?;
        let (axes, channels) = match pairs.first() {
            Some(first) => (first.input.extent().map_err(Error::volume)?.axes(), first.channels(None)?),
            None => return Err(Error::file(&folder.join("inputs"), "there is no volume in it", FORMS)),
        };
        let facts = Facts { axes, channels: Some(channels.len() as u64), fixed: None };
        pairs.iter().try_for_each(|pair| pair.channels(Some(&facts)).map(drop))?;
        let mut found = Found { moments: vec![Moments::default(); channels.len()], counts: vec![0; CLASSES as usize] };
        for (pair, (_, labels)) in pairs.iter().zip(&files) {
            found.look_at(pair, &channels, labels)?;
        }
        let classes = found.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last as u32 + 1);
        if classes < 2 {
            let problem = "all voxels have class 0, so there is nothing to tell apart";
            return Err(Error::file(&folder.join("labels"), problem, "give labels with at least two classes"));
        }
        let digest = found.digest(&pairs);
        let scaling = found.moments.iter().map(|moments| Scaling::standard(moments).map_err(Error::volume));
        let scaling = scaling.map(|scaling| scaling.map(|scaling| (scaling.shift as f32, scaling.scale as f32)));
        Ok(Self { axes, channels, classes, scaling: scaling.collect::<Result<_>>()?, digest, pairs })
    }

    /// Axes of space: two or three.
    pub fn axes(&self) -> usize {
        self.axes
    }

    /// Channels of the inputs.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Classes of the labels.
    pub fn classes(&self) -> usize {
        self.classes as usize
    }

    /// What is subtracted from each channel of the inputs, and what the difference is divided by.
    pub fn scaling(&self) -> &[(f32, f32)] {
        &self.scaling
    }

    /// Something that differs for other volumes.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Reads a region of a pair: its channels, scaled, and the classes behind them.
    pub(super) fn read(&self, pair: usize, start: [u64; 3], size: [u64; 3]) -> Result<Vec<f32>> {
        let pair = &self.pairs[pair];
        let region =
            Region::new(start[3 - self.axes..].to_vec(), size[3 - self.axes..].to_vec()).map_err(Error::volume)?;
        let mut values = pair.input.read(&region, &self.channels).map_err(Error::volume)?;
        let each = values.chunks_exact_mut(region.voxels() as usize);
        for (channel, (shift, scale)) in each.zip(&self.scaling) {
            channel.iter_mut().for_each(|value| *value = (*value - shift) / scale);
        }
        values.extend(pair.labels.read(&region, &[0]).map_err(Error::volume)?);
        Ok(values)
    }
}

impl Pair {
    fn open(input: &Path, labels: &Path) -> Result<Self> {
        let open = |path: &Path| Source::open(path, &Choices::default()).map_err(Error::volume);
        let (path, input, labels) = (labels, open(input)?, open(labels)?);
        let (sizes, classes) = (input.extent().map_err(Error::volume)?, labels.extent().map_err(Error::volume)?);
        if sizes != classes {
            let problem = format!("there are {classes} labels for {sizes} voxels");
            return Err(Error::file(path, problem, "give each voxel one label"));
        }
        if !(2..=3).contains(&sizes.axes()) {
            let problem = format!("{sizes} is neither a plane nor a volume");
            return Err(Error::file(path, problem, "give data with two or three axes of space"));
        }
        let one = Facts { axes: sizes.axes(), channels: Some(1), fixed: None };
        labels.channels(&one, None).map_err(Error::volume)?;
        let axes = input.layout().axes.iter().filter(|axis| axis.kind == AxisKind::Space);
        let scales = padded(axes.map(|axis| axis.scale), 1.0);
        Ok(Self { sizes: padded(sizes.sizes().iter().copied(), 1), scales, input, labels })
    }

    /// All channels, if they are as many as in the others.
    fn channels(&self, facts: Option<&Facts>) -> Result<Vec<u64>> {
        let axes = self.input.extent().map_err(Error::volume)?.axes();
        let any = Facts { axes, channels: None, fixed: None };
        self.input.channels(facts.unwrap_or(&any), None).map_err(Error::volume)
    }
}

/// What is found in all volumes.
struct Found {
    /// Of each channel.
    moments: Vec<Moments>,
    /// Voxels of each class.
    counts: Vec<u64>,
}

impl Found {
    fn look_at(&mut self, pair: &Pair, channels: &[u64], path: &Path) -> Result<()> {
        let extent: Extent = pair.input.extent().map_err(Error::volume)?;
        for slab in slabs(&extent) {
            for (channel, moments) in channels.iter().zip(&mut self.moments) {
                let values = pair.input.read(&slab, &[*channel]).map_err(Error::volume)?;
                pair.input.check_numbers(&values, &slab).map_err(Error::volume)?;
                moments.add(&values);
            }
            for (number, label) in pair.labels.read(&slab, &[0]).map_err(Error::volume)?.into_iter().enumerate() {
                let class = label as usize;
                if class as f32 != label || class >= self.counts.len() {
                    let problem = format!("voxel {:?} has the label {label}", place_of(number as u64, &slab));
                    let hint = format!("labels are classes, from 0 to {} at most, not numbers of objects", CLASSES - 1);
                    return Err(Error::file(path, problem, hint));
                }
                self.counts[class] += 1;
            }
        }
        Ok(())
    }

    fn digest(&self, pairs: &[Pair]) -> String {
        let sizes: Vec<[u64; 3]> = pairs.iter().map(|pair| pair.sizes).collect();
        let moments = self.moments.iter().map(|moments| (moments.mean().ok(), moments.deviation().ok()));
        let found = format!("{sizes:?} {:?} {:?}", moments.collect::<Vec<_>>(), self.counts);
        hex(&Sha256::digest(found))
    }
}

/// Along three axes, of which the first may be missing.
fn padded<T: Copy>(values: impl Iterator<Item = T>, first: T) -> [T; 3] {
    let values: Vec<T> = values.collect();
    std::array::from_fn(|axis| (axis + values.len()).checked_sub(3).map_or(first, |place| values[place]))
}

/// What can be read of a folder, by its name without the ending.
fn named(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !name.starts_with('.') {
            found.push((name, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Inputs and labels of the same names. Nobody may be left over.
fn matched(
    inputs: &[(String, PathBuf)],
    labels: &[(String, PathBuf)],
    folder: &Path,
) -> Result<Vec<(PathBuf, PathBuf)>> {
    let of = |all: &[(String, PathBuf)], name: &String| {
        all.iter().filter(|(other, _)| other == name).map(|(_, path)| path.clone()).collect::<Vec<_>>()
    };
    let mut pairs = Vec::new();
    for (name, _) in inputs.iter().chain(labels) {
        match (of(inputs, name).as_slice(), of(labels, name).as_slice()) {
            ([input], [labels]) => pairs.push((input.clone(), labels.clone())),
            ([], _) | (_, []) => {
                let problem = format!("`{name}` is only in one of the folders inputs and labels");
                return Err(Error::file(folder, problem, "give each volume labels under the same name"));
            }
            _ => {
                let problem = format!("there are several volumes `{name}` that differ in their endings");
                return Err(Error::file(folder, problem, "give each volume another name"));
            }
        }
    }
    pairs.sort();
    pairs.dedup();
    Ok(pairs)
}
