//! Minimisation of smooth functions in a box, by limited-memory BFGS with projected steps.
//!
//! Dimensions that press against their bound are left out of the step (Bertsekas' active set), the others follow the
//! quasi-Newton direction along the projected arc until the function has fallen enough (Armijo). That is less than the
//! full L-BFGS-B does, and enough for the smooth functions of few variables here, of which only a few steps are wanted.

use super::dense::dot;

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Evaluations of the function at most.
    pub(crate) evaluations: usize,
    /// Stop when no projected gradient is larger than this.
    pub(crate) gradient: f64,
    /// Stop when a step gains less than this.
    pub(crate) gain: f64,
}

/// A point and the function's value there.
#[derive(Debug, Clone)]
pub(crate) struct Minimum {
    pub(crate) point: Vec<f64>,
    pub(crate) value: f64,
}

const MEMORY: usize = 8;

/// Minimises from `start`. The function writes its gradient and returns its value; a value that is not finite means
/// that the point is out of reach, and shorter steps are tried.
pub(crate) fn minimize(
    start: &[f64],
    lower: &[f64],
    upper: &[f64],
    limits: Limits,
    function: impl FnMut(&[f64], &mut [f64]) -> f64,
) -> Minimum {
    let mut problem = Problem { lower, upper, function, left: limits.evaluations };
    let mut here = problem.evaluate(start.to_vec());
    let mut pairs: Vec<Pair> = Vec::new();
    while here.value.is_finite() && problem.left > 0 {
        let fixed = problem.pressed(&here);
        let free = here.gradient.iter().zip(&fixed).filter(|(_, fixed)| !**fixed);
        if free.fold(0.0, |largest: f64, (slope, _)| largest.max(slope.abs())) <= limits.gradient {
            break;
        }
        let mut direction = direction(&here.gradient, &fixed, &pairs);
        if dot(&direction, &here.gradient) >= 0.0 {
            pairs.clear();
            direction = self::direction(&here.gradient, &fixed, &pairs);
        }
        let longest = if pairs.is_empty() { problem.first_step(&direction) } else { 1.0 };
        let Some(next) = problem.search(&here, &direction, longest) else {
            if pairs.is_empty() {
                break;
            }
            pairs.clear();
            continue;
        };
        pairs.extend(Pair::new(&here, &next));
        if pairs.len() > MEMORY {
            pairs.remove(0);
        }
        let gained = here.value - next.value;
        here = next;
        if gained < limits.gain {
            break;
        }
    }
    Minimum { point: here.point, value: here.value }
}

/// A point with value and gradient.
#[derive(Debug)]
struct Place {
    point: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

/// A function in a box, and how often it may still be evaluated.
struct Problem<'a, F> {
    lower: &'a [f64],
    upper: &'a [f64],
    function: F,
    left: usize,
}

impl<F: FnMut(&[f64], &mut [f64]) -> f64> Problem<'_, F> {
    /// The place at a point, or at the nearest one in the box.
    fn evaluate(&mut self, mut point: Vec<f64>) -> Place {
        for ((x, lower), upper) in point.iter_mut().zip(self.lower).zip(self.upper) {
            *x = x.max(*lower).min(*upper);
        }
        let mut gradient = vec![0.0; point.len()];
        let value = (self.function)(&point, &mut gradient);
        self.left = self.left.saturating_sub(1);
        Place { point, value, gradient }
    }

    /// Which dimensions are at a bound that they would leave the box through.
    fn pressed(&self, here: &Place) -> Vec<bool> {
        let pressed = |i: usize| {
            (here.point[i] <= self.lower[i] && here.gradient[i] > 0.0)
                || (here.point[i] >= self.upper[i] && here.gradient[i] < 0.0)
        };
        (0..here.point.len()).map(pressed).collect()
    }

    /// How far to go while nothing is known of curvature: a tenth of the box at most.
    fn first_step(&self, direction: &[f64]) -> f64 {
        let widths = self.upper.iter().zip(self.lower).map(|(upper, lower)| upper - lower);
        let moving = direction.iter().zip(widths).filter(|(slope, _)| **slope != 0.0);
        moving.map(|(slope, width)| 0.1 * width / slope.abs()).fold(1.0, f64::min)
    }

    /// A place along the projected direction where the function has fallen enough.
    fn search(&mut self, here: &Place, direction: &[f64], longest: f64) -> Option<Place> {
        let mut step = longest;
        for _ in 0..12 {
            if self.left == 0 {
                return None;
            }
            let next = self.evaluate(here.point.iter().zip(direction).map(|(x, d)| x + step * d).collect());
            let expected: f64 = (0..direction.len()).map(|i| here.gradient[i] * (next.point[i] - here.point[i])).sum();
            if next.value <= here.value + 1e-4 * expected {
                return Some(next);
            }
            step *= shorter(here.value, next.value, expected);
        }
        None
    }
}

/// By how much to shorten a step that went too far: to the minimum of the parabola through what is known.
fn shorter(value: f64, next: f64, expected: f64) -> f64 {
    let curvature = next - value - expected;
    if curvature.is_finite() && curvature > 0.0 { (-expected / (2.0 * curvature)).clamp(0.1, 0.5) } else { 0.1 }
}

/// A step and the change of the gradient over it.
#[derive(Debug)]
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    product: f64,
}

impl Pair {
    fn new(from: &Place, to: &Place) -> Option<Self> {
        let step: Vec<f64> = to.point.iter().zip(&from.point).map(|(a, b)| a - b).collect();
        let change: Vec<f64> = to.gradient.iter().zip(&from.gradient).map(|(a, b)| a - b).collect();
        let product = dot(&step, &change);
        (product > 1e-10 * dot(&change, &change)).then_some(Self { step, change, product })
    }
}

/// The two loops of L-BFGS over the free dimensions.
fn direction(gradient: &[f64], fixed: &[bool], pairs: &[Pair]) -> Vec<f64> {
    let mut q: Vec<f64> = gradient.iter().zip(fixed).map(|(&g, &fixed)| if fixed { 0.0 } else { -g }).collect();
    let mut factors = vec![0.0; pairs.len()];
    for (pair, factor) in pairs.iter().zip(&mut factors).rev() {
        *factor = dot(&pair.step, &q) / pair.product;
        q.iter_mut().zip(&pair.change).for_each(|(q, y)| *q -= *factor * y);
    }
    if let Some(last) = pairs.last() {
        let scale = last.product / dot(&last.change, &last.change);
        q.iter_mut().for_each(|q| *q *= scale);
    }
    for (pair, factor) in pairs.iter().zip(&factors) {
        let other = dot(&pair.change, &q) / pair.product;
        q.iter_mut().zip(&pair.step).for_each(|(q, s)| *q += (factor - other) * s);
    }
    q.iter_mut().zip(fixed).for_each(|(q, &fixed)| {
        if fixed {
            *q = 0.0;
        }
    });
    q
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { evaluations: 200, gradient: 1e-9, gain: 0.0 };

    fn rosenbrock(x: &[f64], gradient: &mut [f64]) -> f64 {
        gradient.fill(0.0);
        let mut sum = 0.0;
        for i in 1..x.len() {
            let (valley, slope) = (x[i] - x[i - 1] * x[i - 1], 1.0 - x[i - 1]);
            sum += 100.0 * valley * valley + slope * slope;
            gradient[i] += 200.0 * valley;
            gradient[i - 1] -= 400.0 * valley * x[i - 1] + 2.0 * slope;
        }
        sum
    }

    #[test]
    fn follows_a_curved_valley() {
        let minimum = minimize(&[-1.2, 1.0, -0.5, 0.8], &[-2.0; 4], &[2.0; 4], LIMITS, rosenbrock);
        assert!(minimum.value < 1e-14, "{minimum:?}");
    }

    #[test]
    fn stops_at_bounds() {
        // The bound x ≤ 0.5 moves the minimum to (0.5, 0.25).
        let minimum = minimize(&[-1.0, 1.0], &[-2.0; 2], &[0.5, 2.0], LIMITS, rosenbrock);
        assert!((minimum.point[0] - 0.5).abs() < 1e-9 && (minimum.point[1] - 0.25).abs() < 1e-6, "{minimum:?}");
    }

    #[test]
    fn shortens_steps_to_places_without_a_value() {
        let minimum = minimize(&[3.0], &[-10.0], &[10.0], LIMITS, |x, gradient| {
            gradient[0] = 1.0 - 1.0 / x[0];
            if x[0] > 0.0 { x[0] - x[0].ln() } else { f64::NAN }
        });
        assert!((minimum.point[0] - 1.0).abs() < 1e-6, "{minimum:?}");
    }
}
