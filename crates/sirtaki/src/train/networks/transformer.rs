//! A transformer that continues text, character by character.
//!
//! Attention and the dense layers of a block are layers of their own, so that the network can be cut between them. Within
//! a layer, heads, inner features and the scores of characters can be split over workers.

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, LinearConfig,
        attention::{MultiHeadAttentionConfig, generate_autoregressive_mask},
    },
    tensor::{Device, Int, Tensor, activation::gelu},
};

use super::{Network, NetworkSize, TextKind};
use crate::{
    Flow, Layer, Result, ShardDropout, World,
    tensor_parallel::{ColumnLinear, RowLinear, SplitAttention},
    train::Method,
};

const BLOCKS: usize = 3;
const WIDTH: usize = 64;
const HEADS: usize = 4;
/// How many times wider the dense layers are inside.
const WIDER: usize = 4;
const DROPPED: f64 = 0.1;

/// Blocks of attention and dense layers, each of which adds to what goes in.
pub(super) struct Transformer {
    kind: TextKind,
}

/// Layers pass on `[samples, length, width]`.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is a handful of layers")]
pub(super) enum TransformerLayer {
    Characters(Characters),
    Attention(Attention),
    Dense(Dense),
    Scores(Scores),
}

#[derive(Module, Debug)]
pub(super) struct Characters {
    characters: Embedding,
    places: Embedding,
    dropout: ShardDropout,
}

#[derive(Module, Debug)]
pub(super) struct Attention {
    norm: LayerNorm,
    attention: SplitAttention,
    dropout: ShardDropout,
}

#[derive(Module, Debug)]
pub(super) struct Dense {
    norm: LayerNorm,
    up: ColumnLinear,
    down: RowLinear,
    dropout: ShardDropout,
}

#[derive(Module, Debug)]
pub(super) struct Scores {
    norm: LayerNorm,
    scores: ColumnLinear,
}

impl Network for Transformer {
    const NAME: &'static str = "transformer";
    const ABOUT: &'static str = "three blocks of attention and dense layers, for text, character by character";
    const METHOD: Method = Method::AdamW;
    const TARGET: f64 = 0.85;
    const PARTS: usize = HEADS;

    type Kind = TextKind;
    type Layer = TransformerLayer;

    fn new(kind: TextKind, _: Option<NetworkSize>) -> Result<Self> {
        Ok(Self { kind })
    }

    fn kind(&self) -> &TextKind {
        &self.kind
    }

    fn depth(&self) -> usize {
        2 + 2 * BLOCKS
    }

    fn layer(&self, number: usize, device: &Device, parts: Option<&World>) -> Result<TransformerLayer> {
        let norm = LayerNormConfig::new(WIDTH).init(device);
        let dense = |from, to| LinearConfig::new(from, to).init(device);
        let embedding = |from| EmbeddingConfig::new(from, WIDTH).init(device);
        let dropout = ShardDropout::new(&format!("layer {number}"), DROPPED)?;
        let TextKind { length, characters } = self.kind;
        Ok(match number {
            0 => {
                let (characters, places) = (embedding(characters), embedding(length));
                TransformerLayer::Characters(Characters { characters, places, dropout })
            }
            number if number > 2 * BLOCKS => {
                let scores = ColumnLinear::new(parts, dense(WIDTH, characters))?;
                TransformerLayer::Scores(Scores { norm, scores })
            }
            number if number % 2 == 1 => {
                // Dropout is ours, behind attention.
                let attention = MultiHeadAttentionConfig::new(WIDTH, HEADS).with_dropout(0.0).init(device);
                let attention = SplitAttention::new(parts, attention)?;
                TransformerLayer::Attention(Attention { norm, attention, dropout })
            }
            _ => {
                let up = ColumnLinear::new(parts, dense(WIDTH, WIDER * WIDTH))?;
                let down = RowLinear::new(parts, dense(WIDER * WIDTH, WIDTH))?;
                TransformerLayer::Dense(Dense { norm, up, down, dropout })
            }
        })
    }
}

impl Layer for TransformerLayer {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(match self {
            TransformerLayer::Characters(Characters { characters, places, dropout }) => {
                let text: Tensor<2, Int> = flow.take()?;
                let [_, length] = text.dims();
                let place = Tensor::arange(0..length as i64, &text.device()).unsqueeze();
                Flow::new().with(dropout.forward(characters.forward(text) + places.forward(place)))
            }
            TransformerLayer::Attention(Attention { norm, attention, dropout }) => {
                let values: Tensor<3> = flow.take()?;
                let [samples, length, _] = values.dims();
                // A character sees those before it and itself.
                let mask = generate_autoregressive_mask(samples, length, &values.device());
                let context = attention.forward(norm.forward(values.clone()), Some(mask));
                Flow::new().with(values + dropout.forward(context))
            }
            TransformerLayer::Dense(Dense { norm, up, down, dropout }) => {
                let values: Tensor<3> = flow.take()?;
                let hidden = gelu(up.forward(norm.forward(values.clone())));
                Flow::new().with(values + dropout.forward(down.forward(hidden)))
            }
            TransformerLayer::Scores(Scores { norm, scores }) => {
                let rows: Tensor<2> = norm.forward(flow.take::<Tensor<3>>()?).flatten(0, 1);
                Flow::new().with(scores.forward(rows))
            }
        })
    }
}
