//! Random programs on real engines: every rank hands in the same tensors in its own order, and what comes back is what
//! one process would have computed.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use proptest::{prelude::*, test_runner::Config};
use sirtaki_comm::{DType, ReduceOp, Reduction};
use sirtaki_engine::{Engine, Operation, Request, Settings, Tensor, Ticket, fuse::Limits, request::shares};
use sirtaki_tests::{engines::each, make};

/// One tensor of a step. Values are small whole numbers, so that sums are exact in every order.
#[derive(Debug, Clone)]
struct Wish {
    kind: usize,
    rows: usize,
    op: usize,
}

impl Wish {
    fn value(&self, rank: usize, at: usize, step: usize) -> i64 {
        ((rank * 31 + at * 7 + step * 3 + self.kind) % 19) as i64 - 9
    }

    fn rows_of(&self, rank: usize) -> usize {
        if self.kind == 1 { self.rows / (rank + 1) } else { self.rows }
    }

    fn input(&self, rank: usize, step: usize) -> Vec<i64> {
        (0..self.rows_of(rank) * 2).map(|at| self.value(rank, at, step)).collect()
    }

    fn splits(&self, size: usize) -> Vec<usize> {
        let mut splits = shares(self.rows, size);
        splits.reverse();
        splits
    }

    fn operation(&self, size: usize) -> Operation {
        match self.kind {
            1 => Operation::AllGather,
            2 => Operation::Broadcast { root: self.rows % size },
            3 => Operation::AllToAll { splits: self.splits(size) },
            4 => Operation::ReduceScatter(self.reduction()),
            _ => Operation::AllReduce(self.reduction()),
        }
    }

    fn reduction(&self) -> Reduction {
        Reduction::new([ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max][self.op])
    }

    fn submit(&self, engine: &Engine, name: &str, step: usize) -> Ticket {
        let (rank, size) = (engine.group().rank(), engine.group().size());
        let request = Request::new(name, self.operation(size), DType::I64, &[self.rows_of(rank), 2]);
        engine.submit(request, Tensor::from_vec(self.input(rank, step)))
    }

    fn expected(&self, rank: usize, size: usize, step: usize) -> Vec<i64> {
        let reduced = || -> Vec<i64> {
            let column = |at| (0..size).map(move |rank| self.value(rank, at, step));
            let reduce = |at| match self.op {
                0 => column(at).sum(),
                1 => column(at).min().unwrap(),
                _ => column(at).max().unwrap(),
            };
            (0..self.rows * 2).map(reduce).collect()
        };
        let part = |shares: &[usize], rank: usize| {
            let begin: usize = shares[..rank].iter().sum();
            2 * begin..2 * (begin + shares[rank])
        };
        match self.kind {
            1 => (0..size).flat_map(|rank| self.input(rank, step)).collect(),
            2 => self.input(self.rows % size, step),
            3 => (0..size).flat_map(|from| self.input(from, step)[part(&self.splits(size), rank)].to_vec()).collect(),
            4 => reduced()[part(&shares(self.rows, size), rank)].to_vec(),
            _ => reduced(),
        }
    }
}

fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = seed | 1;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

fn wish() -> impl Strategy<Value = Wish> {
    (0_usize..9, 0_usize..200, 0_usize..3).prop_map(|(kind, rows, op)| Wish { kind, rows, op })
}

proptest! {
    #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]

    #[test]
    fn results_equal_those_of_one_process(
        steps in prop::collection::vec((prop::collection::vec(wish(), 1..12), 1_usize..6), 1..4),
        size in 1_usize..5,
        seed in any::<u64>(),
        tcp in any::<bool>(),
    ) {
        let settings = Settings { limits: Limits { fused: 4096, large: 2048 }, ..Settings::default() };
        let make = if tcp && size > 1 { make::tcp } else { make::arena };
        each(&make, size, &settings, |engine| {
            let rank = engine.group().rank();
            for (index, (wishes, repeats)) in steps.iter().enumerate() {
                for step in 0..*repeats {
                    let order = shuffled(wishes.len(), seed ^ (index * 1000 + step * 10 + rank) as u64);
                    let tickets: Vec<(usize, Ticket)> =
                        order.into_iter().map(|at| (at, wishes[at].submit(engine, &format!("t{at}"), step))).collect();
                    for (at, ticket) in tickets {
                        let result = ticket.wait_one().unwrap().into_vec::<i64>().unwrap();
                        assert_eq!(result, wishes[at].expected(rank, size, step), "{:?} in step {step}", wishes[at]);
                    }
                }
            }
        });
    }
}
