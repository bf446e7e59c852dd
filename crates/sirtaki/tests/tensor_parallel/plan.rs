//! Layers split by a plan of names.

use burn::{
    module::Module,
    nn::{LayerNorm, LayerNormConfig, LinearConfig},
    optim::{GradientsParams, SgdConfig},
    tensor::{Device, FloatDType, IntDType, Tensor, TensorData, activation::relu},
};
use sirtaki::{
    Result, World, launch,
    tensor_parallel::{PlannedLinear, SplitBy as By, split_by_plan},
};

use super::{FEATURES, largest_difference, numbers};

#[derive(Module, Debug)]
struct Block {
    norm: LayerNorm,
    up: PlannedLinear,
    down: PlannedLinear,
}

#[derive(Module, Debug)]
struct Blocks {
    layers: Vec<Block>,
    last: PlannedLinear,
}

fn blocks(world: &World, device: &Device) -> Blocks {
    device.seed(5);
    let linear = |from, to| {
        let layer = LinearConfig::new(from, to).init(device);
        numbers(&layer);
        PlannedLinear::new(world, layer)
    };
    let norm = || LayerNormConfig::new(FEATURES).init(device);
    let block = |_| Block { norm: norm(), up: linear(FEATURES, 13), down: linear(13, FEATURES) };
    Blocks { layers: (0..2).map(block).collect(), last: linear(FEATURES, 3) }
}

/// Losses of some steps.
fn trained_blocks(mut model: Blocks, device: &Device) -> Vec<f64> {
    let mut optimizer = SgdConfig::new().init();
    let rows = Tensor::<2>::from_data(TensorData::new((0..40).map(f64::from).collect(), [5, FEATURES]), device) / 20.0;
    let step = |_| {
        let block = |values: Tensor<2>, block: &Block| {
            values.clone() + block.down.forward(relu(block.up.forward(block.norm.forward(values))))
        };
        let values = model.layers.iter().fold(rows.clone(), block);
        let loss = (model.last.forward(values) - 1.0).square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.05, model.clone(), gradients);
        loss.into_data().iter::<f64>().next().unwrap()
    };
    (0..STEPS).map(step).collect()
}

const STEPS: usize = 15;
const PLAN: [(&str, By); 2] = [("layers.*.up", By::Column), ("layers.*.down", By::Row)];

#[test]
fn a_plan_splits_layers_by_name() {
    let results = launch(3, |world: &World| -> Result<_> {
        let mut device = world.device();
        device.configure((FloatDType::F64, IntDType::I64)).unwrap();
        let device = device.autodiff();
        let whole = blocks(world, &device);
        let (split, left) = split_by_plan(world, blocks(world, &device), &PLAN)?;
        let sizes = [split.layers[1].up.weight.dims(), split.layers[1].down.weight.dims()];
        Ok((trained_blocks(whole, &device), trained_blocks(split, &device), left, sizes))
    });
    for (rank, (whole, split, left, sizes)) in results.unwrap().into_iter().enumerate() {
        assert!(whole[STEPS - 1] < 0.9 * whole[0], "nothing was learnt: {whole:?}");
        assert!(largest_difference(&whole, &split) <= 1e-10, "{whole:?} {split:?}");
        let here = [5, 4, 4][rank];
        assert_eq!(sizes, [[FEATURES, here], [here, FEATURES]]);
        let norms =
            ["0", "1"].iter().flat_map(|layer| ["gamma", "beta"].map(|name| format!("layers.{layer}.norm.{name}")));
        let expected: Vec<String> = norms.chain(["last.weight", "last.bias"].map(String::from)).collect();
        assert_eq!(left, expected);
    }
}

#[test]
fn plans_that_name_nothing_are_refused_on_every_rank() {
    let errors = launch(2, |world: &World| -> Result<_> {
        let device = world.device();
        let refused = |plan: &[(&str, By)]| {
            let error = split_by_plan(world, blocks(world, &device), plan).unwrap_err();
            format!("{error}; {}", error.hint().unwrap_or_default())
        };
        let other = if world.rank() == 0 { "layers.0.up" } else { "layers.1.up" };
        Ok([
            refused(&[("layers.*.upp", By::Column)]),
            refused(&[("layers.*.norm", By::Column)]),
            refused(&[("layers.*.up", By::Column), ("layers.0.up", By::Row)]),
            refused(&[(other, By::Column)]),
        ])
    });
    for said in errors.unwrap() {
        assert!(
            said[0].starts_with("the plan names `layers.*.upp`, and the module has no such layer; "),
            "{}",
            said[0]
        );
        assert!(said[0].contains("last, layers.0.down, layers.0.up"), "{}", said[0]);
        assert!(said[1].contains("`layers.*.norm`, and that is no PlannedLinear"), "{}", said[1]);
        assert!(said[2].contains("splits `layers.0.up` by Column and by Row"), "{}", said[2]);
        assert!(said[3].contains("worker 1 has another plan"), "{}", said[3]);
    }
}
