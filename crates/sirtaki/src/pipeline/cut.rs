//! Where to cut a chain of layers so that all stages take about the same time and fit into memory.

use crate::{Error, Result};

/// A layer as it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerCost {
    /// Seconds, or any other unit, for forward and backward together.
    pub time: f64,
    /// Bytes of parameters, gradients, optimizer state and activations.
    pub memory: u64,
}

/// Stages of consecutive layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The layers of each stage.
    pub stages: Vec<std::ops::Range<usize>>,
    /// The time of the longest stage divided by the mean: 1 if all take equally long.
    pub imbalance: f64,
}

/// Cuts layers into `stages` parts, none of them empty, so that the longest takes as little time as possible and none
/// needs more than `memory` bytes.
///
/// ```
/// use sirtaki::pipeline::{LayerCost, cut};
///
/// let layers = [3.0, 1.0, 1.0, 2.0, 1.0].map(|time| LayerCost { time, memory: 1 });
/// let cut = cut(&layers, 2, u64::MAX)?;
/// assert_eq!(cut.stages, [0..2, 2..5]);
/// # Ok::<(), sirtaki::Error>(())
/// ```
pub fn cut(layers: &[LayerCost], stages: usize, memory: u64) -> Result<Cut> {
    if stages == 0 || stages > layers.len() {
        let problem = format!("{} layers cannot be cut into {stages} stages", layers.len());
        return Err(Error::setting(problem, format!("choose from 1 to {} stages", layers.len())));
    }
    if let Some(layer) = layers.iter().position(|layer| layer.time.is_nan() || layer.time < 0.0) {
        return Err(Error::setting(
            format!("layer {layer} takes a time of {}", layers[layer].time),
            "measure it again",
        ));
    }
    let best = best(layers, stages, memory);
    if best[stages][layers.len()].0.is_infinite() {
        let total = layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.memory));
        let problem =
            format!("no cut into {stages} stages has at most {memory} bytes in each; all layers have {total}");
        return Err(Error::setting(problem, "take more stages, or recompute activations"));
    }
    let (mut ranges, mut end) = (Vec::new(), layers.len());
    for part in (1..=stages).rev() {
        let begin = best[part][end].1;
        ranges.push(begin..end);
        end = begin;
    }
    ranges.reverse();
    let total: f64 = layers.iter().map(|layer| layer.time).sum();
    let longest = best[stages][layers.len()].0;
    let imbalance = if total > 0.0 { longest * stages as f64 / total } else { 1.0 };
    Ok(Cut { stages: ranges, imbalance })
}

/// By number of stages and of layers: the longest stage's time in the best cut, and where its last stage begins.
fn best(layers: &[LayerCost], stages: usize, memory: u64) -> Vec<Vec<(f64, usize)>> {
    let none = (f64::INFINITY, 0);
    let mut best = vec![vec![none; layers.len() + 1]; stages + 1];
    best[0][0] = (0.0, 0);
    for part in 1..=stages {
        for end in part..=layers.len() {
            let (mut time, mut bytes) = (0.0, 0_u64);
            for begin in (part - 1..end).rev() {
                time += layers[begin].time;
                bytes = bytes.saturating_add(layers[begin].memory);
                if bytes > memory {
                    break;
                }
                let longest = f64::max(time, best[part - 1][begin].0);
                if longest < best[part][end].0 {
                    best[part][end] = (longest, begin);
                }
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layers(times: &[u32]) -> Vec<LayerCost> {
        times.iter().map(|&time| LayerCost { time: f64::from(time), memory: u64::from(time) }).collect()
    }

    /// The longest stage of the best of all cuts.
    fn exhaustive(times: &[u32], stages: usize) -> u32 {
        if stages == 1 {
            return times.iter().sum();
        }
        let cuts = 1..=times.len() + 1 - stages;
        cuts.map(|first| times[..first].iter().sum::<u32>().max(exhaustive(&times[first..], stages - 1))).min().unwrap()
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        assert!(cut(&layers(&[1, 2]), 3, u64::MAX).is_err());
        assert!(cut(&layers(&[1, 2]), 0, u64::MAX).is_err());
        let error = cut(&layers(&[4, 4, 4]), 2, 6).unwrap_err();
        assert_eq!(error.to_string(), "no cut into 2 stages has at most 6 bytes in each; all layers have 12");
        assert!(cut(&[LayerCost { time: f64::NAN, memory: 0 }], 1, u64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn the_cut_is_the_best(times in prop::collection::vec(0_u32..20, 1..9), stages in 1_usize..5) {
            prop_assume!(stages <= times.len());
            let cut = cut(&layers(&times), stages, u64::MAX).unwrap();
            prop_assert_eq!(cut.stages.len(), stages);
            prop_assert!(cut.stages.iter().all(|stage| !stage.is_empty()));
            prop_assert_eq!(cut.stages.iter().cloned().flatten().collect::<Vec<_>>(), (0..times.len()).collect::<Vec<_>>());
            let longest = cut.stages.iter().map(|stage| times[stage.clone()].iter().sum::<u32>()).max().unwrap();
            prop_assert_eq!(longest, exhaustive(&times, stages));
        }
    }
}
