//! A network on MNIST with the training loop of Burn's: `sirtaki run -n 2 -- target/release/examples/learner`.

use std::{env, error::Error, path::Path, sync::Arc};

use burn::{
    data::{dataloader::*, dataset::InMemDataset},
    lr_scheduler::constant::ConstantLr,
    module::Module,
    nn::{Linear, LinearConfig, loss::CrossEntropyLossConfig},
    optim::AdamConfig,
    tensor::{Device, Int, Tensor, TensorData, activation::relu},
    train::{metric::*, *},
};
use sirtaki::data::{Memory, Samples, Split, mnist};

type Digits = (Tensor<2>, Tensor<1, Int>);

#[derive(Module, Debug)]
struct Network {
    layers: [Linear; 2],
}

impl TrainStep for Network {
    type Input = Digits;
    type Output = ClassificationOutput;

    fn step(&self, digits: Digits) -> TrainOutput<ClassificationOutput> {
        let output = InferenceStep::step(self, digits);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Network {
    type Input = Digits;
    type Output = ClassificationOutput;

    fn step(&self, (images, labels): Digits) -> ClassificationOutput {
        let [first, second] = &self.layers;
        let output = second.forward(relu(first.forward(images)));
        let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), labels.clone());
        ClassificationOutput::new(loss, output, labels)
    }
}

/// Makes batches of the numbers of samples.
struct Read(Memory);

impl batcher::Batcher<usize, Digits> for Read {
    fn batch(&self, numbers: Vec<usize>, device: &Device) -> Digits {
        let (count, size) = (numbers.len(), mnist::SIZE * mnist::SIZE);
        let mut pixels = vec![0.0; count * size];
        let read = numbers.iter().zip(pixels.chunks_mut(size)).map(|(&number, image)| self.0.read(number, image));
        let labels: Vec<i64> = read.map(|label| label.expect("the number of a sample").into()).collect();
        let images = Tensor::from_data(TensorData::new(pixels, [count, size]), device);
        (images, Tensor::from_data(TensorData::new(labels, [count]), device))
    }
}

fn loader(samples: Memory) -> Arc<dyn DataLoader<Digits>> {
    let numbers = InMemDataset::new((0..samples.count()).collect());
    DataLoaderBuilder::new(Read(samples)).batch_size(64).shuffle(42).build(numbers)
}

fn main() -> Result<(), Box<dyn Error>> {
    let world = sirtaki::init()?;
    let device = world.device().autodiff();
    let Split { train, test } = mnist::load(Path::new(&env::args().nth(1).unwrap_or("data/mnist".into())))?;
    let layers = [(784, 128), (128, 10)].map(|(from, to)| LinearConfig::new(from, to).init(&device));
    let learner = Learner::new(Network { layers }, AdamConfig::new().init(), ConstantLr::from(0.001));
    let result = SupervisedTraining::new("learner", loader(train), loader(test))
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_training_strategy(sirtaki::Strategy::new(&world).into()) // The one line that makes it many.
        .num_epochs(1)
        .summary()
        .launch(learner);
    if world.rank() == 0 {
        result.model.save_file("network.bpk")?;
    }
    result.error.map_or(Ok(()), |error| Err(error.to_string().into()))
}
