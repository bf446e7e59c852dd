//! SGD with momentum, Adam and AdamW, operation by operation as in Burn.

use super::{Change, Rule};

pub(super) struct Sgd {
    pub(super) momentum: f32,
    pub(super) dampening: f64,
    pub(super) nesterov: bool,
    pub(super) weight_decay: f32,
}

impl Rule for Sgd {
    fn slots(&self) -> usize {
        usize::from(self.momentum != 0.0)
    }

    fn apply(&self, change: Change, weights: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let (rate, taken) = (change.rate as f32, (1.0 - self.dampening) as f32);
        let decayed = |weight: f32, gradient: f32| {
            if self.weight_decay == 0.0 { gradient } else { weight * self.weight_decay + gradient }
        };
        let pairs = weights.iter_mut().zip(gradient);
        // Two loops, so that the compiler computes several elements at a time.
        let Some(velocities) = slots.first_mut() else {
            return pairs.for_each(|(weight, &gradient)| *weight -= decayed(*weight, gradient) * rate);
        };
        for ((weight, &gradient), velocity) in pairs.zip(velocities.iter_mut()) {
            let own = decayed(*weight, gradient);
            *velocity = if change.number == 1 { own } else { own * taken + *velocity * self.momentum };
            let step = if self.nesterov { *velocity * self.momentum + own } else { *velocity };
            *weight -= step * rate;
        }
    }
}

pub(super) struct Adam {
    pub(super) beta_1: f32,
    pub(super) beta_2: f32,
    pub(super) epsilon: f32,
    pub(super) weight_decay: f32,
    /// Whether weights decay beside gradients instead of with them.
    pub(super) beside: bool,
}

impl Rule for Adam {
    fn slots(&self) -> usize {
        2
    }

    fn apply(&self, change: Change, weights: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let [first, second] = slots else { return };
        let rate = change.rate as f32;
        let time = i32::try_from(change.number).unwrap_or(i32::MAX);
        let (left_1, left_2) = (1.0 - self.beta_1.powi(time), 1.0 - self.beta_2.powi(time));
        let (factor, epsilon) = (left_2.sqrt() / left_1, self.epsilon * left_2.sqrt());
        let kept = (1.0 - change.rate * f64::from(self.weight_decay)) as f32;
        let with = self.weight_decay != 0.0 && !self.beside;
        let moments = first.iter_mut().zip(second.iter_mut());
        for ((weight, &gradient), (first, second)) in weights.iter_mut().zip(gradient).zip(moments) {
            let gradient = if with { *weight * self.weight_decay + gradient } else { gradient };
            let (new, square) = (gradient * (1.0 - self.beta_1), gradient * gradient * (1.0 - self.beta_2));
            *first = if change.number == 1 { new } else { *first * self.beta_1 + new };
            *second = if change.number == 1 { square } else { *second * self.beta_2 + square };
            *weight = match self.beside {
                false => *weight - *first * factor / (second.sqrt() + epsilon) * rate,
                true => *weight * kept - *first / left_1 / ((*second / left_2).sqrt() + self.epsilon) * rate,
            };
        }
    }
}
