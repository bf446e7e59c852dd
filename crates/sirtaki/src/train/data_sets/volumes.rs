//! Patches of volumes whose voxels have classes.

use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use sirtaki_launch::words::grouped;

use super::{DataSet, Domain, SampleKind, Settings, refuse_others};
use crate::{
    Error, Flow, Result,
    data::{Batch, Pairs, Patches, Samples as _, Split, pairs},
};

/// What patches are like: axes of space, channels and edges of the patches, and the number of classes; and how inputs were
/// scaled.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::train) struct VolumeKind {
    pub(in crate::train) axes: usize,
    pub(in crate::train) channels: usize,
    pub(in crate::train) edges: [usize; 3],
    pub(in crate::train) classes: usize,
    pub(in crate::train) scaling: Vec<(f32, f32)>,
}

/// Edges of patches of planes and of volumes, unless others are asked for.
const EDGES: [usize; 2] = [96, 48];
/// Patches that are tested at a time: each takes as much memory as a volume of all maps of a network.
const TESTED: usize = 1;

impl SampleKind for VolumeKind {
    const DOMAIN: Domain = Domain::Volumes;

    fn open(settings: &Settings) -> Result<(DataSet, Self)> {
        let Some(folder) = &settings.data else {
            return Err(Error::setting("there are no volumes to train with", pairs::FORMS));
        };
        refuse_others(settings, folder, pairs::FORMS)?;
        let pairs = Pairs::open(folder)?;
        let edge = settings.patch.unwrap_or(if pairs.axes() == 2 { EDGES[0] } else { EDGES[1] });
        let digest = format!("volumes with SHA-256 {}", &pairs.digest()[..16]);
        let Split { train, test } =
            Patches::split(pairs, edge, settings.seed).map_err(|error| error.in_file(folder))?;
        let &[_, depth, height, width] = train.shape() else {
            return Err(Error::file(folder, "patches have no axes of space", "report this"));
        };
        let pairs = train.pairs();
        let kind = VolumeKind {
            axes: pairs.axes(),
            channels: pairs.channels(),
            edges: [depth, height, width],
            classes: pairs.classes(),
            scaling: pairs.scaling().to_vec(),
        };
        let identity = vec![("patch", edge.to_string()), ("data", digest)];
        let (count, classes) = (grouped(train.count() as f64), kind.classes);
        let found = format!(
            "volumes: {count} patches of {depth}×{height}×{width} voxels in {classes} classes; {} more to test with",
            grouped(test.count() as f64)
        );
        let data = DataSet {
            train: Arc::new(train),
            test: Arc::new(test),
            domain: Self::DOMAIN,
            tested: TESTED,
            identity,
            found,
            unreadable: Vec::new(),
            replaced: Vec::new(),
        };
        Ok((data, kind))
    }

    /// What should come out are the classes of all voxels, one patch after the other.
    fn tensors(batch: Batch, device: &Device, dtype: DType) -> Result<(Flow, Tensor<1, Int>)> {
        let &[channels, depth, height, width] = batch.shape() else {
            return Err(Error::setting("patches have no axes of space", "report this"));
        };
        let (count, voxels) = (batch.count(), depth * height * width);
        let (mut given, mut wanted) = (Vec::new(), Vec::new());
        for patch in batch.values().chunks_exact(channels * voxels) {
            let (inputs, labels) = patch.split_at((channels - 1) * voxels);
            given.extend_from_slice(inputs);
            wanted.extend(labels.iter().map(|label| *label as i64));
        }
        let wanted = Tensor::from_data(TensorData::new(wanted, [count * voxels]), device);
        let given = TensorData::new(given, [count, channels - 1, depth, height, width]);
        Ok((Flow::new().with(Tensor::<5>::from_data(given, device).cast(dtype)), wanted))
    }

    fn blank(&self, samples: usize, device: &Device) -> Flow {
        let [depth, height, width] = self.edges;
        Flow::new().with(Tensor::<5>::ones([samples, self.channels, depth, height, width], device))
    }
}
