//! LARS: a rate for each layer (You, Gitman and Ginsburg, arXiv:1708.03888).
//!
//! With very large batches one rate is too high for layers whose gradients are large relative to their weights, and too
//! low for others. LARS multiplies the rate of a layer with weights `w`, gradients `g` and weight decay `d` by
//!
//! ```text
//! trust = η · |w| / (|g| + d · |w|)
//! ```
//!
//! so that a step changes every layer by about the same fraction of its size.

#[cfg(feature = "burn")]
pub use crate::parallel::LarsSgd;

/// The two numbers of LARS.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lars {
    /// `η`, how far a layer may change in a step; 0.001 in the paper.
    pub trust: f64,
    /// `d`, the weight decay.
    pub decay: f64,
}

impl Lars {
    /// What the rate of a layer is multiplied by. It is 1 where the formula says nothing: for weights or gradients that
    /// are all zero, as biases are at first, or not numbers.
    ///
    /// Sums are computed in `f64` and in order, so the result is the same on every worker.
    pub fn ratio(self, weights: &[f32], gradients: &[f32]) -> f64 {
        let (weights, gradients) = (norm(weights), norm(gradients));
        let ratio = self.trust * weights / (gradients + self.decay * weights);
        if ratio.is_finite() && ratio > 0.0 && gradients > 0.0 { ratio } else { 1.0 }
    }
}

/// The length of a vector.
fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_by_hand() {
        let lars = Lars { trust: 0.001, decay: 0.0 };
        assert!((lars.ratio(&[3.0, 4.0], &[0.0, 0.5]) - 0.01).abs() < 1e-15);
        let lars = Lars { trust: 0.02, decay: 0.1 };
        assert!((lars.ratio(&[3.0, -4.0], &[-0.5, 0.0]) - 0.1).abs() < 1e-15);
    }

    #[test]
    fn a_step_does_not_depend_on_the_size_of_gradients() {
        let lars = Lars { trust: 0.001, decay: 0.0 };
        let step = |factor: f32| {
            let gradients = [0.1 * factor, -0.2 * factor];
            lars.ratio(&[1.0, 2.0], &gradients) * f64::from(gradients[0])
        };
        assert!((step(1.0) - step(1000.0)).abs() < 1e-9);
    }

    #[test]
    fn zeros_and_nan_leave_the_rate_alone() {
        let lars = Lars { trust: 0.001, decay: 0.1 };
        for (weights, gradients) in [
            ([0.0, 0.0], [1.0, 1.0]),
            ([1.0, 1.0], [0.0, 0.0]),
            ([f32::NAN, 1.0], [1.0, 1.0]),
            ([1.0, 1.0], [f32::INFINITY, 1.0]),
        ] {
            assert_eq!(lars.ratio(&weights, &gradients), 1.0);
        }
        assert_eq!(lars.ratio(&[], &[]), 1.0);
        assert!(lars.ratio(&[f32::MAX; 4], &[f32::MAX; 4]).is_finite());
    }
}
