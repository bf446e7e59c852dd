//! LeNet on MNIST, on one process or many: `sirtaki run -n 2 -- target/release/examples/mnist data/mnist`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::{env, error::Error, path::Path, sync::Arc};

use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig,
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
    },
    optim::{GradientsParams, SgdConfig, momentum::MomentumConfig},
    tensor::{Device, Int, Tensor, TensorData, activation::relu, module::max_pool2d, ops::MaxPoolOptions},
};
use sirtaki::{
    DistributedOptimizer, World,
    data::{Ahead, Batch, Loader, Memory, Partition, Plan, Position, Samples, Split, Worker, mnist},
    schedule::{Decay, Schedule},
};

const BATCH: usize = 64;

#[derive(Module, Debug)]
struct LeNet {
    convolutions: [Conv2d; 2],
    layers: [Linear; 3],
}

impl LeNet {
    fn new(device: &Device) -> Self {
        let convolution = |from, to| Conv2dConfig::new([from, to], [5, 5]).init(device);
        let layer = |from, to| LinearConfig::new(from, to).init(device);
        Self {
            convolutions: [convolution(1, 6), convolution(6, 16)],
            layers: [layer(256, 120), layer(120, 84), layer(84, 10)],
        }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let pool = |images| max_pool2d(relu(images), MaxPoolOptions::new([2, 2]));
        let features = self.convolutions.iter().fold(images, |images, layer| pool(layer.forward(images)));
        let hidden = self.layers[..2].iter().fold(features.flatten(1, 3), |values, layer| relu(layer.forward(values)));
        self.layers[2].forward(hidden)
    }
}

fn tensors(batch: &mut Batch, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let (count, labels) = (batch.count(), batch.labels().iter().map(|&label| i64::from(label)).collect::<Vec<_>>());
    let images = TensorData::new(batch.take_values(), [count, 1, mnist::SIZE, mnist::SIZE]);
    (Tensor::from_data(images, device), Tensor::from_data(TensorData::new(labels, [count]), device))
}

fn main() -> Result<(), Box<dyn Error>> {
    // 1. Meet the other processes.
    let world = sirtaki::init()?;
    let device = world.device().autodiff();
    // 2. Share the data out.
    let Split { train, test } = mnist::load(Path::new(&env::args().nth(1).unwrap_or("data/mnist".into())))?;
    let plan = Partition::new(train.count(), Position::start(42), worker(&world), BATCH)?;
    // 3. Larger batches, larger steps.
    let rates = Schedule::new(0.02, world.size(), plan.batches(), 0.1, Decay::Cosine { epochs: 1.0, end: 0.0 })?;
    // 4. Begin with equal weights.
    device.seed(42);
    let mut model = world.broadcast(LeNet::new(&device), 0)?;
    // 5. Step with the gradients of all.
    let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
    let mut optimizer = DistributedOptimizer::new(&world, SgdConfig::new().with_momentum(Some(momentum)).init());
    // 6. Train, and report what all have seen.
    let criterion = CrossEntropyLossConfig::new().init(&device);
    for batch in Loader::new(Arc::new(train), plan.clone(), Ahead::default())? {
        let (step, mut batch) = batch.map(|batch| (batch.number(), batch))?;
        // In the last batch some have a sample less: means are weighed.
        let weight = (batch.count() * world.size()) as f64 / plan.together(step) as f64;
        let (images, labels) = tensors(&mut batch, &device);
        let loss = criterion.forward(model.forward(images), labels).mul_scalar(weight);
        if step % 100 == 0 {
            let average = world.average(loss.clone().into_scalar::<f32>().into())?;
            say(&world, &format!("step {step}: loss {average:.3}"));
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(rates.rate(step as u64), model, gradients)?;
    }
    let accuracy = accuracy(&world, &model.valid(), test)?;
    say(&world, &format!("{:.2} % of the test images are recognised", 100.0 * accuracy));
    // 7. One process writes the result.
    if world.rank() == 0 {
        model.save_file(env::temp_dir().join("sirtaki-lenet.bpk"))?;
    }
    Ok(())
}

fn worker(world: &World) -> Worker {
    Worker { rank: world.rank(), world: world.size() }
}

fn say(world: &World, text: &str) {
    if world.rank() == 0 {
        println!("{text}");
    }
}

/// Every process tests its part of the images.
fn accuracy(world: &World, model: &LeNet, test: Memory) -> Result<f64, Box<dyn Error>> {
    let (device, all) = (world.device(), test.count() as f64);
    let plan = Partition::new(test.count(), Position::start(0), worker(world), 500)?;
    let mut right = 0.0;
    for batch in Loader::new(Arc::new(test), plan, Ahead::default())? {
        let (images, labels) = tensors(&mut batch?, &device);
        let guesses = model.forward(images).argmax(1).flatten::<1>(0, 1);
        right += f64::from(guesses.equal(labels).int().sum().into_scalar::<i32>());
    }
    Ok(world.average(right)? * world.size() as f64 / all)
}
