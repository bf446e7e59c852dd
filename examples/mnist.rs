//! LeNet on MNIST, on one process or many: `sirtaki run -n 2 -- target/release/examples/mnist`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::{env, error::Error, path::Path, sync::Arc};

use burn::{
    module::Module,
    nn::{Linear, LinearConfig, conv::*, loss::CrossEntropyLossConfig},
    optim::{GradientsParams, SgdConfig, momentum::MomentumConfig},
    tensor::{Device, Tensor, activation::relu, module::max_pool2d, ops::MaxPoolOptions},
};
use sirtaki::{DistributedOptimizer, data::*, schedule::*};

#[derive(Module, Debug)]
struct LeNet {
    convolutions: [Conv2d; 2],
    layers: [Linear; 3],
}

impl LeNet {
    fn new(device: &Device) -> Self {
        let convolutions = [[1, 6], [6, 16]].map(|channels| Conv2dConfig::new(channels, [5, 5]).init(device));
        let layers = [(256, 120), (120, 84), (84, 10)].map(|(from, to)| LinearConfig::new(from, to).init(device));
        Self { convolutions, layers }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let pool = |images| max_pool2d(relu(images), MaxPoolOptions::new([2, 2]));
        let [first, second] = &self.convolutions;
        let features = pool(second.forward(pool(first.forward(images)))).flatten(1, 3);
        let [first, second, third] = &self.layers;
        third.forward(relu(second.forward(relu(first.forward(features)))))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // 1. Meet the other processes.
    let world = sirtaki::init()?;
    // 2. Compute where this process belongs.
    let device = world.device().autodiff();
    // 3. Share the data out.
    let Split { train, test } = mnist::load(Path::new(&env::args().nth(1).unwrap_or("data/mnist".into())))?;
    let plan = Partition::new(train.count(), Position::start(42), world.worker(), 32)?;
    // 4. Take larger steps with more processes.
    let rates = Schedule::new(0.02, world.size(), plan.batches(), 0.1, Decay::Cosine { epochs: 1.0, end: 0.0 })?;
    // 5. Begin with equal weights.
    device.seed(42);
    let mut model = world.broadcast(LeNet::new(&device), 0)?;
    // 6. Step with the gradients of all.
    let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false };
    let mut optimizer = DistributedOptimizer::new(&world, SgdConfig::new().with_momentum(Some(momentum)).init());
    let criterion = CrossEntropyLossConfig::new().init(&device);
    for (step, batch) in Loader::new(Arc::new(train), plan.clone(), Ahead::default())?.enumerate() {
        let (images, labels) = batch?.into_tensors(&device)?;
        let loss = criterion.forward(model.forward(images), labels) * plan.weight(step);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(rates.rate(step as u64), model, gradients)?;
    }
    // 7. Test together; one process writes.
    let (trained, all, mut right) = (model.valid(), test.count() as f64, 0.0);
    let plan = Partition::new(test.count(), Position::start(0), world.worker(), 500)?;
    for batch in Loader::new(Arc::new(test), plan, Ahead::default())? {
        let (images, labels) = batch?.into_tensors(&world.device())?;
        let guesses = trained.forward(images).argmax(1).flatten(0, 1);
        right += guesses.equal(labels).int().sum().into_scalar::<f64>();
    }
    let accuracy = 100.0 * world.sum(right)? / all;
    if world.rank() == 0 {
        println!("{accuracy:.2} % of the test images are recognised");
        model.save_file("lenet.bpk")?;
    }
    Ok(())
}
