//! A job with everything decided: what all its processes have to agree in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sirtaki_volume::{
    Extent, Region, VolumeError,
    blend::{Weighting, Windows},
    format::VolumeLayout,
    grid::{
        order::ordered,
        plan::{Plan, PlanSpec},
    },
    ledger::{Identity, Ledger},
    normalise::Scaling,
    reach::{Reach, onnx::rewrite::ChannelStatistics},
};

use crate::{Content, InferError, Settings, labels};

/// What most use: voxels at the border of a window count almost nothing.
const WEIGHTING: Weighting = Weighting::Gaussian(0.125);

/// A job with everything decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What was asked for.
    pub settings: Settings,
    /// The channels of the input that the network is given.
    pub channels: Vec<u64>,
    /// The tiles.
    pub spec: PlanSpec,
    /// The numbers of the tiles that are needed, where a mask says so.
    pub tiles: Option<Vec<u64>>,
    /// The output.
    pub layout: VolumeLayout,
    /// How far the network looks.
    pub reach: Reach,
    /// The error of smaller halos, in standard deviations of the output, along each axis.
    pub error: Option<Vec<f64>>,
    /// What the network is given at a time, where windows are blended.
    #[serde(default)]
    pub window: Option<Extent>,
    /// What is done to each channel of the input before the network sees it, once that is known.
    #[serde(default)]
    pub scaling: Option<Vec<Scaling>>,
    /// The statistics of the whole volume that normalisation is given, in the order of computing, once they are known.
    #[serde(default)]
    pub statistics: Vec<ChannelStatistics>,
    /// Bytes that a process needs, as far as that can be said beforehand.
    pub memory: u64,
    /// The checksum of the network's file.
    pub model_sum: u64,
    /// What is known of the input: another one of the same name has another.
    pub input_sum: u64,
}

impl Job {
    /// The tiles.
    pub fn plan(&self) -> Result<Plan, InferError> {
        Ok(Plan::new(self.spec.clone())?)
    }

    /// The numbers of the tiles that are needed, each next to the one before.
    pub fn order(&self, plan: &Plan) -> Result<Vec<u64>, InferError> {
        match &self.tiles {
            Some(tiles) => Ok(tiles.clone()),
            None => Ok(ordered(plan, |_| Ok(true))?),
        }
    }

    /// The numbers of everything that has to be done, as the ledger knows them: the tiles, and for labels what comes after them.
    pub fn steps(&self, plan: &Plan) -> Result<Vec<u64>, InferError> {
        let tiles = self.order(plan)?;
        Ok(match self.settings.content {
            Content::Labels => labels::steps(&tiles),
            _ => tiles,
        })
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self, ledger: &Ledger) -> Result<bool, InferError> {
        Ok(self.steps(&self.plan()?)?.iter().all(|step| ledger.done().contains_key(step)))
    }

    /// How many tiles are computed.
    pub fn tiles_done(&self, plan: &Plan, ledger: &Ledger) -> usize {
        ledger.done().range(..plan.tiles()).count()
    }

    /// The windows that are blended, if that is asked for.
    pub fn windows(&self) -> Result<Option<Windows>, VolumeError> {
        let Some((window, overlap)) = self.window.as_ref().zip(self.settings.blend) else { return Ok(None) };
        Ok(Some(Windows::new(&self.spec.output, window, overlap, WEIGHTING)?))
    }

    /// How many voxels the network computes for each voxel that is written: 1 is no recomputation.
    pub fn cost(&self, plan: &Plan) -> Result<f64, InferError> {
        let (Some(windows), Some(window)) = (self.windows()?, &self.window) else { return Ok(plan.cost()) };
        let (mut computed, mut written) = (0, 0);
        for tile in self.order(plan)? {
            let core = plan.tile(tile).core;
            computed += windows.meeting(&core).len() as u64 * window.voxels();
            written += core.voxels();
        }
        Ok(computed as f64 / written as f64)
    }

    /// What processes that share a ledger have to agree in.
    pub fn identity(&self) -> Identity {
        let settings = &self.settings;
        let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let halo = self.spec.halo.iter().map(|halo| format!("{}+{}", halo.before.max(0), halo.after.max(0)));
        let mut facts = BTreeMap::from([
            ("model", format!("{} ({:016x})", settings.model.display(), self.model_sum)),
            ("input", format!("{} ({}, {:016x})", settings.input.display(), self.spec.input, self.input_sum)),
            ("content", settings.content.name().to_owned()),
            ("channels", list(&self.channels)),
            ("halo", halo.collect::<Vec<_>>().join(",")),
            ("tile", list(self.spec.core.sizes())),
            ("chunk", list(&self.layout.unit())),
        ]);
        if let Some(region) = &self.spec.wanted {
            facts.insert("region", region.to_string());
        }
        if let Some((window, overlap)) = self.window.as_ref().zip(settings.blend) {
            facts.insert("blend", format!("{overlap} of {window}"));
        }
        if settings.global_statistics {
            facts.insert("statistics", "of the whole volume".to_owned());
        }
        if let Some(normalise) = settings.normalise {
            facts.insert("normalise", format!("{normalise:?}"));
        }
        if let Some(mask) = &settings.mask {
            facts.insert("mask", mask.display().to_string());
        }
        Identity(facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// A region of the axes of space as one of the output's file.
    pub fn in_output(&self, region: &Region) -> Result<Region, VolumeError> {
        let (shape, space) = (self.layout.shape.sizes(), region.axes());
        let before = shape.len() - space;
        let start: Vec<u64> = std::iter::repeat_n(0, before).chain(region.start().iter().copied()).collect();
        let size: Vec<u64> = shape[..before].iter().chain(region.size()).copied().collect();
        Region::new(start, size)
    }

    /// How many voxels the output has along the axes of space.
    pub fn space(&self) -> &Extent {
        &self.spec.output
    }
}
