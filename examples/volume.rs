//! A network on a volume, tile by tile on many processes, with the bits of the whole:
//! `sirtaki run -n 2 -- target/release/examples/volume volume.npy scores.npy net.onnx`.
//!
//! The network has random weights; it is written as an ONNX file, too, for `sirtaki infer` and other programs.
#![allow(clippy::print_stdout, reason = "a program")]

use std::{env, error::Error, fs, path::PathBuf};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Distribution, Tensor},
};
use sirtaki::{
    infer::{Request, infer},
    nn::{MixedScaleConfig, MixedScaleDense},
};

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let [input, output, onnx] = paths.as_slice() else {
        return Err("name a volume, the output and an ONNX file".into());
    };
    let world = sirtaki::init()?;
    let config = MixedScaleConfig { axes: 3, channels: 1, classes: 2, depth: 6, width: 2 };
    let network = world.broadcast(config.init(&world.device()).map(&mut Random), 0)?;
    if world.rank() == 0 {
        fs::write(onnx, network.to_onnx(&[(0.5, 0.25)]))?;
    }
    let request = Request::new(input, output, config.reach() as u32);
    let scaled = |network: &MixedScaleDense, tile: Tensor<5>| network.forward((tile - 0.5) / 0.25);
    let done = infer(&world, &request, &network, scaled)?;
    println!("{} tiles, read with {:?} voxels around them", done.report.tiles, done.halo);
    Ok(())
}

/// Weights as if something had been learned: before that, all scores are zero.
struct Random;

impl ModuleMapper for Random {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let random = tensor.random_like(Distribution::Uniform(-0.2, 0.2));
        Param::from_mapped_value(id, random, mapper)
    }
}
