//! Which labels of two tiles that overlap are the same object.
//!
//! Networks that find objects themselves draw their borders a little differently in every tile, so touching is not enough:
//! in dense tissue everything touches. Two labels are one object if they share enough of what both have in the overlap
//! (intersection over union), and if each is the other's best match. One object never swallows two.

use std::collections::HashMap;

use crate::VolumeError;

/// The labels of one tile and of another for the same voxels; pairs that are one object, in ascending order. 0 is no object.
pub fn same_objects(one: &[u64], two: &[u64], least: f64) -> Result<Vec<(u64, u64)>, VolumeError> {
    if one.len() != two.len() {
        let problem = format!("an overlap has {} voxels in one tile and {} in the other", one.len(), two.len());
        return Err(VolumeError::Invalid(problem));
    }
    let (mut first, mut second, mut both) = (HashMap::new(), HashMap::new(), HashMap::new());
    for (a, b) in one.iter().zip(two) {
        *first.entry(*a).or_insert(0_u64) += 1;
        *second.entry(*b).or_insert(0_u64) += 1;
        if *a != 0 && *b != 0 {
            *both.entry((*a, *b)).or_insert(0_u64) += 1;
        }
    }
    let shared = |((a, b), count): (&(u64, u64), &u64)| {
        let union = first[a] + second[b] - count;
        ((*a, *b), *count as f64 / union as f64)
    };
    let mut matches: Vec<((u64, u64), f64)> = both.iter().map(shared).filter(|(_, share)| *share >= least).collect();
    // The best first; of equals, the smallest labels.
    matches.sort_by(|one, two| two.1.total_cmp(&one.1).then(one.0.cmp(&two.0)));
    let (mut best_of_one, mut best_of_two) = (HashMap::new(), HashMap::new());
    for ((a, b), _) in &matches {
        best_of_one.entry(*a).or_insert(*b);
        best_of_two.entry(*b).or_insert(*a);
    }
    let mutual = |(a, b): &(u64, u64)| best_of_one[a] == *b && best_of_two[b] == *a;
    let mut pairs: Vec<(u64, u64)> = matches.into_iter().map(|(pair, _)| pair).filter(mutual).collect();
    pairs.sort_unstable();
    Ok(pairs)
}
