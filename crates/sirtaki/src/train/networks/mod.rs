//! The networks to choose from. Each is a file here with an entry in [`NETWORKS`], from which names and help texts come.
//!
//! A network is a chain of layers, so that each can be trained whole or in stages.

mod cnn;
mod lenet;

use burn::tensor::{Device, Tensor};

use super::{
    epochs,
    report::{Observer, Report},
    settings::Settings,
};
use crate::{Chain, Error, Flow, Layer, Result, World};

/// A network to choose from.
pub(super) struct NetworkEntry {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Trains it as the settings say.
    pub(super) train: fn(&World, &Settings, &mut dyn Observer) -> Result<Report>,
}

/// All of them; the first is the default.
pub(super) const NETWORKS: [NetworkEntry; 2] = [entry::<lenet::LeNet>(), entry::<cnn::Cnn>()];

const fn entry<N: Network>() -> NetworkEntry {
    NetworkEntry { name: N::NAME, about: N::ABOUT, train: epochs::train::<N> }
}

/// What images are like: channels, height and width, and the number of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImageKind {
    pub(super) shape: [usize; 3],
    pub(super) classes: usize,
}

/// A network that classifies images: its first layer takes them, and its last gives a number for each class, the larger
/// the likelier.
pub(super) trait Network: Sized + 'static {
    const NAME: &'static str;
    /// What it is, in one line.
    const ABOUT: &'static str;

    type Layer: Layer;

    /// The network for such images.
    fn new(kind: ImageKind) -> Result<Self>;

    /// How many layers it has.
    fn depth(&self) -> usize;

    /// One of them, with random weights.
    fn layer(&self, number: usize, device: &Device) -> Result<Self::Layer>;

    /// All of them.
    fn whole(&self, device: &Device, seed: u64) -> Result<Chain<Self::Layer>> {
        Chain::new(0..self.depth(), device, seed, |number| self.layer(number, device))
    }
}

/// The numbers for each class.
pub(super) fn classify<L: Layer>(network: &Chain<L>, images: Tensor<4>) -> Result<Tensor<2>> {
    network.forward(Flow::new().with(images))?.take()
}

fn too_small(kind: ImageKind, least: usize) -> Error {
    let [_, height, width] = kind.shape;
    let problem = format!("images of {height} by {width} pixels are too small for this network");
    Error::setting(problem, format!("give images of at least {least} by {least} pixels, or choose another model"))
}

#[cfg(test)]
mod tests {
    use burn::module::Module;

    use super::{cnn::Cnn, lenet::LeNet, *};

    fn parameters<N: Network>(kind: ImageKind) -> usize {
        let device = Device::flex();
        let network = N::new(kind).unwrap().whole(&device, 1).unwrap();
        assert_eq!(classify(&network, Tensor::ones([3, 1, 28, 28], &device)).unwrap().dims(), [3, kind.classes]);
        network.num_params()
    }

    #[test]
    fn they_are_the_networks_of_the_tutorials() {
        let kind = ImageKind { shape: [1, 28, 28], classes: 10 };
        assert_eq!(parameters::<LeNet>(kind), 44_426);
        assert_eq!(parameters::<Cnn>(kind), 1_199_882);
    }

    #[test]
    fn small_images_are_refused() {
        for (size, fits) in [(15, false), (16, true)] {
            assert_eq!(LeNet::new(ImageKind { shape: [3, 32, size], classes: 2 }).is_ok(), fits);
        }
        for (size, fits) in [(5, false), (6, true)] {
            assert_eq!(Cnn::new(ImageKind { shape: [3, size, 32], classes: 2 }).is_ok(), fits);
        }
    }

    #[test]
    fn their_names_differ() {
        for (place, entry) in NETWORKS.iter().enumerate() {
            assert!(NETWORKS[..place].iter().all(|other| other.name != entry.name), "{}", entry.name);
        }
    }
}
