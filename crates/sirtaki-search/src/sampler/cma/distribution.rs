//! The distribution of CMA-ES and how it learns. Coordinates are the unit form of the ordered parameters.

use crate::{
    numerics::{dense::dot, eigen},
    random::Random,
    sampler::Observation,
    space::{Point, Space},
};

/// Where the first run starts: in the middle, and wide enough to reach everywhere.
const FIRST_STEP: f64 = 0.3;
/// Runs end when no coordinate moves by more than this any more.
const SMALLEST_STEP: f64 = 1e-9;
/// Runs end when the axes differ by more than this factor, squared: rounding errors would take over.
const WORST_CONDITION: f64 = 1e14;

/// A normal distribution over ordered parameters, and probabilities of choices.
#[derive(Debug, Clone)]
pub(super) struct Distribution {
    seed: u64,
    restarts: u32,
    /// The ordered parameters that have more than one value.
    ordered: Vec<usize>,
    /// Parameters that are choices, and the probability of each alternative.
    choices: Vec<(usize, Vec<f64>)>,
    mean: Vec<f64>,
    step: f64,
    covariance: Vec<f64>,
    /// Eigenvectors of the covariance in columns, and the roots of its eigenvalues.
    basis: Vec<f64>,
    axes: Vec<f64>,
    step_path: Vec<f64>,
    shape_path: Vec<f64>,
    generation: u32,
    /// The best loss of each generation of this run.
    bests: Vec<f64>,
}

impl Distribution {
    pub(super) fn new(space: &Space, seed: u64) -> Self {
        let (mut ordered, mut choices) = (Vec::new(), Vec::new());
        for (index, parameter) in space.parameters().iter().enumerate() {
            match parameter.domain.count() {
                Some(1) => {}
                Some(count) if parameter.domain.is_choice() => {
                    choices.push((index, vec![1.0 / count as f64; count as usize]));
                }
                _ => ordered.push(index),
            }
        }
        let mut distribution = Self {
            seed,
            restarts: 0,
            mean: vec![0.5; ordered.len()],
            ordered,
            choices,
            step: FIRST_STEP,
            covariance: Vec::new(),
            basis: Vec::new(),
            axes: Vec::new(),
            step_path: Vec::new(),
            shape_path: Vec::new(),
            generation: 0,
            bests: Vec::new(),
        };
        distribution.become_round();
        distribution
    }

    fn become_round(&mut self) {
        let n = self.ordered.len();
        self.covariance = (0..n * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect();
        self.basis = self.covariance.clone();
        self.axes = vec![1.0; n];
        self.step_path = vec![0.0; n];
        self.shape_path = vec![0.0; n];
        self.generation = 0;
        self.bests.clear();
    }

    /// How many points a generation has.
    pub(super) fn population(&self) -> usize {
        let dimensions = (self.ordered.len() + self.choices.len()).max(1) as f64;
        ((4.0 + 3.0 * dimensions.ln()) as usize) << self.restarts.min(8)
    }

    /// A point of the distribution. What falls outside is drawn again, and cut off in the end.
    pub(super) fn draw(&self, space: &Space, random: &mut Random) -> Point {
        let mut unit = vec![0.5; space.len()];
        for attempt in 0..10 {
            let drawn = self.draw_ordered(space, random);
            let inside = drawn.iter().all(|x| (0.0..=1.0).contains(x));
            if inside || attempt == 9 {
                for (&index, x) in self.ordered.iter().zip(drawn) {
                    unit[index] = x.clamp(0.0, 1.0);
                }
                break;
            }
        }
        for (index, probabilities) in &self.choices {
            unit[*index] = (random.weighted(probabilities) as f64 + 0.5) / probabilities.len() as f64;
        }
        space.from_unit(&unit)
    }

    fn draw_ordered(&self, space: &Space, random: &mut Random) -> Vec<f64> {
        let n = self.ordered.len();
        let stretched: Vec<f64> = self.axes.iter().map(|axis| axis * random.normal()).collect();
        (0..n)
            .map(|i| {
                let drawn = self.mean[i] + self.step * dot(&self.basis[i * n..(i + 1) * n], &stretched);
                // Where there are steps, a distribution narrower than one would be stuck at it.
                let least = space.parameters()[self.ordered[i]].domain.count().map_or(0.0, |count| 0.3 / count as f64);
                let deviation = self.step * self.covariance[i * n + i].sqrt();
                let missing = (least * least - deviation * deviation).max(0.0).sqrt();
                if missing > 0.0 { drawn + missing * random.normal() } else { drawn }
            })
            .collect()
    }

    /// Learns from a generation, best first.
    pub(super) fn learn(&mut self, space: &Space, sorted: &[&Observation]) {
        let weights = weights(sorted.len());
        self.learn_choices(&weights, sorted);
        if !self.ordered.is_empty() {
            self.learn_ordered(space, &weights, sorted);
        }
        self.generation += 1;
        self.bests.push(sorted.first().and_then(|o| o.losses.first()).copied().unwrap_or(f64::INFINITY));
        if self.is_exhausted(sorted.len()) {
            self.restart();
        }
    }

    fn learn_choices(&mut self, weights: &[f64], sorted: &[&Observation]) {
        for (index, probabilities) in &mut self.choices {
            let count = probabilities.len() as f64;
            let rate = 1.0 / (1.0 + count);
            let mut seen = vec![0.0; probabilities.len()];
            for (weight, observation) in weights.iter().zip(sorted) {
                match observation.point.0[*index] {
                    Some(value) => seen[value as usize] += weight,
                    None => seen.iter_mut().zip(&*probabilities).for_each(|(seen, p)| *seen += weight * p),
                }
            }
            // Nothing is ever ruled out.
            let least = 0.2 / count;
            for (probability, seen) in probabilities.iter_mut().zip(&seen) {
                *probability = ((1.0 - rate) * *probability + rate * seen).max(least);
            }
            let sum: f64 = probabilities.iter().sum();
            probabilities.iter_mut().for_each(|p| *p /= sum);
        }
    }

    fn learn_ordered(&mut self, space: &Space, weights: &[f64], sorted: &[&Observation]) {
        let n = self.ordered.len();
        let rates = Rates::new(n, weights);
        let moves: Vec<Vec<f64>> =
            sorted.iter().take(weights.len()).map(|o| self.normalized(space, &o.point)).collect();
        let mean_move: Vec<f64> =
            (0..n).map(|i| weights.iter().zip(&moves).map(|(weight, step)| weight * step[i]).sum()).collect();
        for (mean, step) in self.mean.iter_mut().zip(&mean_move) {
            *mean = (*mean + self.step * step).clamp(0.0, 1.0);
        }
        let white = self.whitened(&mean_move);
        let inertia = (rates.step * (2.0 - rates.step) * rates.mass).sqrt();
        for (path, white) in self.step_path.iter_mut().zip(&white) {
            *path = (1.0 - rates.step) * *path + inertia * white;
        }
        let length = dot(&self.step_path, &self.step_path).sqrt();
        let settled = 1.0 - (1.0 - rates.step).powf(2.0 * f64::from(self.generation + 1));
        let calm = length / settled.sqrt() < (1.4 + 2.0 / (n as f64 + 1.0)) * rates.expected;
        let inertia = if calm { (rates.shape * (2.0 - rates.shape) * rates.mass).sqrt() } else { 0.0 };
        for (path, step) in self.shape_path.iter_mut().zip(&mean_move) {
            *path = (1.0 - rates.shape) * *path + inertia * step;
        }
        let lost = if calm { 0.0 } else { rates.one * rates.shape * (2.0 - rates.shape) };
        for i in 0..n {
            for j in 0..n {
                let many: f64 = weights.iter().zip(&moves).map(|(weight, step)| weight * step[i] * step[j]).sum();
                let element = &mut self.covariance[i * n + j];
                *element = (1.0 - rates.one - rates.many + lost) * *element
                    + rates.one * self.shape_path[i] * self.shape_path[j]
                    + rates.many * many;
            }
        }
        self.step *= ((rates.step / rates.damping) * (length / rates.expected - 1.0)).min(1.0).exp();
        self.step = self.step.min(1.0);
        let (values, basis) = eigen::symmetric(&self.covariance, n);
        self.basis = basis;
        self.axes = values.into_iter().map(|value| value.max(0.0).sqrt()).collect();
    }

    /// Where a point is as seen from the mean, in steps; parameters that it does not have stay at the mean, and points
    /// that are too far out are moved closer.
    fn normalized(&self, space: &Space, point: &Point) -> Vec<f64> {
        let n = self.ordered.len();
        let unit = |index: usize| point.0[index].map(|value| space.parameters()[index].domain.to_unit(value));
        let mut step: Vec<f64> =
            (0..n).map(|i| unit(self.ordered[i]).map_or(0.0, |unit| (unit - self.mean[i]) / self.step)).collect();
        let white = self.whitened(&step);
        let length = dot(&white, &white).sqrt();
        let farthest = (n as f64).sqrt() + 2.0 * n as f64 / (n as f64 + 2.0);
        if length > farthest {
            step.iter_mut().for_each(|x| *x *= farthest / length);
        }
        step
    }

    /// The vector in coordinates in which the distribution is round.
    fn whitened(&self, vector: &[f64]) -> Vec<f64> {
        let n = self.ordered.len();
        let mut white = vec![0.0; n];
        for axis in 0..n {
            let along: f64 = (0..n).map(|i| self.basis[i * n + axis] * vector[i]).sum();
            let scaled = along / self.axes[axis].max(1e-150);
            for (i, white) in white.iter_mut().enumerate() {
                *white += self.basis[i * n + axis] * scaled;
            }
        }
        white
    }

    /// Whether this run has nothing left to find.
    fn is_exhausted(&self, population: usize) -> bool {
        let n = self.ordered.len();
        let widest = (0..n).fold(0.0, |widest: f64, i| widest.max(self.covariance[i * n + i].sqrt()));
        let (thin, thick) = self.axes.iter().fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), &x| (a.min(x), b.max(x)));
        let patience = 10 + (30 * n).div_ceil(population);
        let flat = self.bests.len() > patience && {
            let last = &self.bests[self.bests.len() - patience..];
            let (low, high) = last.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
            high - low <= 1e-13 * high.abs()
        };
        n > 0 && (self.step * widest < SMALLEST_STEP || (thick / thin).powi(2) > WORST_CONDITION || flat)
    }

    fn restart(&mut self) {
        self.restarts += 1;
        let mut random = Random::new(self.seed, &[u64::from(self.restarts), 0x6972]);
        self.mean.iter_mut().for_each(|mean| *mean = random.uniform());
        for (_, probabilities) in &mut self.choices {
            let count = probabilities.len() as f64;
            probabilities.fill(1.0 / count);
        }
        self.step = FIRST_STEP;
        self.become_round();
    }
}

/// The weights of the better half of a generation: falling logarithmically, 1 in sum.
fn weights(population: usize) -> Vec<f64> {
    let better = (population / 2).max(1);
    let raw: Vec<f64> = (1..=better).map(|rank| (population as f64 / 2.0 + 0.5).ln() - (rank as f64).ln()).collect();
    let sum: f64 = raw.iter().sum();
    if sum > 0.0 { raw.iter().map(|weight| weight / sum).collect() } else { vec![1.0 / better as f64; better] }
}

/// How fast what is learnt, with Hansen's names in brackets.
struct Rates {
    /// How many points count, in effect (µ_eff).
    mass: f64,
    /// Of the path of the step size (c_σ).
    step: f64,
    /// How much the step size resists (d_σ).
    damping: f64,
    /// Of the path of the mean (c_c).
    shape: f64,
    /// Of the covariance from that path (c_1), and from the points of a generation (c_µ).
    one: f64,
    many: f64,
    /// The expected length of a random vector.
    expected: f64,
}

impl Rates {
    fn new(dimensions: usize, weights: &[f64]) -> Self {
        let n = dimensions as f64;
        let mass = 1.0 / weights.iter().map(|weight| weight * weight).sum::<f64>();
        let step = (mass + 2.0) / (n + mass + 5.0);
        let one = 2.0 / ((n + 1.3).powi(2) + mass);
        Self {
            mass,
            step,
            damping: 1.0 + 2.0 * (((mass - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0) + step,
            shape: (4.0 + mass / n) / (n + 4.0 + 2.0 * mass / n),
            one,
            many: (2.0 * (mass - 2.0 + 1.0 / mass) / ((n + 2.0).powi(2) + mass)).max(0.0).min(1.0 - one),
            expected: n.sqrt() * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n)),
        }
    }
}
