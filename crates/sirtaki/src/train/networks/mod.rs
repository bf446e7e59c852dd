//! The networks to choose from. Each is a file here with an entry in [`NETWORKS`], from which names and help texts come.
//!
//! A network is a chain of layers, so that each can be trained whole or in stages.

mod choice;
mod cnn;
mod lenet;
mod mlp;
mod msd;
mod resnet;
mod transformer;

use burn::tensor::{Device, Tensor};

pub use self::choice::Model;
use super::{
    checks,
    data_sets::{Domain, ImageKind, SampleKind, TextKind, VolumeKind},
    epochs,
    report::{BenchReport, Observer, Report},
    settings::{Bench, Method, NetworkSize, Settings},
};
use crate::{Chain, Error, Flow, Layer, Result, World, elastic::Rounds};

/// A network to choose from.
pub(super) struct NetworkEntry {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// What it is trained on, the most usual first.
    pub(super) takes: &'static [Domain],
    /// Whether it keeps running statistics of what goes through it.
    pub(super) has_statistics: bool,
    /// What its samples are usually like.
    pub(super) usual: ImageKind,
    /// The optimizer and the accuracy to reach, if nobody asks for others.
    pub(super) method: Method,
    pub(super) target: f64,
    /// Over how many workers each of its layers can be split.
    pub(super) parts: usize,
    /// Its size unless another one is asked for, if it can be chosen.
    pub(super) size: Option<NetworkSize>,
    /// Whether it can be written as an ONNX file.
    pub(super) exports: bool,
    /// Whether its data set can be read and has enough samples for this many workers.
    pub(super) check_data: fn(&Settings, usize) -> Result<()>,
    /// Trains it as the settings say.
    pub(super) train: fn(&World, &Settings, &mut dyn Observer) -> Result<Report>,
    /// The same with workers that come and go.
    pub(super) train_in_rounds: fn(&mut Rounds, &Settings, &mut dyn Observer) -> Result<Option<Report>>,
    /// Measures its steps.
    pub(super) bench: fn(&World, &Settings, Bench, &mut dyn Observer) -> Result<BenchReport>,
}

/// All of them; the first is the default.
pub(super) const NETWORKS: [NetworkEntry; 7] = [
    entry::<lenet::LeNet>(),
    entry::<cnn::Cnn>(),
    entry::<mlp::Mlp>(),
    entry::<resnet::ResNet18>(),
    entry::<resnet::ResNet50>(),
    entry::<transformer::Transformer>(),
    entry::<msd::Msd>(),
];

const fn entry<N: Network>() -> NetworkEntry {
    NetworkEntry {
        name: N::NAME,
        about: N::ABOUT,
        takes: N::TAKES,
        has_statistics: N::HAS_STATISTICS,
        usual: N::USUAL,
        method: N::METHOD,
        target: N::TARGET,
        parts: N::PARTS,
        size: N::SIZE,
        exports: N::EXPORTS,
        check_data: checks::data::<N>,
        train: epochs::train::<N>,
        train_in_rounds: epochs::train_in_rounds::<N>,
        bench: epochs::bench_network::<N>,
    }
}

/// A network that classifies: its first layer takes samples, and its last gives a number for each class, the larger the
/// likelier, of an image, of the character that follows, or of a voxel.
pub(super) trait Network: Sized + 'static {
    const NAME: &'static str;
    /// What it is, in one line.
    const ABOUT: &'static str;
    /// An optimizer that suits it.
    const METHOD: Method = Method::Sgd;
    /// An accuracy that it should reach.
    const TARGET: f64 = 0.985;
    /// Over how many workers each of its layers can be split.
    const PARTS: usize = 1;
    /// Its size unless another one is asked for, if it can be chosen.
    const SIZE: Option<NetworkSize> = None;
    /// Whether it can be written as an ONNX file.
    const EXPORTS: bool = false;
    /// What it is trained on, the most usual first.
    const TAKES: &'static [Domain] = &[Self::Kind::DOMAIN];
    /// Whether it keeps running statistics of what goes through it, as batch norm does.
    const HAS_STATISTICS: bool = false;
    /// What the images of the data sets are like that it was made for.
    const USUAL: ImageKind = ImageKind { shape: [1, 28, 28], classes: 10 };

    type Kind: SampleKind;
    type Layer: Layer;

    /// The network for such samples, of that size if it can be chosen.
    fn new(kind: Self::Kind, size: Option<NetworkSize>) -> Result<Self>;

    /// What its samples are like.
    fn kind(&self) -> &Self::Kind;

    /// How many layers it has.
    fn depth(&self) -> usize;

    /// One of them, with random weights; if it is split over the workers of a world, this worker's part. The last one
    /// then gives the numbers of its classes.
    fn layer(&self, number: usize, device: &Device, parts: Option<&World>) -> Result<Self::Layer>;

    /// The whole network with these weights as an ONNX file, if it can be written as one.
    fn export(&self, _: &Chain<Self::Layer>) -> Option<Vec<u8>> {
        None
    }
}

/// The numbers for each class.
pub(super) fn classify<L: Layer>(network: &Chain<L>, samples: Flow) -> Result<Tensor<2>> {
    network.forward(samples)?.take()
}

fn too_small(kind: ImageKind, least: usize) -> Error {
    let [_, height, width] = kind.shape;
    let problem = format!("images of {height} by {width} pixels are too small for this network");
    Error::setting(problem, format!("give images of at least {least} by {least} pixels, or choose another model"))
}

#[cfg(test)]
mod tests {
    use burn::{
        module::Module,
        tensor::{Int, TensorData},
    };

    use super::{
        cnn::Cnn,
        lenet::LeNet,
        mlp::Mlp,
        resnet::{ResNet18, ResNet50},
        transformer::Transformer,
        *,
    };

    fn whole<N: Network>(kind: N::Kind, device: &Device) -> Chain<N::Layer> {
        let network = N::new(kind, None).unwrap();
        Chain::new(0..network.depth(), device, 1, |number| network.layer(number, device, None)).unwrap()
    }

    fn parameters<N: Network<Kind = ImageKind>>(kind: ImageKind) -> usize {
        let device = Device::flex();
        let network = whole::<N>(kind, &device);
        assert_eq!(classify(&network, kind.blank(3, &device)).unwrap().dims(), [3, kind.classes]);
        network.num_params()
    }

    #[test]
    fn they_are_the_networks_of_the_tutorials() {
        let kind = ImageKind { shape: [1, 28, 28], classes: 10 };
        assert_eq!(parameters::<LeNet>(kind), 44_426);
        assert_eq!(parameters::<Cnn>(kind), 1_199_882);
        assert_eq!(parameters::<Mlp>(kind), 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
    }

    /// The numbers of parameters that the authors' and torchvision's networks have.
    #[test]
    fn residual_networks_have_the_weights_of_their_models() {
        let device = Device::flex();
        // Burn also counts mean and variance of every normalised channel.
        let numbers = |network: &Chain<_>| -> usize { network.num_params() };
        assert_eq!(numbers(&whole::<ResNet18>(ResNet18::USUAL, &device)), 11_689_512 + 2 * 4_800);
        assert_eq!(numbers(&whole::<ResNet50>(ResNet50::USUAL, &device)), 25_557_032 + 2 * 26_560);
        let small = |shape| {
            let kind = ImageKind { shape, classes: 3 };
            let network = whole::<ResNet18>(kind, &device);
            assert_eq!(classify(&network, kind.blank(2, &device)).unwrap().dims(), [2, 3]);
        };
        small([3, 65, 70]);
        small([1, 9, 5]);
    }

    #[test]
    fn no_character_is_seen_before_its_place() {
        let (device, kind) = (Device::flex(), TextKind { length: 5, characters: 7 });
        let network = whole::<Transformer>(kind, &device);
        let scores = |text: [i64; 5]| {
            let text = Tensor::<2, Int>::from_data(TensorData::new(text.to_vec(), [1, 5]), &device);
            let scores = classify(&network, Flow::new().with(text)).unwrap();
            assert_eq!(scores.dims(), [5, 7]);
            scores.into_data().try_to_vec::<f32>().unwrap()
        };
        let (one, other) = (scores([1, 2, 3, 4, 5]), scores([1, 2, 3, 6, 5]));
        assert_eq!(one[..3 * 7], other[..3 * 7]);
        assert!((3..5).all(|place| one[place * 7..][..7] != other[place * 7..][..7]));
        // The same character in another place is something else.
        let same = scores([2, 2, 2, 2, 2]);
        assert_ne!(same[..7], same[7..14]);
    }

    #[test]
    fn small_images_are_refused() {
        for (size, fits) in [(15, false), (16, true)] {
            assert_eq!(LeNet::new(ImageKind { shape: [3, 32, size], classes: 2 }, None).is_ok(), fits);
        }
        for (size, fits) in [(5, false), (6, true)] {
            assert_eq!(Cnn::new(ImageKind { shape: [3, size, 32], classes: 2 }, None).is_ok(), fits);
        }
    }

    #[test]
    fn their_names_differ() {
        for (place, entry) in NETWORKS.iter().enumerate() {
            assert!(NETWORKS[..place].iter().all(|other| other.name != entry.name), "{}", entry.name);
        }
    }
}
