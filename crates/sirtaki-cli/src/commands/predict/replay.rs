//! One step, replayed: tensors become ready, the engine's rule puts them into batches, and these go over the network one
//! after another while the rest is still computed. Pure.
//!
//! It replays the adopted order, which the engine uses after the first steps: batches are fixed, and ranks vote on how
//! far they are before they run what is ready.

use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{
    Operation, Request,
    decide::{
        fuse::{Limits, fuse},
        message::Entry,
    },
};

use super::{
    cost::{Cost, Network},
    work::Tensor,
};

/// A batch of the adopted order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Batch {
    /// Its tensors.
    pub members: Vec<usize>,
    pub bytes: usize,
    /// Time to run it, with the copies before and after it.
    pub seconds: f64,
    pub cost: Cost,
}

/// How a step went, in seconds since its beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct StepTimes {
    /// The slowest worker had computed everything.
    pub computed: f64,
    /// Everything was reduced as well.
    pub ended: f64,
}

/// The batches that `tensors`, in the order in which they come, form among `workers`; `copy` is what passing through the
/// shared buffer costs, in seconds per byte.
pub(super) fn batches(tensors: &[Tensor], limits: Limits, network: &Network, workers: usize, copy: f64) -> Vec<Batch> {
    let operation = Operation::AllReduce(Reduction::SUM);
    let request = |tensor: &Tensor| Request::new(tensor.name.as_str(), operation.clone(), DType::U8, &[tensor.bytes]);
    let requests: Vec<Request> = tensors.iter().map(request).collect();
    let entry = |at: usize| Entry { id: u32::try_from(at).unwrap_or(u32::MAX), define: None, rows: Vec::new() };
    let entries = requests.iter().enumerate().map(|(at, request)| (entry(at), request));
    let batch = |batch: sirtaki_engine::decide::message::Batch| {
        let members: Vec<usize> = batch.entries.iter().map(|entry| entry.id as usize).collect();
        let bytes = members.iter().map(|&at| tensors[at].bytes).sum();
        let cost = network.all_reduce(bytes, workers);
        let copied = if members.len() > 1 && workers > 1 { copy * bytes as f64 } else { 0.0 };
        Batch { members, bytes, seconds: cost.seconds + copied, cost }
    };
    let bytes = tensors.iter().map(|tensor| tensor.bytes as u64).sum();
    fuse(entries, limits.for_step(bytes)).into_iter().map(batch).collect()
}

/// A step in which all workers have the tensors at the times `ready` and have computed everything at `computed`.
pub(super) fn replay(batches: &[Batch], vote: f64, ready: &[f64], computed: f64) -> StepTimes {
    let complete = |batch: &Batch| batch.members.iter().map(|&at| ready[at]).fold(0.0, f64::max);
    let (mut now, mut next) = (0.0_f64, 0);
    while next < batches.len() {
        let voted = now.max(complete(&batches[next]));
        now = voted + vote;
        while next < batches.len() && complete(&batches[next]) <= voted {
            now += batches[next].seconds;
            next += 1;
        }
    }
    StepTimes { computed, ended: now.max(computed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::predict::cost::{LinearCost, PAYLOAD};

    fn network() -> Network {
        Network {
            latency: 0.0,
            rails: 1,
            spine: None,
            bandwidth: 1e6 / PAYLOAD,
            per_host: 1,
            local: LinearCost::default(),
            per_message: 0.0,
            forced: None,
        }
    }

    fn tensors(sizes: &[usize]) -> Vec<Tensor> {
        sizes.iter().map(|&bytes| Tensor { name: "t".into(), bytes }).collect()
    }

    fn batch(members: &[usize], seconds: f64) -> Batch {
        let cost = network().all_reduce(0, 2);
        Batch { members: members.to_vec(), bytes: 0, seconds, cost }
    }

    #[test]
    fn tensors_are_fused_as_the_engine_does_it() {
        let limits = Limits { fused: 2048, large: 1024 };
        let found = batches(&tensors(&[512, 4096, 512, 1000, 64]), limits, &network(), 2, 1e-3);
        let members: Vec<&[usize]> = found.iter().map(|batch| batch.members.as_slice()).collect();
        assert_eq!(members, [&[1][..], &[0, 2, 3], &[4]]);
        assert_eq!(found.iter().map(|batch| batch.bytes).collect::<Vec<_>>(), [4096, 2024, 64]);
        // Only what shares a buffer is copied.
        assert!((found[1].seconds - found[1].cost.seconds - 2.024).abs() < 1e-9);
        assert_eq!(found[0].seconds, found[0].cost.seconds);
    }

    #[test]
    fn what_is_hidden_behind_computing_costs_nothing() {
        let course = replay(&[batch(&[0], 2.0), batch(&[1], 3.0)], 0.0, &[1.0, 2.0], 10.0);
        assert_eq!(course, StepTimes { computed: 10.0, ended: 10.0 });
    }

    #[test]
    fn batches_wait_for_each_other_and_for_their_last_tensor() {
        // The first begins at 4, with its second tensor, and blocks the next until 6.
        let course = replay(&[batch(&[0, 2], 2.0), batch(&[1], 3.0)], 0.0, &[1.0, 2.0, 4.0], 4.0);
        assert_eq!(course, StepTimes { computed: 4.0, ended: 9.0 });
    }

    #[test]
    fn there_is_one_vote_for_all_that_is_ready() {
        let list = [batch(&[0], 1.0), batch(&[1], 1.0), batch(&[2], 1.0)];
        assert_eq!(replay(&list, 0.5, &[0.0, 0.0, 0.0], 0.0).ended, 3.5);
        // From 0: vote and first until 1.5; then the others, which came meanwhile, with one vote.
        assert_eq!(replay(&list, 0.5, &[0.0, 1.0, 1.5], 1.5).ended, 4.0);
        assert_eq!(replay(&list, 0.5, &[0.0, 0.2, 5.0], 5.0).ended, 6.5);
    }

    #[test]
    fn nothing_to_reduce_is_computing_alone() {
        assert_eq!(replay(&[], 1.0, &[], 2.0), StepTimes { computed: 2.0, ended: 2.0 });
    }
}
