//! Convolutions, split by output channels or by input channels.

use burn::{module::Module, module::Param, nn::conv::Conv2d, tensor::Tensor};

use super::{
    super::differentiable::Collective,
    part::{cut, name, part},
};
use crate::{Error, Result, World, nn::convolve};

/// A convolution of which every worker has some output channels.
#[derive(Module, Debug)]
pub struct ColumnConv2d {
    /// The convolution to this worker's output channels.
    pub own: Conv2d,
    #[module(skip)]
    entering: Collective,
    #[module(skip)]
    gather: Collective,
}

impl ColumnConv2d {
    /// This worker's part of a convolution, which is the same on all of them; all of it without a world.
    pub fn new<'a>(world: impl Into<Option<&'a World>>, whole: Conv2d) -> Result<Self> {
        let (world, channels) = (world.into(), whole.weight.dims()[0]);
        require_one_group(&whole)?;
        let part = part(world, channels, "output channels")?;
        let name = name(world, "column convolution");
        let own = Conv2d {
            weight: cut(&whole.weight, 0, &part),
            bias: whole.bias.as_ref().map(|bias| cut(bias, 0, &part)),
            ..whole
        };
        Ok(Self {
            own,
            entering: Collective::entering(world, &name),
            gather: Collective::gather(world, &name, channels, part),
        })
    }

    /// This worker's channels of the output, `[samples, channels here, height, width]`.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        convolve(&self.own, self.entering.of(input))
    }

    /// All channels of the output.
    pub fn forward_whole(&self, input: Tensor<4>) -> Tensor<4> {
        self.gather.along(1, self.forward(input))
    }
}

/// A convolution of which every worker has some input channels: the output channels that it has of the [`ColumnConv2d`]
/// before.
#[derive(Module, Debug)]
pub struct RowConv2d {
    /// The convolution of this worker's input channels, without an offset.
    pub own: Conv2d,
    /// The offsets of all output channels, the same on all workers.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    leaving: Collective,
}

impl RowConv2d {
    /// This worker's part of a convolution, which is the same on all of them; all of it without a world.
    pub fn new<'a>(world: impl Into<Option<&'a World>>, whole: Conv2d) -> Result<Self> {
        require_one_group(&whole)?;
        let world = world.into();
        let part = part(world, whole.weight.dims()[1], "input channels")?;
        let leaving = Collective::leaving(world, &name(world, "row convolution"));
        let bias = whole.bias.clone();
        Ok(Self { own: Conv2d { weight: cut(&whole.weight, 1, &part), bias: None, ..whole }, bias, leaving })
    }

    /// All channels of the output, on all workers, for this worker's channels of the input.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let sum = self.leaving.of(convolve(&self.own, input));
        match &self.bias {
            Some(bias) => sum + bias.val().reshape([1, -1, 1, 1]),
            None => sum,
        }
    }
}

fn require_one_group(whole: &Conv2d) -> Result<()> {
    if whole.groups == 1 {
        return Ok(());
    }
    let problem = format!("a convolution with {} groups of channels cannot be split", whole.groups);
    Err(Error::setting(problem, "leave it whole, or split a convolution with one group"))
}
