//! The networks to choose from.

use burn::{
    module::Module,
    nn::{
        Dropout, DropoutConfig, Linear, LinearConfig,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{Device, Tensor, activation::relu},
};

use crate::{
    Error, Result,
    nn::{convolve, max_pool},
};

/// What images are like: channels, height and width, and the number of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImageKind {
    pub(super) shape: [usize; 3],
    pub(super) classes: usize,
}

/// A network that classifies images.
pub(super) trait Network: Module + 'static {
    /// With random weights.
    fn new(kind: ImageKind, device: &Device) -> Result<Self>;

    /// A number for each class: the larger, the likelier.
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;
}

/// Two 5×5 convolutions with 6 and 16 channels, each followed by pooling, and three dense layers.
#[derive(Module, Debug)]
pub(super) struct LeNet {
    convolutions: [Conv2d; 2],
    layers: [Linear; 3],
}

impl Network for LeNet {
    fn new(kind: ImageKind, device: &Device) -> Result<Self> {
        let [channels, height, width] = kind.shape;
        let left = |size: usize| Some((size.checked_sub(4)? / 2).checked_sub(4)? / 2).filter(|&left| left > 0);
        let inputs = left(height).zip(left(width)).map(|(height, width)| 16 * height * width);
        let inputs = inputs.ok_or_else(|| too_small(kind, 16))?;
        let convolution = |from, to| Conv2dConfig::new([from, to], [5, 5]).init(device);
        let layer = |from, to| LinearConfig::new(from, to).init(device);
        Ok(Self {
            convolutions: [convolution(channels, 6), convolution(6, 16)],
            layers: [layer(inputs, 120), layer(120, 84), layer(84, kind.classes)],
        })
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let layers = self.convolutions.iter();
        let features = layers.fold(images, |images, layer| max_pool(relu(convolve(layer, images)), 2));
        let [first, second, last] = &self.layers;
        last.forward(relu(second.forward(relu(first.forward(features.flatten(1, 3))))))
    }
}

/// Two 3×3 convolutions with 32 and 64 channels, pooling, dropout, and two dense layers.
#[derive(Module, Debug)]
pub(super) struct Cnn {
    convolutions: [Conv2d; 2],
    layers: [Linear; 2],
    dropouts: [Dropout; 2],
}

impl Network for Cnn {
    fn new(kind: ImageKind, device: &Device) -> Result<Self> {
        let [channels, height, width] = kind.shape;
        let left = |size: usize| size.checked_sub(4).map(|left| left / 2).filter(|&left| left > 0);
        let inputs = left(height).zip(left(width)).map(|(height, width)| 64 * height * width);
        let inputs = inputs.ok_or_else(|| too_small(kind, 6))?;
        let convolution = |from, to| Conv2dConfig::new([from, to], [3, 3]).init(device);
        let layer = |from, to| LinearConfig::new(from, to).init(device);
        Ok(Self {
            convolutions: [convolution(channels, 32), convolution(32, 64)],
            layers: [layer(inputs, 128), layer(128, kind.classes)],
            dropouts: [0.25, 0.5].map(|share| DropoutConfig::new(share).init()),
        })
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let features = self.convolutions.iter().fold(images, |images, layer| relu(convolve(layer, images)));
        let features = self.dropouts[0].forward(max_pool(features, 2)).flatten(1, 3);
        let hidden = self.dropouts[1].forward(relu(self.layers[0].forward(features)));
        self.layers[1].forward(hidden)
    }
}

fn too_small(kind: ImageKind, least: usize) -> Error {
    let [_, height, width] = kind.shape;
    let problem = format!("images of {height} by {width} pixels are too small for this network");
    Error::setting(problem, format!("give images of at least {least} by {least} pixels, or choose another model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(network: &impl Module) -> usize {
        network.num_params()
    }

    #[test]
    fn they_are_the_networks_of_the_tutorials() {
        let (device, kind) = (Device::flex(), ImageKind { shape: [1, 28, 28], classes: 10 });
        assert_eq!(count(&LeNet::new(kind, &device).unwrap()), 44_426);
        assert_eq!(count(&Cnn::new(kind, &device).unwrap()), 1_199_882);
        let images = Tensor::ones([3, 1, 28, 28], &device);
        assert_eq!(LeNet::new(kind, &device).unwrap().forward(images.clone()).dims(), [3, 10]);
        assert_eq!(Cnn::new(kind, &device).unwrap().forward(images).dims(), [3, 10]);
    }

    #[test]
    fn small_images_are_refused() {
        let device = Device::flex();
        for (size, fits) in [(15, false), (16, true)] {
            assert_eq!(LeNet::new(ImageKind { shape: [3, 32, size], classes: 2 }, &device).is_ok(), fits);
        }
        for (size, fits) in [(5, false), (6, true)] {
            assert_eq!(Cnn::new(ImageKind { shape: [3, size, 32], classes: 2 }, &device).is_ok(), fits);
        }
    }
}
