//! Sequences of which every worker has a part: the numbers of a process that has whole ones, dropout included.

use burn::{
    module::Module,
    nn::{
        LayerNorm, LayerNormConfig, LinearConfig,
        attention::{MultiHeadAttentionConfig, generate_autoregressive_mask},
    },
    optim::{GradientsParams, SgdConfig},
    tensor::{Device, FloatDType, IntDType, Tensor, TensorData, activation::relu},
};
use sirtaki::{
    Result, ShardDropout, World, launch,
    random::Stream,
    seed,
    tensor_parallel::{ColumnLinear, RowLinear, SequenceParts, SplitAttention},
};

use super::{FEATURES, largest_difference, numbers};

const LENGTH: usize = 7;
const STEPS: usize = 15;

#[derive(Module, Debug)]
struct Block {
    norms: [LayerNorm; 2],
    attention: SplitAttention,
    up: ColumnLinear,
    down: RowLinear,
    dropouts: [ShardDropout; 2],
    scores: ColumnLinear,
}

fn block(world: Option<&World>, device: &Device) -> Result<Block> {
    device.seed(9);
    let attention = MultiHeadAttentionConfig::new(FEATURES, 4).with_dropout(0.0).init(device);
    let linear = |from, to| LinearConfig::new(from, to).init(device);
    let (up, down, scores) = (linear(FEATURES, 13), linear(13, FEATURES), linear(FEATURES, 5));
    // Burn draws the numbers of a parameter when they are first asked for.
    numbers(&attention);
    for layer in [&up, &down, &scores] {
        numbers(layer);
    }
    let norm = || LayerNormConfig::new(FEATURES).init(device);
    Ok(Block {
        norms: [norm(), norm()],
        attention: SplitAttention::new(world, attention)?,
        up: ColumnLinear::new(world, up)?,
        down: RowLinear::new(world, down)?,
        dropouts: [ShardDropout::new("first", 0.2)?, ShardDropout::new("second", 0.2)?],
        scores: ColumnLinear::new(world, scores)?,
    })
}

fn loss_of_whole(block: &Block, values: Tensor<3>) -> Tensor<1> {
    let [norm, other_norm] = &block.norms;
    let [dropout, other_dropout] = &block.dropouts;
    let mask = generate_autoregressive_mask(2, LENGTH, &values.device());
    let context = block.attention.forward(norm.forward(values.clone()), Some(mask));
    let values = values + dropout.forward(context);
    let hidden = relu(block.up.forward(other_norm.forward(values.clone())));
    let values = values + other_dropout.forward(block.down.forward(hidden));
    (block.scores.forward_whole(values) - 1.0).square().mean()
}

fn loss_of_parts(block: &Block, parts: &SequenceParts, values: Tensor<3>) -> Tensor<1> {
    let [norm, other_norm] = &block.norms;
    let [dropout, other_dropout] = &block.dropouts;
    let mask = generate_autoregressive_mask(2, LENGTH, &values.device());
    let values = parts.split(values);
    assert_eq!(values.dims()[1], parts.own().len());
    let hidden = parts.module(norm).forward(values.clone());
    let values = values + parts.dropout(dropout, block.attention.forward_parts(parts, hidden, Some(mask)));
    let hidden = relu(block.up.forward_parts(parts, parts.module(other_norm).forward(values.clone())));
    let values = values + parts.dropout(other_dropout, block.down.forward_parts(parts, hidden));
    (block.scores.forward_whole(parts.join(values)) - 1.0).square().mean()
}

/// Losses, and at the end the parameters that all workers have, after steps with this loss.
fn trained(mut block: Block, device: &Device, loss: impl Fn(&Block, Tensor<3>) -> Tensor<1>) -> (Vec<f64>, Vec<f64>) {
    let mut optimizer = SgdConfig::new().init();
    let count = 2 * LENGTH * FEATURES;
    let values: Vec<f64> = (0..count).map(|number| (number * 7 % 11) as f64 / 11.0).collect();
    let values = Tensor::<3>::from_data(TensorData::new(values, [2, LENGTH, FEATURES]), device);
    let mut losses = Vec::new();
    for step in 0..STEPS {
        seed(device, Stream::new("forward", &[step as u64]));
        let loss = loss(&block, values.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &block);
        block = optimizer.step(0.05, block, gradients);
        losses.push(loss.into_data().iter::<f64>().next().unwrap());
    }
    let bias = block.down.bias.as_ref().map(numbers).unwrap();
    (losses, [numbers(&block.norms[0]), numbers(&block.norms[1]), bias].concat())
}

#[test]
fn parts_of_sequences_are_learnt_from_as_whole_ones() {
    for ranks in [2, 3] {
        let results = launch(ranks, |world: &World| -> Result<_> {
            let mut device = world.device();
            device.configure((FloatDType::F64, IntDType::I64)).unwrap();
            let device = device.autodiff();
            let whole = trained(block(None, &device)?, &device, loss_of_whole);
            let parts = SequenceParts::new(world, LENGTH)?;
            let loss = |block: &Block, values| loss_of_parts(block, &parts, values);
            Ok((whole, trained(block(Some(world), &device)?, &device, loss)))
        });
        let results = results.unwrap();
        for ((whole, common), (split, split_common)) in &results {
            assert!(whole[STEPS - 1] < 0.9 * whole[0], "nothing was learnt: {whole:?}");
            let (by_loss, by_common) = (largest_difference(whole, split), largest_difference(common, split_common));
            assert!(by_loss <= 1e-10 && by_common <= 1e-10, "{ranks} ranks: {by_loss:e} and {by_common:e}");
            assert_eq!(split_common, &results[0].1.1, "what all ranks have is not the same on all");
        }
    }
}

#[test]
fn sequences_that_are_too_short_are_refused() {
    let errors = launch(3, |world: &World| -> Result<_> { Ok(SequenceParts::new(world, 2).unwrap_err().to_string()) });
    for said in errors.unwrap() {
        assert_eq!(said, "a layer with 2 positions cannot be split over 3 workers");
    }
}
