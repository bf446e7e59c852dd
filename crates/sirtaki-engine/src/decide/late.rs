//! Who comes late: per rank, measured where tensors meet, so that a straggler shows although everybody's steps take
//! the same time.

use std::time::Duration;

use sirtaki_comm::Rank;

/// One rank's lateness.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Late {
    /// How often it was the last to come.
    pub last: u64,
    /// The sum of its delays behind the first.
    pub total: Duration,
    /// Its longest delay.
    pub worst: Duration,
    /// The tensor of its longest delay.
    pub tensor: String,
}

/// Everybody's lateness.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LateArrivals {
    /// By rank.
    pub ranks: Vec<Late>,
    /// Tensors that met.
    pub meetings: u64,
}

impl LateArrivals {
    /// Nothing yet for `size` ranks.
    pub fn new(size: usize) -> Self {
        Self { ranks: vec![Late::default(); size], meetings: 0 }
    }

    /// A tensor met; ranks without a wish took no part.
    pub(crate) fn note<T>(&mut self, tensor: &str, wishes: &[Option<T>], since: &[Duration]) {
        let came = || (0..wishes.len()).filter(|&rank| wishes[rank].is_some());
        let Some(first) = came().map(|rank| since[rank]).min() else { return };
        self.meetings += 1;
        for rank in came() {
            self.delay(rank, tensor, since[rank].saturating_sub(first));
        }
        if let Some(last) = came().max_by_key(|&rank| since[rank])
            && since[last] > first
        {
            self.ranks[last].last += 1;
        }
    }

    fn delay(&mut self, rank: Rank, tensor: &str, delay: Duration) {
        let late = &mut self.ranks[rank];
        late.total += delay;
        if delay > late.worst {
            late.worst = delay;
            late.tensor.clear();
            late.tensor.push_str(tensor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_straggler_is_known() {
        let mut lateness = LateArrivals::new(3);
        let times = |ms: [u64; 3]| ms.map(Duration::from_millis);
        lateness.note("a", &[Some(()), Some(()), Some(())], &times([5, 1, 9]));
        lateness.note("b", &[None, Some(()), Some(())], &times([90, 2, 4]));
        assert_eq!(lateness.meetings, 2);
        assert_eq!(lateness.ranks[2].last, 2);
        assert_eq!(lateness.ranks[2].total, Duration::from_millis(10));
        assert_eq!((lateness.ranks[2].worst, lateness.ranks[2].tensor.as_str()), (Duration::from_millis(8), "a"));
        assert_eq!(lateness.ranks[0].total, Duration::from_millis(4));
        assert_eq!(lateness.ranks[1], Late::default());
    }
}
