//! Which processors a rank may use: the machine's processors are divided among its ranks, so that no two compete for
//! one.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The processors this process may use.
pub fn usable() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => Vec::new(),
    }
}

/// The share of rank `rank` of `ranks`: neighbours of each other, none used twice while there are enough.
pub fn share<T: Clone>(usable: &[T], rank: usize, ranks: usize) -> Vec<T> {
    if usable.is_empty() || ranks > usable.len() {
        return usable.get(rank % usable.len().max(1)).cloned().into_iter().collect();
    }
    let begin = |rank: usize| rank * usable.len() / ranks;
    usable[begin(rank)..begin(rank + 1)].to_vec()
}

/// The same in the system's format; `None` if there is nothing to choose from.
pub fn set(cores: &[usize]) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    (!cores.is_empty()).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_divided_and_shared_only_when_they_must_be() {
        assert_eq!(share(&[0, 1, 2, 3, 4], 0, 2), [0, 1]);
        assert_eq!(share(&[0, 1, 2, 3, 4], 1, 2), [2, 3, 4]);
        assert_eq!(share(&[4, 6], 3, 4), [6]);
        assert!(share::<usize>(&[], 0, 4).is_empty());
        assert!(!usable().is_empty());
    }
}
