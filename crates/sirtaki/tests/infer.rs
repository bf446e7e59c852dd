//! Modules of Burn on volumes, tile by tile: the bits of the whole.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::Path};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{Device, Distribution, Tensor, TensorData},
};
use sirtaki::{
    Error,
    infer::{Request, Settings, infer},
    mirrored,
    nn::{MixedScaleConfig, MixedScaleDense},
};
use sirtaki_volume::Extent;

const SIZES: [usize; 3] = [21, 26, 33];

/// Writes a volume of NumPy with numbers that repeat nowhere, and gives them.
fn volume(path: &Path) -> Vec<f32> {
    let [depth, height, width] = SIZES;
    let number = |voxel: usize| (voxel.wrapping_mul(2_654_435_761) >> 4 & 0xfff) as f32 / 4096.0 - 0.5;
    let values: Vec<f32> = (0..depth * height * width).map(number).collect();
    let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({depth}, {height}, {width}), }}");
    let header = format!("{text:<117}\n");
    let start = [b"\x93NUMPY\x01\x00".as_slice(), &118_u16.to_le_bytes(), header.as_bytes()].concat();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    fs::write(path, [start, bytes].concat()).unwrap();
    values
}

/// The numbers of a volume of NumPy.
fn read(path: &Path) -> Vec<u32> {
    let bytes = fs::read(path).unwrap();
    let begin = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[begin..].as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

struct Random;

impl ModuleMapper for Random {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        Param::from_mapped_value(id, tensor.random_like(Distribution::Uniform(-0.3, 0.3)), mapper)
    }
}

fn network() -> MixedScaleDense {
    let config = MixedScaleConfig { axes: 3, channels: 1, classes: 2, depth: 3, width: 2 };
    config.init(&Device::flex()).map(&mut Random)
}

fn forward(network: &MixedScaleDense, tile: Tensor<5>) -> Tensor<5> {
    network.forward(tile)
}

#[test]
fn tiles_of_any_workers_have_the_bits_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (input, network) = (folder.path().join("in.npy"), network());
    let [depth, height, width] = SIZES;
    let values = TensorData::new(volume(&input), [1, 1, depth, height, width]);
    let whole = network.forward(Tensor::from_data(values, &Device::flex())).into_data();
    let whole: Vec<u32> = whole.iter::<f32>().map(f32::to_bits).collect();
    for workers in [1, 2] {
        let output = folder.path().join(format!("out{workers}.npy"));
        let mut request = Request::new(&input, &output, network.config().reach() as u32);
        request.settings.tile = Some(Extent::new([9, 11, 16]).unwrap());
        let done = mirrored(workers, |world| infer(world, &request, &network, forward));
        let tiles: u64 = done.unwrap().iter().map(|done| done.report.tiles).sum();
        assert_eq!(tiles, 3 * 3 * 3);
        assert!(read(&output) == whole, "{workers} workers");
    }
}

#[test]
fn what_is_told_is_checked_and_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.npy"), folder.path().join("out.npy"));
    volume(&input);
    let said = |request: &Request| {
        let refused = mirrored(1, |world| {
            let error = infer(world, request, &network(), forward).unwrap_err();
            assert!(error.hint().is_some(), "{error}");
            Ok::<_, Error>(error.to_string())
        });
        refused.unwrap().remove(0)
    };
    let near = Request::new(&input, &output, 2);
    assert!(said(&near).contains("with a halo of 2 voxels along axis 0, tiles differ"), "{}", said(&near));
    let nowhere = Settings { input: folder.path().join("nowhere.npy"), ..near.settings.clone() };
    assert!(said(&Request { settings: nowhere, ..near }).contains("nowhere.npy"));
    let plane = |network: &MixedScaleDense, tile: Tensor<4>| network.forward(tile.unsqueeze_dim(2)).squeeze_dim(2);
    let refused = mirrored(1, |world| {
        let request = Request::new(&input, &output, 6);
        Ok::<_, Error>(infer(world, &request, &network(), plane).unwrap_err().to_string())
    });
    assert!(refused.unwrap()[0].contains("has 3 axes of space, and the network takes 2"));
    assert!(!output.exists());
}
