//! Random programs on real engines: every rank hands in the same tensors in its own order, and what comes back is what
//! one process would have computed.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use proptest::{prelude::*, test_runner::Config};
use sirtaki_comm::{DType, ReduceOp, Reduction};
use sirtaki_engine::{
    Engine, Operation, Request, Settings, Tensor, Ticket,
    decide::{fuse::Limits, request::shares},
};
use sirtaki_tests::{engines::each, make};

/// One tensor of a step. Values are small whole numbers, so that sums are exact in every order and type.
#[derive(Debug, Clone)]
struct Wish {
    kind: usize,
    rows: usize,
    op: usize,
    floats: bool,
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

    fn operation(&self, size: usize, root: usize) -> Operation {
        match self.kind {
            1 => Operation::AllGather,
            2 => Operation::Broadcast { root },
            3 => Operation::AllToAll { splits: self.splits(size) },
            4 => Operation::ReduceScatter(self.reduction()),
            _ => Operation::AllReduce(self.reduction()),
        }
    }

    fn reduction(&self) -> Reduction {
        Reduction::new([ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max][self.op])
    }

    fn submit(&self, engine: &Engine, name: &str, step: usize, root: usize) -> Ticket {
        let (rank, size) = (engine.group().rank(), engine.group().size());
        let input = self.input(rank, step);
        let (dtype, tensor) = match self.floats {
            true => (DType::F32, Tensor::from_vec(input.iter().map(|&x| x as f32).collect())),
            false => (DType::I64, Tensor::from_vec(input)),
        };
        engine.submit(Request::new(name, self.operation(size, root), dtype, &[self.rows_of(rank), 2]), tensor)
    }

    fn result(&self, ticket: Ticket) -> Vec<i64> {
        let output = ticket.wait_one().unwrap();
        match self.floats {
            true => output.into_vec::<f32>().unwrap().into_iter().map(|x| x as i64).collect(),
            false => output.into_vec().unwrap(),
        }
    }

    /// What `rank` gets when those of `present` ranks that are there bring something.
    fn expected(&self, rank: usize, present: &[bool], step: usize, root: usize) -> Vec<i64> {
        let size = present.len();
        let there = || (0..size).filter(|&rank| present[rank]);
        let reduced = || -> Vec<i64> {
            let column = |at| there().map(move |rank| self.value(rank, at, step));
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
            1 => there().flat_map(|rank| self.input(rank, step)).collect(),
            2 => self.input(root, step),
            3 => there().flat_map(|from| self.input(from, step)[part(&self.splits(size), rank)].to_vec()).collect(),
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
    let wish = |(kind, rows, op, floats)| Wish { kind, rows, op, floats };
    (0_usize..7, 0_usize..200, 0_usize..3, any::<bool>()).prop_map(wish)
}

/// Hands everything in, in an order of this rank's own, and looks at what comes back.
fn step(engine: &Engine, wishes: &[Wish], present: &[bool], (step, root): (usize, usize), seed: u64) {
    let rank = engine.group().rank();
    let order = shuffled(wishes.len(), seed ^ (step * 10 + rank) as u64);
    let submit = |at: usize| (at, wishes[at].submit(engine, &format!("t{at}"), step, root));
    for (at, ticket) in order.into_iter().map(submit).collect::<Vec<_>>() {
        let expected = wishes[at].expected(rank, present, step, root);
        assert_eq!(wishes[at].result(ticket), expected, "{:?} in step {step}", wishes[at]);
    }
}

fn settings() -> Settings {
    Settings { limits: Limits { fused: 4096, large: 2048 }, ..Settings::default() }
}

fn communicators(tcp: bool, size: usize) -> fn(usize) -> Vec<Box<dyn sirtaki_comm::Communicator>> {
    if tcp && size > 1 { make::tcp } else { make::arena }
}

proptest! {
    #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]

    #[test]
    fn results_equal_those_of_one_process(
        steps in prop::collection::vec((prop::collection::vec(wish(), 1..20), 1_usize..6), 1..4),
        size in 1_usize..5,
        seed in any::<u64>(),
        tcp in any::<bool>(),
    ) {
        each(&communicators(tcp, size), size, &settings(), |engine| {
            for (index, (wishes, repeats)) in steps.iter().enumerate() {
                for at in 0..*repeats {
                    step(engine, wishes, &vec![true; size], (at, index % size), seed ^ (index * 1000) as u64);
                }
            }
        });
    }

    /// Ranks run out of data at different times.
    #[test]
    fn results_equal_those_of_one_process_while_ranks_join(
        wishes in prop::collection::vec(wish(), 1..20),
        repeats in prop::collection::vec(0_usize..5, 2..5),
        seed in any::<u64>(),
        tcp in any::<bool>(),
    ) {
        let size = repeats.len();
        let root = (0..size).max_by_key(|&rank| repeats[rank]).unwrap();
        each(&communicators(tcp, size), size, &settings(), |engine| {
            for at in 0..repeats[engine.group().rank()] {
                let present: Vec<bool> = repeats.iter().map(|&repeats| repeats > at).collect();
                step(engine, &wishes, &present, (at, root), seed);
            }
            engine.join().unwrap();
        });
    }

    /// Some of the ranks on their own, while all of them go on together.
    #[test]
    fn results_equal_those_of_one_process_in_process_sets(
        wishes in prop::collection::vec(wish(), 1..20),
        members in prop::collection::btree_set(0_usize..4, 1..4),
        repeats in 1_usize..5,
        seed in any::<u64>(),
    ) {
        let members: Vec<usize> = members.into_iter().collect();
        each(&make::arena, 4, &settings(), |engine| {
            let set = engine.process_set("some", &members).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| (0..repeats).for_each(|at| step(engine, &wishes, &[true; 4], (at, 3), seed)));
                if let Some(set) = &set {
                    let present = vec![true; members.len()];
                    (0..repeats).for_each(|at| step(set, &wishes, &present, (at, 0), !seed));
                }
            });
        });
    }
}
