//! A tree that cuts the unit cube into boxes with a value each: extremely randomised (Geurts and others, 2006), since
//! random cuts are both fast to find and, averaged over many trees, smooth.

use crate::random::Random;

/// Boxes are not cut further with fewer trials than this.
const FEWEST: usize = 4;
/// Random cuts that are tried per parameter.
const CUTS: usize = 3;

/// The boxes of a grown tree.
#[derive(Debug)]
pub(super) struct Tree {
    leaves: Vec<Leaf>,
}

#[derive(Debug, Clone)]
struct Leaf {
    low: Vec<f64>,
    high: Vec<f64>,
    value: f64,
}

impl Leaf {
    fn volume(&self) -> f64 {
        self.low.iter().zip(&self.high).map(|(low, high)| high - low).product()
    }
}

/// A cut: parameter, place, and what it gains.
type Cut = (usize, f64, f64);

impl Tree {
    /// Grows a tree for the trials `chosen`, whose places are `columns[parameter][trial]`.
    pub(super) fn grow(columns: &[Vec<f64>], losses: &[f64], chosen: Vec<usize>, random: &mut Random) -> Self {
        let whole = Leaf { low: vec![0.0; columns.len()], high: vec![1.0; columns.len()], value: 0.0 };
        let mut open = vec![(whole, chosen)];
        let mut leaves = Vec::new();
        while let Some((mut leaf, members)) = open.pop() {
            let Some((parameter, place, _)) = best_cut(columns, losses, &members, random) else {
                leaf.value = members.iter().map(|&i| losses[i]).sum::<f64>() / members.len().max(1) as f64;
                leaves.push(leaf);
                continue;
            };
            let (below, above): (Vec<usize>, Vec<usize>) =
                members.into_iter().partition(|&i| columns[parameter][i] < place);
            let mut upper = leaf.clone();
            leaf.high[parameter] = place;
            upper.low[parameter] = place;
            open.push((leaf, below));
            open.push((upper, above));
        }
        Self { leaves }
    }

    /// The variance of the tree over the whole cube.
    pub(super) fn variance(&self) -> f64 {
        let (mut mean, mut square) = (0.0, 0.0);
        for leaf in &self.leaves {
            let volume = leaf.volume();
            mean += volume * leaf.value;
            square += volume * leaf.value * leaf.value;
        }
        square - mean * mean
    }

    /// The variance of the tree as a function of one parameter, averaged over all others.
    pub(super) fn variance_by(&self, parameter: usize) -> f64 {
        // The average changes at the edges of boxes: by how much, per place.
        let mut changes: Vec<(f64, f64)> = Vec::with_capacity(2 * self.leaves.len());
        for leaf in &self.leaves {
            let (low, high) = (leaf.low[parameter], leaf.high[parameter]);
            let height = leaf.value * leaf.volume() / (high - low);
            changes.push((low, height));
            changes.push((high, -height));
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut at, mut height, mut mean, mut square) = (0.0, 0.0, 0.0, 0.0);
        for (place, change) in changes {
            mean += (place - at) * height;
            square += (place - at) * height * height;
            at = place;
            height += change;
        }
        (square - mean * mean).max(0.0)
    }
}

/// The best of a few random cuts through the members; none when there are too few of them, or nothing to gain.
fn best_cut(columns: &[Vec<f64>], losses: &[f64], members: &[usize], random: &mut Random) -> Option<Cut> {
    if members.len() < FEWEST {
        return None;
    }
    let sum: f64 = members.iter().map(|&i| losses[i]).sum();
    let squares: f64 = members.iter().map(|&i| losses[i] * losses[i]).sum();
    let count = members.len() as f64;
    let mut best: Option<Cut> = None;
    for (parameter, places) in columns.iter().enumerate() {
        let range = members.iter().map(|&i| places[i]);
        let (low, high) = range.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        if low >= high {
            continue;
        }
        for _ in 0..CUTS {
            // Never at `low` itself, so that both sides have members.
            let place = high - random.uniform() * (high - low);
            if place <= low {
                continue;
            }
            let (mut number, mut below) = (0.0, 0.0);
            for &i in members {
                let inside = f64::from(u8::from(places[i] < place));
                number += inside;
                below += inside * losses[i];
            }
            let other = sum - below;
            let gain = below * below / number + other * other / (count - number) - sum * sum / count;
            if gain > 1e-12 * squares && best.is_none_or(|(.., known)| gain > known) {
                best = Some((parameter, place, gain));
            }
        }
    }
    best
}
