//! Losses on a scale that suits a Gaussian process.
//!
//! Losses often span orders of magnitude, with a long tail of bad points whose details do not matter; a stationary
//! process would spend its flexibility on them. So there are a few monotone scales to choose from, and the fit takes
//! the one under which the process explains the losses best, with the change of volume taken into account.

/// A monotone function of losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// As they are up to the median, and logarithmic above it.
    Tail,
    /// The logarithm of the distance from the best, plus this many times that of the median.
    Log(f64),
}

/// The scales to choose from; the first is where a study starts.
pub(super) const SCALES: [Scale; 4] = [Scale::Tail, Scale::Log(1.0), Scale::Log(0.1), Scale::Log(0.01)];

/// Losses on a scale, standardised.
#[derive(Debug, Clone)]
pub(super) struct Warped {
    pub(super) values: Vec<f64>,
    /// The logarithm of the derivative at each loss.
    pub(super) volumes: Vec<f64>,
}

impl Scale {
    /// The losses on this scale, with mean 0 and variance 1; all 0 when they are all the same.
    pub(super) fn warp(self, losses: &[f64]) -> Warped {
        let mut sorted = losses.to_vec();
        sorted.sort_by(f64::total_cmp);
        let low = sorted.first().copied().unwrap_or(0.0);
        let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(0.0);
        let high = sorted.last().copied().unwrap_or(0.0);
        // Where most losses are the same, the distance of the median says nothing.
        let spread = (middle - low).max(1e-9 * (high - low)).clamp(f64::MIN_POSITIVE, f64::MAX);
        let (mut values, mut volumes): (Vec<f64>, Vec<f64>) =
            losses.iter().map(|loss| self.apply(((loss - low) / spread).min(1e9))).unzip();
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let deviation = if deviation > 0.0 && deviation.is_finite() { deviation } else { 1.0 };
        values.iter_mut().for_each(|value| *value = (*value - mean) / deviation);
        volumes.iter_mut().for_each(|volume| *volume -= deviation.ln());
        Warped { values, volumes }
    }

    /// The place of a loss that is so many times as far from the best as the median is, and the logarithm of the
    /// derivative there.
    fn apply(self, distance: f64) -> (f64, f64) {
        match self {
            Self::Tail if distance <= 1.0 => (distance, 0.0),
            Self::Tail => (1.0 + distance.ln(), -distance.ln()),
            Self::Log(offset) => ((distance + offset).ln(), -(distance + offset).ln()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_keeps_the_order_and_is_finite() {
        let many: [&[f64]; 6] =
            [&[1.0, 2.0, 3.0, 50.0, 1e6], &[0.0, 0.0, 0.0, 1.0], &[7.0; 4], &[-f64::MAX, 0.0, f64::MAX], &[3.0], &[]];
        for losses in many {
            for scale in SCALES {
                let warped = scale.warp(losses);
                assert!(warped.values.iter().chain(&warped.volumes).all(|v| v.is_finite()), "{scale:?} of {losses:?}");
                assert!(warped.values.windows(2).all(|pair| pair[0] <= pair[1]), "{scale:?} of {losses:?}");
            }
        }
    }

    #[test]
    fn volumes_are_the_logarithms_of_derivatives() {
        let losses = [1.0, 1.5, 2.0, 4.0, 9.0];
        for scale in SCALES {
            let (_, volume) = scale.apply(3.0);
            let slope = (scale.apply(3.0 + 1e-6).0 - scale.apply(3.0 - 1e-6).0) / 2e-6;
            assert!((slope.ln() - volume).abs() < 1e-6);
            let warped = scale.warp(&losses);
            let square: f64 = warped.values.iter().map(|v| v * v).sum();
            assert!((square - 5.0).abs() < 1e-9, "{scale:?}");
        }
    }
}
