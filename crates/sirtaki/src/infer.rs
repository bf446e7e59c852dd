//! A module of Burn on a volume that fits into no memory, with the result of the whole.
//!
//! [`sirtaki_infer`] knows no framework: it reads tiles, hands them to a [`Model`] and writes what that gives.
//! [`BurnModel`] is a module behind that trait, and [`infer`] is all of it in one call, on all workers of a world.
//!
//! Nobody can read the graph of a module, so how far it looks is told, and checked with noise before anything is written.
//! A tile has the bits of the whole if the module adds up in an order that does not depend on sizes.
//! [`MixedScaleDense`](crate::nn::MixedScaleDense) does, on CPUs.

use std::{
    path::{Path, PathBuf},
    time::SystemTime,
};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Tensor, TensorData},
};
use sha2::{Digest as _, Sha256};
pub use sirtaki_infer::{Content, Facts, InferError, Model, Settings, function::Done};
use sirtaki_infer::{
    function::{self, Asked},
    model::Heard,
};

use crate::{Error, Result, World};

/// Memory of a worker, unless another one is asked for.
const MEMORY: u64 = 512 << 20;

/// What a network sees, and what of a volume it is given.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What is read and written.
    pub settings: Settings,
    /// How far the network looks from each voxel, along each axis or along all.
    pub halo: Vec<u32>,
    /// The steps in which it moves, along each axis or along all: 4 with two poolings by 2.
    pub stride: Vec<u32>,
    /// Bytes that a worker may use.
    pub memory: u64,
}

impl Request {
    /// Of a network that looks this far along all axes, on one volume, to make another one.
    pub fn new(input: &Path, output: &Path, halo: u32) -> Self {
        let settings = Settings { input: input.to_owned(), output: output.to_owned(), ..Settings::default() };
        Self { settings, halo: vec![halo], stride: vec![1], memory: MEMORY }
    }
}

/// Applies a module to a volume, tile by tile, on all workers of a world, which have the same weights.
///
/// `forward` is given one sample, its channels and the axes of space, in as many dimensions as `D`, and gives as many voxels.
/// Call it with a module that keeps no gradients, [`Module::valid`]. After a crash, the same call continues.
///
/// ```no_run
/// use burn::tensor::{Device, Tensor};
/// use sirtaki::{infer::{Request, infer}, nn::{MixedScaleConfig, MixedScaleDense}};
///
/// let world = sirtaki::init()?;
/// let network = MixedScaleConfig { axes: 3, channels: 1, classes: 2, depth: 20, width: 1 }.init(&world.device());
/// let request = Request::new("in.zarr".as_ref(), "out.zarr".as_ref(), 110);
/// infer(&world, &request, &network, |network: &MixedScaleDense, tile: Tensor<5>| network.forward(tile))?;
/// # Ok::<(), sirtaki::Error>(())
/// ```
pub fn infer<const D: usize, M, F>(world: &World, request: &Request, module: &M, forward: F) -> Result<Done>
where
    M: Module + 'static,
    F: Fn(&M, Tensor<D>) -> Tensor<D> + Clone + 'static,
{
    let mut settings = request.settings.clone();
    let absolute = |path: &Path| std::path::absolute(path).map_err(Error::io("find", path));
    (settings.input, settings.output) = (absolute(&settings.input)?, absolute(&settings.output)?);
    settings.model = PathBuf::from("module");
    let begun = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
    let asked = Asked {
        settings,
        halo: request.halo.clone(),
        stride: request.stride.clone(),
        sum: weights(module),
        memory: request.memory,
        // Unlike that of any other process, wherever it runs.
        name: format!("{}:{}:{begun:x}", world.rank(), std::process::id()),
        rank: world.rank(),
        size: world.size(),
        join: false,
    };
    let model = BurnModel::new(module.clone(), world.device(), forward);
    function::apply(&asked, |_| model).map_err(Error::volume)
}

/// A module of Burn that is given tiles.
#[derive(Debug, Clone)]
pub struct BurnModel<const D: usize, M, F> {
    module: M,
    device: Device,
    forward: F,
    facts: Facts,
}

impl<const D: usize, M, F: Fn(&M, Tensor<D>) -> Tensor<D>> BurnModel<D, M, F> {
    /// What `forward` makes of a tile with the module, on the device that this has its weights on.
    pub fn new(module: M, device: Device, forward: F) -> Self {
        Self { module, device, forward, facts: Facts { axes: D.saturating_sub(2), channels: None, fixed: None } }
    }
}

impl<const D: usize, M, F: Fn(&M, Tensor<D>) -> Tensor<D>> Model for BurnModel<D, M, F> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn run(&mut self, sizes: &[u64], values: &mut [f32], out: &mut Heard<'_>) -> std::result::Result<(), InferError> {
        let fails = |problem: String| InferError::Model { path: PathBuf::from("the module"), problem };
        let shape: Vec<usize> = [1].into_iter().chain(sizes.iter().map(|size| *size as usize)).collect();
        let shape: [usize; D] = shape.try_into().map_err(|_| fails(format!("a tile has not {D} dimensions")))?;
        let tile = Tensor::from_data(TensorData::new(values.to_vec(), shape), &self.device);
        let output = (self.forward)(&self.module, tile);
        let sizes = output.dims().map(|size| size as u64);
        if sizes.first() != Some(&1) {
            return Err(fails(format!("it makes {sizes:?} of one sample")));
        }
        let data = output.into_data().convert::<f32>();
        let values = data.as_slice::<f32>().map_err(|error| fails(format!("{error:?}")))?;
        out(&sizes[1..], values)
    }
}

/// A checksum of all parameters: another one for another network.
fn weights<M: Module>(module: &M) -> u64 {
    let mut sum = Sum(Sha256::new());
    module.visit(&mut sum);
    let digest = sum.0.finalize();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

struct Sum(Sha256);

impl ModuleVisitor for Sum {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.update(param.val().into_data().as_bytes());
    }
}
