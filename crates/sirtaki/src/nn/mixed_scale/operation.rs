//! The whole network as one operation, with its gradients: something that Burn's back end does not have.

use std::sync::Arc;

use burn::{
    backend::{
        Autodiff, Backend, Dispatch, Flex,
        autodiff::{
            checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
        backend_extension,
        flex::FlexTensor,
        tensor::FloatTensor,
    },
    tensor::Tensor,
};

use super::{
    super::raw::{tensor, values},
    sweep::{self, Shape, WeightSums},
};

/// Volumes, the weights of all layers and of the scores one after the other, and their biases, all on a CPU.
pub(super) fn forward(volumes: Tensor<5>, weights: Tensor<1>, biases: Tensor<1>, shape: Shape) -> Tensor<5> {
    let (volumes, weights, biases) = (volumes.into_dispatch(), weights.into_dispatch(), biases.into_dispatch());
    Tensor::from_dispatch(<Dispatch as MixedScaleScores>::mixed_scale_scores(volumes, weights, biases, shape))
}

/// A back end that can compute a mixed-scale dense network.
#[backend_extension(Flex, Autodiff)]
trait MixedScaleScores: Backend {
    fn mixed_scale_scores(
        volumes: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        biases: FloatTensor<Self>,
        shape: Shape,
    ) -> FloatTensor<Self>;
}

impl MixedScaleScores for Flex {
    /// One buffer serves all samples.
    fn mixed_scale_scores(volumes: FlexTensor, weights: FlexTensor, biases: FlexTensor, shape: Shape) -> FlexTensor {
        let mut maps = vec![0.0; shape.maps() * shape.voxels()];
        scores(&volumes, (&weights, &biases), shape, |volume, weights, biases, scores| {
            sweep::forward(shape, volume, (weights, biases), &mut maps, scores);
        })
    }
}

/// The scores of all samples, each computed by `one`.
fn scores(
    volumes: &FlexTensor,
    (weights, biases): (&FlexTensor, &FlexTensor),
    shape: Shape,
    mut one: impl FnMut(&[f32], &[f32], &[f32], &mut [f32]),
) -> FlexTensor {
    let (volumes, weights, biases) = (volumes.to_contiguous(), weights.to_contiguous(), biases.to_contiguous());
    let (given, each) = (shape.config.channels * shape.voxels(), shape.config.classes * shape.voxels());
    let count = values(&volumes).len() / given.max(1);
    let mut scores = vec![0.0; count * each];
    for (volume, scores) in values(&volumes).chunks_exact(given.max(1)).zip(scores.chunks_exact_mut(each.max(1))) {
        one(volume, values(&weights), values(&biases), scores);
    }
    let [depth, height, width] = shape.sizes;
    tensor(scores, [count, shape.config.classes, depth, height, width])
}

impl<C: CheckpointStrategy> MixedScaleScores for Autodiff<Flex, C> {
    fn mixed_scale_scores(
        volumes: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        biases: FloatTensor<Self>,
        shape: Shape,
    ) -> FloatTensor<Self> {
        let parents = [volumes.node(), weights.node(), biases.node()];
        let (volumes, weights, biases) = (volumes.into_primitive(), weights.into_primitive(), biases.into_primitive());
        match Gradient.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let mut maps = Vec::new();
                let output = scores(&volumes, (&weights, &biases), shape, |volume, weights, biases, scores| {
                    let begin = maps.len();
                    maps.resize(begin + shape.maps() * shape.voxels(), 0.0);
                    sweep::forward(shape, volume, (weights, biases), &mut maps[begin..], scores);
                });
                prepared.finish(Kept { maps: Arc::new(maps), weights: weights.to_contiguous(), shape }, output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::mixed_scale_scores(volumes, weights, biases, shape)),
        }
    }
}

/// What the backward pass needs.
#[derive(Debug, Clone)]
struct Kept {
    /// The maps of all samples.
    maps: Arc<Vec<f32>>,
    weights: FlexTensor,
    shape: Shape,
}

/// The backward pass.
#[derive(Debug)]
struct Gradient;

impl Backward<Flex, 3> for Gradient {
    type State = Kept;

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [volumes_node, weights_node, biases_node] = ops.parents;
        let gradient = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let Kept { maps, weights, shape } = ops.state;
        let (each, given) = (shape.maps() * shape.voxels(), shape.config.channels * shape.voxels());
        let (mut sums, mut buffer, mut volumes) = (WeightSums::new(shape), vec![0.0; each], Vec::new());
        let scores = values(&gradient).chunks_exact((shape.config.classes * shape.voxels()).max(1));
        let count = scores.len();
        for (maps, scores) in maps.chunks_exact(each.max(1)).zip(scores) {
            sweep::backward(shape, (maps, values(&weights)), scores, &mut buffer, &mut sums);
            if volumes_node.is_some() {
                volumes.extend_from_slice(&buffer[..given]);
            }
        }
        let [depth, height, width] = shape.sizes;
        if let Some(node) = volumes_node {
            let shape = [count, shape.config.channels, depth, height, width];
            gradients.register::<Flex>(node.id, tensor(volumes, shape));
        }
        for (node, sums) in [(weights_node, sums.weights), (biases_node, sums.biases)] {
            if let Some(node) = node {
                let sums: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
                let count = sums.len();
                gradients.register::<Flex>(node.id, tensor(sums, [count]));
            }
        }
    }
}
