//! Random calls against the reference.

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use sirtaki_comm::{Communicator, DType, ReduceOp, Reduction};

use crate::{
    data::{Data, numbers},
    reference::{assert_close, expected},
    team::{Make, Team},
};

#[derive(Debug, Clone)]
struct Call {
    dtype: DType,
    reduction: Reduction,
    count: usize,
    seed: usize,
    cuts: Vec<usize>,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let factor = select(vec![1.0, 1.0, 1.0, 0.5, 2.0]);
    let reduction = (select(ReduceOp::ALL.to_vec()), factor.clone(), factor)
        .prop_map(|(op, before, after)| Reduction::new(op).scaled(before, after));
    let count = prop_oneof![0usize..4, 0usize..300, 0usize..20_000];
    let call = (select(DType::ALL.to_vec()), reduction, count, 0usize..1000, prop::collection::vec(0usize..=100, 16))
        .prop_map(|(dtype, reduction, count, seed, cuts)| Call { dtype, reduction, count, seed, cuts });
    prop::collection::vec(call, 1..5)
}

impl Call {
    /// `count` elements cut into `size` parts at random places.
    fn counts(&self, size: usize) -> Vec<usize> {
        let mut places: Vec<usize> = self.cuts[..size - 1].iter().map(|cut| self.count * cut / 100).collect();
        places.sort_unstable();
        places.insert(0, 0);
        places.push(self.count);
        places.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    fn check(&self, comm: &mut dyn Communicator) {
        let &Call { dtype, reduction, count, seed, .. } = self;
        let (rank, size) = (comm.group().rank(), comm.group().size());
        let counts = self.counts(size);
        let (from, to) = (counts[..rank].iter().sum(), counts[..=rank].iter().sum());
        let input = Data::new(dtype, &numbers(dtype, rank, count, seed));
        let whole = expected(dtype, reduction, size, count, seed);
        let mut data = input.clone();
        comm.all_reduce(data.slice_mut(), reduction).unwrap();
        assert_close("all_reduce", dtype, &data, &whole);
        let mut data = input.clone();
        comm.reduce_scatter(data.slice_mut(), &counts, reduction).unwrap();
        assert_close("reduce_scatter", dtype, &data.part(from, to), &whole.part(from, to));
        comm.all_gather(data.slice_mut(), &counts).unwrap();
        assert_close("reduce_scatter and all_gather", dtype, &data, &whole);
        let mut data = input;
        comm.reduce(data.slice_mut(), reduction, seed % size).unwrap();
        comm.broadcast(data.slice_mut(), seed % size).unwrap();
        assert_close("reduce and broadcast", dtype, &data, &whole);
    }
}

/// Random types, operations, factors, lengths, cuts and group sizes; a failing case is made as small as possible.
pub fn random_calls(make: Make<'_>, sizes: &[usize]) {
    let config = Config { cases: 40, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let strategy = (select(sizes.to_vec()), calls());
    let outcome = TestRunner::new(config).run(&strategy, |(size, calls)| {
        Team::new(make, size).each(|comm| calls.iter().for_each(|call| call.check(comm)));
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
