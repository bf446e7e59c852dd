//! Attention, split by heads.

use burn::{
    module::Module,
    nn::{Dropout, Linear, attention::MultiHeadAttention},
    tensor::{
        Bool, Tensor,
        activation::{quiet_softmax, softmax},
    },
};

use super::{
    super::differentiable::Collective,
    linear::RowLinear,
    part::{cut, name, part},
    sequence::SequenceParts,
};
use crate::{Result, World};

/// Attention of which every worker has some heads. Parameters have the names of Burn's `MultiHeadAttention`.
#[derive(Module, Debug)]
pub struct SplitAttention {
    /// To the queries of this worker's heads.
    pub query: Linear,
    /// To the keys of this worker's heads.
    pub key: Linear,
    /// To the values of this worker's heads.
    pub value: Linear,
    /// From this worker's heads to all features.
    pub output: RowLinear,
    /// Of attention's weights. Workers draw different numbers for their heads, as they must.
    pub dropout: Dropout,
    heads: usize,
    head_size: usize,
    min_float: f64,
    quiet_softmax: bool,
    #[module(skip)]
    entering: [Collective; 3],
}

impl SplitAttention {
    /// This worker's part of an attention, which is the same on all of them; all of it without a world.
    pub fn new<'a>(world: impl Into<Option<&'a World>>, whole: MultiHeadAttention) -> Result<Self> {
        let world = world.into();
        let heads = part(world, whole.n_heads, "heads")?;
        let features = heads.start * whole.d_k..heads.end * whole.d_k;
        let columns = |linear: &Linear| Linear {
            weight: cut(&linear.weight, 1, &features),
            bias: linear.bias.as_ref().map(|bias| cut(bias, 0, &features)),
        };
        let name = name(world, "attention");
        let entering = ["query", "key", "value"].map(|what| Collective::entering(world, &format!("{name} {what}")));
        Ok(Self {
            query: columns(&whole.query),
            key: columns(&whole.key),
            value: columns(&whole.value),
            output: RowLinear::of_rows(world, whole.output, &features),
            dropout: whole.dropout,
            heads: heads.len(),
            head_size: whole.d_k,
            min_float: whole.min_float,
            quiet_softmax: whole.quiet_softmax,
            entering,
        })
    }

    /// What a sequence makes of itself: `[samples, length, features]`, the same on all workers before and after. What
    /// `mask` marks, `[samples, from, to]`, is not looked at.
    pub fn forward(&self, input: Tensor<3>, mask: Option<Tensor<3, Bool>>) -> Tensor<3> {
        let input = self.entering[0].of(input);
        self.output.forward(self.attend([input.clone(), input.clone(), input], mask))
    }

    /// The same for sequences of which every worker has a part, before and after: `[samples, length here, features]`.
    pub fn forward_parts(&self, parts: &SequenceParts, input: Tensor<3>, mask: Option<Tensor<3, Bool>>) -> Tensor<3> {
        let input = parts.gathered(self.entering[0].name(), input);
        self.output.forward_parts(parts, self.attend([input.clone(), input.clone(), input], mask))
    }

    /// What a sequence makes of others, given as query, key and value.
    pub fn forward_across(&self, inputs: [Tensor<3>; 3], mask: Option<Tensor<3, Bool>>) -> Tensor<3> {
        let [query, key, value] = inputs;
        let [of_query, of_key, of_value] = &self.entering;
        self.output.forward(self.attend([of_query.of(query), of_key.of(key), of_value.of(value)], mask))
    }

    /// What this worker's heads find.
    fn attend(&self, [query, key, value]: [Tensor<3>; 3], mask: Option<Tensor<3, Bool>>) -> Tensor<3> {
        let [samples, length, _] = query.dims();
        let query = self.by_head(query, &self.query);
        let key = self.by_head(key, &self.key);
        let value = self.by_head(value, &self.value);
        let mut scores = query.matmul(key.transpose()).div_scalar((self.head_size as f32).sqrt());
        if let Some(mask) = mask {
            let [samples, from, to] = mask.dims();
            scores = scores.mask_fill(mask.reshape([samples, 1, from, to]), self.min_float);
        }
        let weights = if self.quiet_softmax { quiet_softmax(scores, 3) } else { softmax(scores, 3) };
        let context = self.dropout.forward(weights).matmul(value);
        context.swap_dims(1, 2).reshape([samples, length, self.heads * self.head_size])
    }

    fn by_head(&self, input: Tensor<3>, linear: &Linear) -> Tensor<4> {
        let [samples, length, _] = input.dims();
        linear.forward(input).reshape([samples, length, self.heads, self.head_size]).swap_dims(1, 2)
    }
}
