//! Batch norm over the samples of all ranks: the numbers of a single process with all of them.

#![allow(clippy::unwrap_used, reason = "tests")]

use burn::{
    module::Module,
    nn::{BatchNorm, BatchNormConfig},
    tensor::{Tensor, TensorData},
};
use sirtaki::{Result, SyncBatchNorm, World, launch};

const FEATURES: usize = 3;
const SAMPLES: usize = 7;

/// Two layers beside each other and one after them, so that ways back meet in several orders.
struct Layers<L>([L; 3]);

trait Layer {
    fn apply(&self, input: Tensor<4>) -> Tensor<4>;
}

impl Layer for BatchNorm {
    fn apply(&self, input: Tensor<4>) -> Tensor<4> {
        self.forward(input)
    }
}

impl Layer for SyncBatchNorm {
    fn apply(&self, input: Tensor<4>) -> Tensor<4> {
        self.forward(input)
    }
}

/// What comes of samples and gradients: output, gradient of the input, of the parameters, running statistics.
type Numbers = [Vec<f32>; 4];

impl<L: Layer> Layers<L> {
    fn run(&self, part: std::ops::Range<usize>, parameters: impl Fn(&L) -> [Tensor<1>; 4]) -> Numbers {
        let device = parameters(&self.0[0])[0].device();
        let count = part.len();
        let all = |scale: f32| {
            let numbers = (part.start * 12..part.end * 12).map(|number| 100.0 + (number as f32 * scale).sin() * 3.0);
            Tensor::<4>::from_data(TensorData::new(numbers.collect::<Vec<_>>(), [count, FEATURES, 2, 2]), &device)
        };
        let (input, wish) = (all(0.7).require_grad(), all(1.3) - 100.0);
        let mut output = input.clone();
        // Twice, so that running statistics are of two batches.
        for _ in 0..2 {
            let [left, right, last] = &self.0;
            output = last.apply(left.apply(input.clone()) * 2.0 + right.apply(input.clone()).square());
        }
        let gradients = (output.clone() * wish).sum().backward();
        let numbers = |tensor: Tensor<1>| tensor.into_data().try_to_vec::<f32>().unwrap();
        let of = |tensor: &Tensor<1>| numbers(tensor.grad(&gradients).unwrap());
        let all = self.0.each_ref().map(parameters);
        let learned = all.iter().flat_map(|[gamma, beta, ..]| [of(gamma), of(beta)].concat()).collect();
        let statistics =
            all.iter().flat_map(|[_, _, mean, variance]| [mean, variance].map(|one| numbers(one.clone())).concat());
        let gradient = input.grad(&gradients).unwrap();
        [output, gradient]
            .map(|tensor| tensor.into_data().try_to_vec().unwrap())
            .into_iter()
            .chain([learned, statistics.collect()])
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    }
}

fn ours(world: &World, part: std::ops::Range<usize>) -> Numbers {
    let device = world.device().autodiff();
    let layers = [0; 3].map(|_| SyncBatchNorm::new(world, BatchNormConfig::new(FEATURES).init(&device)));
    Layers(layers).run(part, |norm| {
        [norm.gamma.val(), norm.beta.val(), norm.running_mean.value_sync(), norm.running_var.value_sync()]
    })
}

fn alone(world: &World) -> Numbers {
    let device = world.device().autodiff();
    let layers = [0; 3].map(|_| BatchNormConfig::new(FEATURES).init(&device));
    Layers(layers).run(0..SAMPLES, |norm| {
        [norm.gamma.val(), norm.beta.val(), norm.running_mean.value_sync(), norm.running_var.value_sync()]
    })
}

fn close(some: &[f32], others: &[f32], what: &str) {
    assert_eq!(some.len(), others.len(), "{what}");
    for (one, other) in some.iter().zip(others) {
        assert!((one - other).abs() <= 2e-4 * other.abs().max(1.0), "{what}: {one}, not {other}");
    }
}

#[test]
fn all_numbers_are_those_of_one_process() {
    for (ranks, cuts) in [(1, vec![0, 7]), (2, vec![0, 5, 7]), (3, vec![0, 1, 3, 7])] {
        let results = launch(ranks, |world| -> Result<(Numbers, Numbers)> {
            let part = cuts[world.rank()]..cuts[world.rank() + 1];
            Ok((ours(world, part), alone(world)))
        });
        let results = results.unwrap();
        let [output, input, parameters, statistics] = &results[0].1;
        let joined = |number: usize| results.iter().flat_map(|(ours, _)| ours[number].clone()).collect::<Vec<_>>();
        close(&joined(0), output, "output");
        close(&joined(1), input, "gradient of the input");
        // Each rank has what its samples say; together it is what all say.
        let mut sum = vec![0.0; parameters.len()];
        for (ours, _) in &results {
            sum.iter_mut().zip(&ours[2]).for_each(|(sum, one)| *sum += one);
            close(&ours[3], statistics, "running statistics");
        }
        close(&sum, parameters, "gradient of parameters");
    }
}

#[test]
fn outside_training_it_is_burns_and_records_fit_both() {
    let differences = launch(2, |world| -> Result<f32> {
        let device = world.device().autodiff();
        let sync = SyncBatchNorm::new(world, BatchNormConfig::new(FEATURES).init(&device));
        let input = Tensor::<2>::ones([world.rank() + 2, FEATURES], &device) * 5.0;
        sync.forward(input.clone());
        let sync = sync.valid();
        let plain = BatchNormConfig::new(FEATURES).init(&world.device()).load_record(sync.clone().into_record());
        let input = input.inner();
        // No rank waits for another here.
        let difference = if world.rank() == 0 {
            sync.forward(input.clone()) - plain.forward(input.clone())
        } else {
            input.zeros_like()
        };
        // All were 5, so the mean is a tenth of that and the variance has lost a tenth.
        let normal = plain.forward(input).max().into_scalar::<f32>();
        assert!((normal - 4.5 / 0.9_f32.sqrt()).abs() < 1e-4, "{normal}");
        Ok(difference.abs().max().into_scalar::<f32>())
    });
    assert_eq!(differences.unwrap(), [0.0, 0.0]);
}
