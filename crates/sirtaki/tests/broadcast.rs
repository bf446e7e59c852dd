//! Modules made equal: every kind of tensor, running statistics, and what happens where modules differ.

#![allow(clippy::unwrap_used, reason = "tests")]

use burn::{
    module::{Initializer, Module, Param, ParamId},
    nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig},
    tensor::{Bool, Device, Int, Tensor, TensorData},
};
use sirtaki::{LaunchError, Result, World, launch};

#[derive(Module, Debug)]
struct Everything {
    layers: Vec<Linear>,
    norm: BatchNorm,
    counts: Param<Tensor<1, Int>>,
    mask: Param<Tensor<1, Bool>>,
    frozen: Param<Tensor<2>>,
}

impl Everything {
    fn new(device: &Device, rank: usize) -> Self {
        device.seed(rank as u64);
        let number = rank as i64;
        Self {
            layers: vec![LinearConfig::new(3, 4).init(device), LinearConfig::new(4, 2).with_bias(false).init(device)],
            norm: BatchNormConfig::new(2).init(device),
            counts: Param::initialized(ParamId::new(), Tensor::from_data([number, 7 + number], device)),
            mask: Param::initialized(ParamId::new(), Tensor::from_data([rank == 1, rank == 2], device)),
            frozen: Initializer::Constant { value: rank as f64 }.init([2, 2], device).set_require_grad(false),
        }
    }

    /// Everything that is in it.
    fn contents(&self) -> (Vec<Vec<f32>>, Vec<i32>, Vec<bool>, Vec<u64>) {
        let floats = |data: TensorData| data.try_to_vec::<f32>().unwrap();
        let mut tensors: Vec<Vec<f32>> =
            self.layers.iter().map(|layer| floats(layer.weight.val().into_data())).collect();
        tensors.push(floats(self.layers[0].bias.as_ref().unwrap().val().into_data()));
        tensors.push(floats(self.norm.running_mean.value_sync().into_data()));
        tensors.push(floats(self.frozen.val().into_data()));
        let counts = self.counts.val().into_data().try_to_vec().unwrap();
        let mask = self.mask.val().into_data().try_to_vec().unwrap();
        (tensors, counts, mask, self.layers.iter().map(|layer| layer.weight.id.val()).collect())
    }
}

fn forward(norm: &BatchNorm, value: f32) {
    let device = norm.gamma.device();
    norm.forward(Tensor::<2>::from_data([[value, 0.0], [value, 2.0]], &device));
}

#[test]
fn all_ranks_have_what_the_root_has() {
    let results = launch(3, |world| -> Result<_> {
        let module = Everything::new(&world.device().autodiff(), world.rank());
        forward(&module.norm, world.rank() as f32);
        let before = module.contents();
        let module = world.broadcast(module, 2)?;
        assert!(module.layers[0].weight.is_require_grad() && !module.frozen.is_require_grad());
        Ok((before, module.contents()))
    });
    let results = results.unwrap();
    let root = &results[2].0;
    assert_ne!(results[0].0, results[1].0);
    assert!(results.iter().all(|(_, after)| after == root), "{results:?}");
    assert_eq!((root.0[3].as_slice(), &root.1, &root.2), ([0.2, 0.1].as_slice(), &vec![2, 9], &vec![false, true]));
}

#[test]
fn running_statistics_are_averaged_and_go_on_from_there() {
    let results = launch(3, |world| -> Result<_> {
        let module = Everything::new(&world.device().autodiff(), world.rank());
        let frozen = module.frozen.clone().map(|tensor| tensor.mul_scalar(0.0).add_scalar(0.1));
        let module = Everything { frozen, ..module };
        forward(&module.norm, 10.0 * world.rank() as f32);
        let module = world.average_statistics(module)?;
        let mean = module.norm.running_mean.value_sync().into_data().try_to_vec::<f32>().unwrap();
        forward(&module.norm, 1.0);
        let next = module.norm.running_mean.value_sync().into_data().try_to_vec::<f32>().unwrap();
        Ok((mean[0], next[0], module.frozen.val().into_data().try_to_vec::<f32>().unwrap()))
    });
    for (mean, next, frozen) in results.unwrap() {
        // Means of 0, 10 and 20 count a tenth each; the next mean, 1, does too.
        assert!((mean - 1.0).abs() < 1e-6 && (next - 1.0).abs() < 1e-6, "{mean} {next}");
        assert_eq!(frozen, [0.1; 4]);
    }
}

fn refusal(linear: impl Fn(&World, &Device) -> Linear) -> String {
    let outcome = launch(2, |world| -> Result<()> {
        world.broadcast(linear(world, &world.device().autodiff()), 0)?;
        Ok(())
    });
    match outcome.unwrap_err() {
        LaunchError::Rank { message, .. } => message,
        other => panic!("{other}"),
    }
}

#[test]
fn modules_that_differ_are_refused_and_nobody_waits() {
    let shapes = refusal(|world, device| LinearConfig::new(3, 4 + world.rank()).init(device));
    assert!(shapes.contains("broadcast/weight") && shapes.contains("rank 1 shape [3, 5]"), "{shapes}");
    let structure = refusal(|world, device| LinearConfig::new(3, 4).with_bias(world.rank() == 0).init(device));
    assert!(structure.contains("different groups") || structure.contains("shape"), "{structure}");
}

#[test]
fn a_process_that_nobody_launched_is_a_world_of_one() {
    let world = sirtaki::init().unwrap();
    let module = world.broadcast(Everything::new(&world.device(), 1), 0).unwrap();
    assert_eq!((world.rank(), world.size(), world.local_rank(), world.local_size()), (0, 1, 0, 1));
    assert_eq!((world.average(2.5).unwrap(), module.contents().1), (2.5, vec![1, 8]));
}
