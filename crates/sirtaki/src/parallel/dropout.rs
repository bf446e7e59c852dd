//! Dropout whose random numbers follow from the shard and the layer.
//!
//! Burn has one generator for each device. What a layer draws from it depends on what the layers before it drew, and the
//! worker with a later stage of a network cannot know that. Here every layer has a stream of its own, derived from that
//! of the pass, which [`seed`](super::seed) sets, and from the layer's name. A pass belongs to the thread that computes
//! it: Burn's modules take nothing but tensors, so there is no other way to tell a layer what pass it is in.

use std::{cell::RefCell, collections::HashMap, ops::Range};

use burn::{
    module::Module,
    tensor::{Distribution, Tensor, TensorData},
};

use crate::{Error, Result, random::Stream};

thread_local! {
    static PASS: RefCell<Option<CurrentPass>> = const { RefCell::new(None) };
}

/// The pass that a thread computes.
struct CurrentPass {
    key: u64,
    /// How often each layer has drawn.
    drawn: HashMap<String, u64>,
}

/// From now on, this thread computes the pass of this stream.
pub(super) fn begin_pass(mut stream: Stream) {
    PASS.set(Some(CurrentPass { key: stream.bits(), drawn: HashMap::new() }));
}

/// The random numbers of a layer in the current pass, if there is one.
fn draw(layer: &str) -> Option<Stream> {
    PASS.with_borrow_mut(|pass| {
        let CurrentPass { key, drawn } = pass.as_mut()?;
        let times = drawn.entry(layer.to_owned()).or_default();
        *times += 1;
        Some(Stream::new(layer, &[*key, *times]))
    })
}

/// Sets a share of the values to zero while training, and scales up the others to make up for it; does nothing
/// otherwise.
///
/// In steps over shards and in pipelines, which values are zero follows from the shard and from the layer's name alone,
/// so it is the same however the network is divided among workers. Elsewhere Burn's random numbers are used, unless
/// [`seed`](crate::seed) was called before the forward pass.
#[derive(Module, Debug)]
pub struct ShardDropout {
    share: f64,
    #[module(skip)]
    name: String,
}

impl ShardDropout {
    /// Dropout of a share from 0 to below 1. Every layer of a network has another name.
    pub fn new(name: &str, share: f64) -> Result<Self> {
        if (0.0..1.0).contains(&share) {
            return Ok(Self { share, name: name.into() });
        }
        let problem = format!("dropout \"{name}\" cannot set a share of {share} of all values to zero");
        Err(Error::setting(problem, "take a number from 0 to below 1"))
    }

    /// The values of which some are zero.
    pub fn forward<const D: usize>(&self, values: Tensor<D>) -> Tensor<D> {
        let total = values.dims()[0];
        self.forward_part(values, 0, &(0..total), total)
    }

    /// The same for a part of values, `total` in all along a dimension, of which these are here.
    pub(super) fn forward_part<const D: usize>(
        &self,
        values: Tensor<D>,
        dimension: usize,
        own: &Range<usize>,
        total: usize,
    ) -> Tensor<D> {
        if self.share == 0.0 || !values.is_autodiff() {
            return values;
        }
        let (mut shape, device) = (values.dims(), values.device());
        shape[dimension] = total;
        let kept: Tensor<D> = match draw(&self.name) {
            Some(stream) => {
                Tensor::from_data(TensorData::new(self.mask(stream, shape.iter().product()), shape), &device)
            }
            None => {
                Tensor::random(shape, Distribution::Bernoulli(1.0 - self.share), &device).div_scalar(1.0 - self.share)
            }
        };
        let kept = if own.len() < total { kept.narrow(dimension, own.start, own.len()) } else { kept };
        values.clone() * kept.cast(values.dtype())
    }

    /// What values are multiplied by.
    fn mask(&self, mut stream: Stream, count: usize) -> Vec<f32> {
        let kept = (1.0 / (1.0 - self.share)) as f32;
        (0..count).map(|_| if f64::from(stream.unit()) < self.share { 0.0 } else { kept }).collect()
    }
}
