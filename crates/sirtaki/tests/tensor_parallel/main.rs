//! Layers that are split over ranks: the numbers of a process that has all of them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod plan;
mod sequence;

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask},
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
    },
    optim::{GradientsParams, SgdConfig},
    tensor::{Device, Distribution, FloatDType, Int, IntDType, Tensor, TensorData, activation::relu},
};
use sirtaki::{
    Result, World, launch,
    tensor_parallel::{
        ColumnConv2d, ColumnLinear, RowConv2d, RowLinear, SplitAttention, SplitCrossEntropy, SplitEmbedding,
    },
};

const WORDS: usize = 11;
const FEATURES: usize = 8;

/// Embedding, attention, two dense layers and the scores of all words.
#[derive(Module, Debug)]
struct Whole {
    embedding: Embedding,
    norm: LayerNorm,
    attention: MultiHeadAttention,
    up: Linear,
    down: Linear,
    scores: Linear,
}

#[derive(Module, Debug)]
struct Split {
    embedding: SplitEmbedding,
    norm: LayerNorm,
    attention: SplitAttention,
    up: ColumnLinear,
    down: RowLinear,
    scores: ColumnLinear,
}

fn whole(device: &Device) -> Whole {
    device.seed(7);
    let attention = MultiHeadAttentionConfig::new(FEATURES, 4).with_dropout(0.0);
    let whole = Whole {
        embedding: EmbeddingConfig::new(WORDS, FEATURES).init(device),
        norm: LayerNormConfig::new(FEATURES).init(device),
        attention: attention.init(device),
        up: LinearConfig::new(FEATURES, 13).init(device),
        down: LinearConfig::new(13, FEATURES).init(device),
        scores: LinearConfig::new(FEATURES, WORDS).init(device),
    };
    // Burn draws the numbers of a parameter when they are first asked for.
    numbers(&whole);
    whole
}

fn split(world: &World, whole: Whole) -> Result<Split> {
    Ok(Split {
        embedding: SplitEmbedding::new(world, whole.embedding)?,
        norm: whole.norm,
        attention: SplitAttention::new(world, whole.attention)?,
        up: ColumnLinear::new(world, whole.up)?,
        down: RowLinear::new(world, whole.down)?,
        scores: ColumnLinear::new(world, whole.scores)?,
    })
}

/// Words, and the ones that follow them.
fn words(device: &Device) -> [Tensor<2, Int>; 2] {
    [0, 1].map(|shift| {
        let words: Vec<i64> = (0..12_i64).map(|place| (place * 5 + shift * 3) % WORDS as i64).collect();
        Tensor::from_data(TensorData::new(words, [2, 6]), device)
    })
}

fn loss_of_whole(model: &Whole, device: &Device) -> Tensor<1> {
    let [words, next] = words(device);
    let hidden = model.norm.forward(model.embedding.forward(words));
    let mask = generate_autoregressive_mask(2, 6, device);
    let hidden = hidden.clone() + model.attention.forward(MhaInput::self_attn(hidden).mask_attn(mask)).context;
    let hidden = hidden.clone() + model.down.forward(relu(model.up.forward(hidden)));
    let scores = model.scores.forward(hidden).reshape([12, WORDS]);
    CrossEntropyLossConfig::new().init(device).forward(scores, next.reshape([12]))
}

fn loss_of_split(model: &Split, loss: &SplitCrossEntropy, device: &Device) -> Tensor<1> {
    let [words, next] = words(device);
    let hidden = model.norm.forward(model.embedding.forward(words));
    let mask = generate_autoregressive_mask(2, 6, device);
    let hidden = hidden.clone() + model.attention.forward(hidden, Some(mask));
    let hidden = hidden.clone() + model.down.forward(relu(model.up.forward(hidden)));
    let scores = model.scores.forward(hidden);
    let [samples, length, here] = scores.dims();
    loss.forward(scores.reshape([samples * length, here]), next.reshape([12]))
}

/// All parameters, one after another.
#[derive(Default)]
struct Numbers(Vec<f64>);

impl ModuleVisitor for Numbers {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.val().into_data().iter::<f64>());
    }
}

fn numbers(module: &impl Module) -> Vec<f64> {
    let mut numbers = Numbers::default();
    module.visit(&mut numbers);
    numbers.0
}

/// Losses of some steps, and the parameters at the end of those parts that all ranks have.
fn train(steps: usize, mut step: impl FnMut() -> f64) -> Vec<f64> {
    (0..steps).map(|_| step()).collect()
}

fn trained_whole(device: &Device, steps: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut model, mut optimizer) = (Some(whole(device)), SgdConfig::new().init());
    let losses = train(steps, || {
        let now = model.take().unwrap();
        let loss = loss_of_whole(&now, device);
        let value = loss.clone().into_data().iter::<f64>().next().unwrap();
        let gradients = GradientsParams::from_grads(loss.backward(), &now);
        model = Some(optimizer.step(0.1, now, gradients));
        value
    });
    (losses, numbers(&model.unwrap().norm))
}

fn trained_split(world: &World, device: &Device, steps: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut model, mut optimizer) = (Some(split(world, whole(device))?), SgdConfig::new().init());
    let loss = SplitCrossEntropy::new(world, WORDS)?;
    let losses = train(steps, || {
        let now = model.take().unwrap();
        let loss = loss_of_split(&now, &loss, device);
        let value = loss.clone().into_data().iter::<f64>().next().unwrap();
        let gradients = GradientsParams::from_grads(loss.backward(), &now);
        model = Some(optimizer.step(0.1, now, gradients));
        value
    });
    Ok((losses, numbers(&model.unwrap().norm)))
}

fn largest_difference(left: &[f64], right: &[f64]) -> f64 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
}

#[test]
fn a_transformer_in_f64_learns_as_in_one_process() {
    for ranks in [2, 3, 4] {
        let results = launch(ranks, |world: &World| -> Result<_> {
            let mut device = world.device();
            device.configure((FloatDType::F64, IntDType::I64)).unwrap();
            let device = device.autodiff();
            let alone = trained_whole(&device, 100);
            Ok((alone, trained_split(world, &device, 100)?))
        });
        let results = results.unwrap();
        for ((alone_losses, alone_norm), (losses, norm)) in &results {
            assert!(alone_losses[99] < alone_losses[0] / 2.0, "nothing was learnt: {alone_losses:?}");
            let (by_loss, by_norm) = (largest_difference(alone_losses, losses), largest_difference(alone_norm, norm));
            assert!(by_loss <= 1e-10 && by_norm <= 1e-10, "{ranks} ranks: {by_loss:e} and {by_norm:e}");
            assert_eq!(norm, &results[0].1.1, "what all ranks have is not the same on all");
        }
    }
}

#[test]
fn convolutions_split_by_channels_are_the_whole_ones() {
    let results = launch(3, |world: &World| -> Result<_> {
        let device = world.device().autodiff();
        device.seed(3);
        let convolution = |from, to| -> Conv2d { Conv2dConfig::new([from, to], [3, 3]).init(&device) };
        let (first, second, third) = (convolution(2, 7), convolution(7, 5), convolution(5, 4));
        let input = Tensor::<4>::random([2, 2, 12, 12], Distribution::Default, &device).require_grad();
        let output = third.forward(second.forward(relu(first.forward(input.clone()))));
        let gradients = output.clone().square().sum().backward();
        let wanted = [output, input.grad(&gradients).unwrap(), second.bias.as_ref().unwrap().grad_wide(&gradients)];
        let bias = |layer: &RowConv2d| layer.bias.as_ref().unwrap().clone();
        let parts =
            (ColumnConv2d::new(world, first)?, RowConv2d::new(world, second)?, ColumnConv2d::new(world, third)?);
        let output = parts.2.forward_whole(parts.1.forward(relu(parts.0.forward(input.clone()))));
        let gradients = output.clone().square().sum().backward();
        let found = [output, input.grad(&gradients).unwrap(), bias(&parts.1).grad_wide(&gradients)];
        let error = |(wanted, found): (Tensor<4>, Tensor<4>)| {
            let norm = wanted.clone().square().sum().into_scalar::<f32>();
            ((wanted - found.clone()).square().sum().into_scalar::<f32>() / norm).sqrt()
        };
        let bits: Vec<u32> = found[1].clone().into_data().iter::<f32>().map(f32::to_bits).collect();
        let errors: Vec<f32> = wanted.into_iter().zip(found).map(error).collect();
        Ok((errors, bits))
    });
    let results = results.unwrap();
    for (errors, bits) in &results {
        assert!(errors.iter().all(|error| *error <= 1e-6), "{errors:?}");
        assert_eq!(bits, &results[0].1, "gradients that all ranks have differ");
    }
}

trait GradWide {
    fn grad_wide(&self, gradients: &burn::tensor::Gradients) -> Tensor<4>;
}

impl GradWide for Param<Tensor<1>> {
    fn grad_wide(&self, gradients: &burn::tensor::Gradients) -> Tensor<4> {
        self.val().grad(gradients).unwrap().reshape([1, -1, 1, 1])
    }
}

#[test]
fn what_cannot_be_split_is_refused_on_every_rank() {
    let errors = launch(3, |world: &World| -> Result<_> {
        let device = world.device();
        let linear = ColumnLinear::new(world, LinearConfig::new(4, 2).init(&device)).unwrap_err();
        let attention = MultiHeadAttentionConfig::new(8, 2).init(&device);
        let attention = SplitAttention::new(world, attention).unwrap_err();
        let groups = Conv2dConfig::new([4, 4], [3, 3]).with_groups(2).init(&device);
        let groups = ColumnConv2d::new(world, groups).unwrap_err();
        Ok([linear, attention, groups].map(|error| error.to_string()))
    });
    for said in errors.unwrap() {
        assert_eq!(said[0], "a layer with 2 outputs cannot be split over 3 workers");
        assert_eq!(said[1], "a layer with 2 heads cannot be split over 3 workers");
        assert_eq!(said[2], "a convolution with 2 groups of channels cannot be split");
    }
}
