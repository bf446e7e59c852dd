//! Algorithms that work over any communicator, with ranks that share memory.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use sirtaki_comm::{
    CommError, Communicator, DType, ReduceOp, Reduction, Slice,
    collective::{direct, fixed_tree},
};
use sirtaki_tests::{
    data::{Data, numbers},
    make,
    reference::{assert_close, expected},
    team::Team,
};

/// More than the scratch memory of one window.
const SEVERAL_WINDOWS: usize = (8 << 20) / 4 * 2 + 77;

#[test]
fn direct_all_reduce_is_right() {
    for size in [1, 2, 3, 5] {
        Team::new(&make::arena, size).each(|comm| {
            let rank = comm.group().rank();
            for dtype in DType::ALL {
                for op in ReduceOp::ALL {
                    for count in [0, 1, 4, 1003] {
                        let mut data = Data::new(dtype, &numbers(dtype, rank, count, 1));
                        direct::all_reduce(comm, data.slice_mut(), Reduction::new(op)).unwrap();
                        let what = format!("{} of {count} {}", op.name(), dtype.name());
                        assert_close(&what, dtype, &data, &expected(dtype, Reduction::new(op), size, count, 1));
                    }
                }
            }
        });
    }
}

#[test]
fn direct_reduce_scatter_is_right() {
    for size in [1, 2, 3, 5] {
        Team::new(&make::arena, size).each(|comm| {
            let rank = comm.group().rank();
            for dtype in [DType::F16, DType::BF16, DType::I32, DType::F64] {
                for base in [0, 1, 50] {
                    let counts: Vec<usize> = (0..size).map(|r| base * (r % 3)).collect();
                    let (from, to) = (counts[..rank].iter().sum(), counts[..=rank].iter().sum());
                    let total = counts.iter().sum();
                    let mut data = Data::new(dtype, &numbers(dtype, rank, total, 2));
                    direct::reduce_scatter(comm, data.slice_mut(), &counts, Reduction::AVERAGE).unwrap();
                    let whole = expected(dtype, Reduction::AVERAGE, size, total, 2);
                    assert_close(dtype.name(), dtype, &data.part(from, to), &whole.part(from, to));
                }
            }
            let problem = direct::reduce_scatter(comm, (&mut vec![0f32; 3]).into(), &[], Reduction::SUM);
            assert!(matches!(problem, Err(CommError::Invalid { .. })));
        });
    }
}

#[test]
fn long_buffers_go_through_in_windows() {
    let count = SEVERAL_WINDOWS;
    Team::new(&make::arena, 2).each(|comm| {
        let rank = comm.group().rank();
        let element = |rank: usize, i: usize| (i % 1000) as f32 + rank as f32;
        let input: Vec<f32> = (0..count).map(|i| element(rank, i)).collect();
        let right = |i: usize, got: f32| got == element(0, i) + element(1, i);
        let mut data = input.clone();
        direct::all_reduce(comm, (&mut data).into(), Reduction::SUM).unwrap();
        assert!(data.iter().enumerate().all(|(i, &got)| right(i, got)));
        let counts = [count - 5000, 5000];
        let mut data = input.clone();
        direct::reduce_scatter(comm, (&mut data).into(), &counts, Reduction::SUM).unwrap();
        let mine = if rank == 0 { 0..counts[0] } else { counts[0]..count };
        assert!(mine.clone().all(|i| right(i, data[i])));
        let mut out = vec![0f32; count];
        let leaves = [(1 - rank, Slice::from(&input))];
        fixed_tree::all_reduce(comm, &leaves, 2, (&mut out).into(), Reduction::SUM).unwrap();
        assert!(out.iter().enumerate().all(|(i, &got)| right(i, got)));
    });
}

/// A leaf whose sums depend on their order.
fn leaf(number: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| (number as f32 * 1.7 + i as f32 * 0.3).sin() * 10f32.powi((number % 7) as i32 - 3)).collect()
}

/// The reduction over `total` leaves when `holder` says which of `size` ranks holds each, from its last leaf down.
fn over(size: usize, total: usize, count: usize, reduction: Reduction, holder: fn(usize, usize) -> usize) -> Vec<u32> {
    let results = Team::new(&make::arena, size).each(|comm| {
        let rank = comm.group().rank();
        let mine = (0..total).rev().filter(|&number| holder(number, size) == rank);
        let held: Vec<(usize, Vec<f32>)> = mine.map(|number| (number, leaf(number, count))).collect();
        let leaves: Vec<(usize, Slice<'_>)> = held.iter().map(|(number, leaf)| (*number, leaf.into())).collect();
        let mut out = vec![0f32; count];
        fixed_tree::all_reduce(comm, &leaves, total, (&mut out).into(), reduction).unwrap();
        out.iter().map(|x| x.to_bits()).collect::<Vec<u32>>()
    });
    assert!(results.iter().all(|result| *result == results[0]), "ranks differ");
    results[0].clone()
}

#[test]
fn fixed_tree_does_not_care_who_holds_what() {
    for total in [1, 2, 5, 8, 13] {
        for count in [0, 1, 700] {
            for reduction in [Reduction::SUM, Reduction::AVERAGE, Reduction::SUM.scaled(0.3, 7.0)] {
                let alone = over(1, total, count, reduction, |_, _| 0);
                for size in 1..5 {
                    for holder in [|n, size| n % size, |n, size| (n * 7 + 3) % 5 % size, |_, size| size - 1] {
                        assert!(over(size, total, count, reduction, holder) == alone, "{total} leaves on {size} ranks");
                    }
                }
            }
        }
    }
}

#[test]
fn fixed_tree_averages_over_leaves() {
    let mean = over(3, 8, 9, Reduction::AVERAGE, |n, size| n % size);
    for (i, mean) in mean.iter().enumerate() {
        let expected = (0..8).map(|number| f64::from(leaf(number, 9)[i])).sum::<f64>() / 8.0;
        assert!((f64::from(f32::from_bits(*mean)) - expected).abs() < 1e-4);
    }
}

/// What every rank of three is told when they hold these leaves of four.
fn refused(held: [&[usize]; 3]) -> Vec<String> {
    let data = [1f32; 6];
    Team::new(&make::arena, 3).each(|comm: &mut dyn Communicator| {
        let leaves: Vec<_> = held[comm.group().rank()].iter().map(|&number| (number, data[..].into())).collect();
        let mut out = [0f32; 6];
        let error = fixed_tree::all_reduce(comm, &leaves, 4, out[..].as_mut().into(), Reduction::SUM).unwrap_err();
        comm.barrier().unwrap();
        error.to_string()
    })
}

#[test]
fn every_leaf_has_one_holder() {
    for text in refused([&[0, 1], &[], &[3]]) {
        assert!(text.contains("leaf 2 of 4 is held by none of the 3 ranks"), "{text}");
    }
    for text in refused([&[0, 1], &[2, 3], &[1]]) {
        assert!(text.contains("leaf 1 is held twice, by rank 0 ") && text.contains("and rank 2 "), "{text}");
    }
}

#[test]
fn fixed_tree_notices_other_calls() {
    let results = Team::new(&make::arena, 3).each(|comm| {
        let rank = comm.group().rank();
        let count = if rank == 1 { 5 } else { 6 };
        let (data, mut out) = (vec![1f32; count], vec![0f32; count]);
        fixed_tree::all_reduce(comm, &[(rank, (&data).into())], 3, (&mut out).into(), Reduction::SUM)
    });
    for result in results {
        assert!(matches!(result, Err(CommError::Mismatch { rank: 1, .. })), "{result:?}");
    }
    Team::new(&make::arena, 1).each(|comm| {
        let (data, mut out) = (vec![1f32; 2], vec![0f32; 3]);
        let mut call = |number, total| {
            fixed_tree::all_reduce(comm, &[(number, (&data).into())], total, (&mut out).into(), Reduction::SUM)
        };
        for (number, total) in [(0, 1), (1, 1), (0, 0)] {
            assert!(matches!(call(number, total), Err(CommError::Invalid { .. })));
        }
    });
}
