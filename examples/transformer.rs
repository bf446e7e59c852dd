//! A transformer that continues a text, in stages and parts on many processes:
//! `sirtaki run -n 4 -- target/release/examples/transformer README.md data=2,pipe=2,tensor=1`.
#![allow(clippy::print_stdout, clippy::large_enum_variant, reason = "a program with a few layers")]

use std::{env, error::Error, fs};

use burn::{
    module::Module,
    nn::{attention::*, loss::CrossEntropyLossConfig, *},
    optim::AdamConfig,
    tensor::{Device, Int, Tensor, TensorData, activation::gelu},
};
use sirtaki::{data::*, pipeline::PipelineSchedule, tensor_parallel::*, *};

const BLOCKS: usize = 4;
const WIDTH: usize = 32;
const HEADS: usize = 4;
const LENGTH: usize = 32;
const SHARDS: usize = 8;

/// The layers of the network, which pass on [samples, length, width].
#[derive(Module, Debug)]
enum Part {
    Words(Words),
    Block(Block),
    Scores(Linear),
}

#[derive(Module, Debug)]
struct Words {
    letters: Embedding,
    places: Embedding,
}

/// Attention and two dense layers, each in as many parts as the mesh has workers along its axis "tensor".
#[derive(Module, Debug)]
struct Block {
    norms: [LayerNorm; 2],
    attention: SplitAttention,
    up: ColumnLinear,
    down: RowLinear,
    dropout: ShardDropout,
}

impl Part {
    fn new(number: usize, tensor: &World, device: &Device) -> Result<Self> {
        let linear = |from, to| LinearConfig::new(from, to).init(device);
        Ok(match number {
            0 => Part::Words(Words {
                letters: EmbeddingConfig::new(256, WIDTH).init(device),
                places: EmbeddingConfig::new(LENGTH, WIDTH).init(device),
            }),
            number if number <= BLOCKS => Part::Block(Block {
                norms: [0, 1].map(|_| LayerNormConfig::new(WIDTH).init(device)),
                attention: SplitAttention::new(
                    tensor,
                    MultiHeadAttentionConfig::new(WIDTH, HEADS).with_dropout(0.0).init(device),
                )?,
                up: ColumnLinear::new(tensor, linear(WIDTH, 4 * WIDTH))?,
                down: RowLinear::new(tensor, linear(4 * WIDTH, WIDTH))?,
                dropout: ShardDropout::new(&format!("block {number}"), 0.1)?,
            }),
            _ => Part::Scores(linear(WIDTH, 256)),
        })
    }
}

impl Layer for Part {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(match self {
            Part::Words(Words { letters, places }) => {
                let text: Tensor<2, Int> = flow.take()?;
                let [_, length] = text.dims();
                let place = Tensor::arange(0..length as i64, &text.device()).unsqueeze();
                Flow::new().with(letters.forward(text) + places.forward(place))
            }
            Part::Block(Block { norms, attention, up, down, dropout }) => {
                let values: Tensor<3> = flow.take()?;
                let [samples, length, _] = values.dims();
                let mask = generate_autoregressive_mask(samples, length, &values.device());
                let values = values.clone() + attention.forward(norms[0].forward(values), Some(mask));
                let hidden = down.forward(gelu(up.forward(norms[1].forward(values.clone()))));
                Flow::new().with(values + dropout.forward(hidden))
            }
            Part::Scores(layer) => Flow::new().with(layer.forward(flow.take::<Tensor<3>>()?)),
        })
    }
}

/// Pieces of the text, from `first` on, for the samples of a shard.
fn pieces(text: &[u8], plan: &FixedShards, shard: Shard, first: usize, device: &Device) -> Tensor<2, Int> {
    let mut indices = Vec::new();
    plan.indices(shard.batch, &mut indices);
    let piece =
        |&index: &u32| text[index as usize * LENGTH + first..][..LENGTH].iter().map(|&letter| i64::from(letter));
    let letters: Vec<i64> = indices.iter().flat_map(piece).collect();
    Tensor::from_data(TensorData::new(letters, [indices.len(), LENGTH]), device)
}

/// The size of an axis in a text such as `data=2,pipe=2`.
fn size(mesh: &str, axis: &str) -> usize {
    let sizes = mesh.split(',').filter_map(|part| part.split_once('='));
    sizes.filter(|(name, _)| *name == axis).filter_map(|(_, size)| size.parse().ok()).next().unwrap_or(1)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let world = init()?;
    let text = fs::read(env::args().nth(1).unwrap_or("README.md".into()))?;
    let sizes = env::args().nth(2).unwrap_or(format!("data={}", world.size()));
    // 1. Every worker has a place on each axis: its copy of the network, its stage, and its part of every layer.
    let mesh = world.mesh(&["data", "pipe", "tensor"].map(|axis| (axis, size(&sizes, axis))))?;
    let (data, pipe, tensor) = (mesh.axis("data")?, mesh.axis("pipe")?, mesh.axis("tensor")?);
    let device = world.device().autodiff();
    // 2. As many stages as workers along the axis "pipe", each with the same number of blocks.
    let layers = BLOCKS + 2;
    let stages =
        (0..pipe.size()).map(|stage| stage * layers / pipe.size()..(stage + 1) * layers / pipe.size()).collect();
    let schedule = PipelineSchedule::OneForwardOneBackward;
    let mut pipeline = Pipeline::new(pipe, schedule, SHARDS / data.size(), stages)?;
    // 3. A worker has the layers of its stage, with the weights that they have in one process.
    let mut chain = Chain::new(pipeline.layers(), &device, 42, |number| Part::new(number, tensor, &device))?;
    // 4. Gradients are those of all copies.
    let mut optimizer = DistributedOptimizer::new(data, AdamConfig::new().init());
    let plan = FixedShards::new((text.len() - 1) / LENGTH, Position::start(42), data.worker(), SHARDS, 4 * SHARDS)?;
    let criterion = CrossEntropyLossConfig::new().init(&device);
    for step in 0..plan.steps() {
        let mut sum = 0.0;
        chain = pipeline.step(
            &mut optimizer,
            0.003,
            chain,
            (&plan, step),
            |shard| Ok::<_, sirtaki::Error>(Flow::new().with(pieces(&text, &plan, shard, 0, &device))),
            |shard, mut flow| {
                let scores: Tensor<3> = flow.take()?;
                let wanted = pieces(&text, &plan, shard, 1, &device).flatten(0, 1);
                let loss = criterion.forward(scores.flatten(0, 1), wanted);
                sum += loss.clone().into_scalar::<f64>() * shard.samples as f64;
                Ok(loss)
            },
        )?;
        let loss = world.sum(sum)? / (tensor.size() * plan.together(step)) as f64;
        if world.rank() == 0 && (step % 10 == 0 || step + 1 == plan.steps()) {
            println!("step {step:4}  loss {loss}");
        }
    }
    Ok(())
}
