//! Layers whose parameters are split over the workers of a world, usually one axis of a [mesh](crate::Mesh).
//!
//! Every worker has the same input, computes its part of the layers with its part of the parameters, and ends up with the
//! same output. A *column* layer has some of the outputs, and its output stays split; the *row* layer that follows has the
//! inputs that match, and adds up what all workers have. So two layers need one sum forward and one backward:
//!
//! ```no_run
//! # fn main() -> sirtaki::Result<()> {
//! use burn::{nn::LinearConfig, tensor::{Tensor, activation::relu}};
//! use sirtaki::tensor_parallel::{ColumnLinear, RowLinear};
//!
//! let world = sirtaki::init()?;
//! let device = world.device().autodiff();
//! // Whole layers with the same weights on all workers, of which each keeps its part.
//! let up = world.broadcast(LinearConfig::new(64, 256).init(&device), 0)?;
//! let down = world.broadcast(LinearConfig::new(256, 64).init(&device), 0)?;
//! let (up, down) = (ColumnLinear::new(&world, up)?, RowLinear::new(&world, down)?);
//! let output = down.forward(relu(up.forward(Tensor::<2>::ones([8, 64], &device))));
//! # let _ = output;
//! # Ok(())
//! # }
//! ```
//!
//! Layers are made from whole ones, so the weights at the start are those of the network that is not split. What is not
//! split, such as a norm between two such pairs, has the same gradients on all workers, down to the last bit. Sums of
//! several workers' parts round differently from one worker's sum, so results are equal to one process's up to rounding.
//!
//! Between layers, norms and dropout can be computed on parts of sequences instead of by all workers: see
//! [`SequenceParts`]. Which layers are split can also be said by name, in a plan: see [`split_by_plan`].
//!
//! Ranks make their layers in the same order. A layer panics if ranks cannot work together any more, because a module
//! cannot return an error.

mod attention;
mod convolution;
mod embedding;
mod linear;
mod loss;
mod part;
mod plan;
mod sequence;

pub use attention::SplitAttention;
pub use convolution::{ColumnConv2d, RowConv2d};
pub use embedding::SplitEmbedding;
pub use linear::{ColumnLinear, RowLinear};
pub use loss::SplitCrossEntropy;
pub use plan::{PlannedLinear, SplitBy, split_by_plan};
pub use sequence::SequenceParts;
