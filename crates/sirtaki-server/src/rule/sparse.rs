//! AdaGrad and FTRL-Proximal (McMahan et al., 2013).

use super::{Change, Rule};

pub(super) struct AdaGrad {
    pub(super) epsilon: f32,
}

impl Rule for AdaGrad {
    fn slots(&self) -> usize {
        1
    }

    fn apply(&self, change: Change, weights: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let [squares] = slots else { return };
        let rate = change.rate as f32;
        for ((weight, &gradient), square) in weights.iter_mut().zip(gradient).zip(squares.iter_mut()) {
            *square += gradient * gradient;
            *weight -= rate * gradient / (square.sqrt() + self.epsilon);
        }
    }
}

pub(super) struct Ftrl {
    pub(super) beta: f32,
    pub(super) l1: f32,
    pub(super) l2: f32,
}

impl Rule for Ftrl {
    fn slots(&self) -> usize {
        2
    }

    fn apply(&self, change: Change, weights: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]) {
        let [sums, squares] = slots else { return };
        let rate = change.rate as f32;
        let kept = sums.iter_mut().zip(squares.iter_mut());
        for ((weight, &gradient), (sum, square)) in weights.iter_mut().zip(gradient).zip(kept) {
            let more = *square + gradient * gradient;
            *sum += gradient - (more.sqrt() - square.sqrt()) / rate * *weight;
            *square = more;
            *weight = if sum.abs() <= self.l1 {
                0.0
            } else {
                (self.l1.copysign(*sum) - *sum) / ((self.beta + more.sqrt()) / rate + self.l2)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Change = Change { rate: 0.5, number: 1 };

    #[test]
    fn steps_of_adagrad_shrink() {
        let (mut weights, mut squares) = ([1.0_f32], [0.0_f32]);
        let rule = AdaGrad { epsilon: 0.0 };
        rule.apply(CHANGE, &mut weights, &mut [&mut squares], &[3.0]);
        assert_eq!((weights, squares), ([0.5], [9.0]));
        rule.apply(CHANGE, &mut weights, &mut [&mut squares], &[4.0]);
        assert_eq!((weights, squares), ([0.5 - 0.5 * 4.0 / 5.0], [25.0]));
    }

    #[test]
    fn ftrl_keeps_small_weights_at_zero() {
        let (mut weights, mut sums, mut squares) = ([0.0_f32; 2], [0.0_f32; 2], [0.0_f32; 2]);
        let rule = Ftrl { beta: 1.0, l1: 1.0, l2: 0.0 };
        rule.apply(CHANGE, &mut weights, &mut [&mut sums, &mut squares], &[0.5, -3.0]);
        // The second: z = -3, n = 9, so -(z + l1) / ((1 + 3) / 0.5).
        assert_eq!((weights, sums, squares), ([0.0, 0.25], [0.5, -3.0], [0.25, 9.0]));
    }
}
