//! Groups of ranks that NCCL connects, with the stand-in for it: every collective against a plain computation.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use sirtaki_comm::{
    DType, ReduceOp, Reduction,
    device::{DeviceMemory, NcclGroup, View},
};
use sirtaki_tests::{
    data::{self, Data},
    reference::{assert_close, expected},
    stand_in::{Member, download, each, turn, upload},
};

/// Longer than what the stand-in moves at once, and no multiple of it.
const LONG: usize = 150_001;
/// How many ranks there are to be.
const SIZES: [usize; 3] = [1, 2, 4];

/// All reductions that NCCL can do with a type, some with factors among them.
fn reductions(dtype: DType) -> impl Iterator<Item = Reduction> {
    let plain = ReduceOp::ALL.map(Reduction::new);
    let scaled = [Reduction::SUM, Reduction::AVERAGE].map(|reduction| reduction.scaled(0.5, 3.0));
    plain.into_iter().chain(scaled).filter(move |reduction| NcclGroup::can(dtype, *reduction))
}

/// What a rank puts in, on its device.
fn input(member: &Member, dtype: DType, count: usize, seed: usize) -> (DeviceMemory, View) {
    upload(&Data::new(dtype, &data::numbers(dtype, member.rank, count, seed)), &member.stream)
}

/// Counts of which one is zero, where there are several.
fn uneven(size: usize) -> Vec<usize> {
    (0..size).map(|rank| if rank == 1 { 0 } else { 3 * rank + 2 }).collect()
}

/// Where the part of a rank begins.
fn start(counts: &[usize], rank: usize) -> usize {
    counts[..rank].iter().sum()
}

#[test]
fn nccl_can_do_what_it_has_operations_for() {
    for dtype in DType::ALL {
        assert!(ReduceOp::ALL.iter().all(|op| {
            let average_of_integers = *op == ReduceOp::Average && !dtype.is_float() && dtype != DType::Bool;
            NcclGroup::can(dtype, Reduction::new(*op)) != average_of_integers
        }));
        let scaled = Reduction::SUM.scaled(0.5, 1.0);
        assert_eq!(NcclGroup::can(dtype, scaled), dtype.is_float() || dtype == DType::Bool);
    }
    assert!(!NcclGroup::can(DType::F32, Reduction::new(ReduceOp::Max).scaled(2.0, 1.0)));
}

#[test]
fn all_reduce_with_every_type_and_reduction() {
    let _turn = turn();
    for size in SIZES {
        each(size, |member| {
            for (seed, dtype) in DType::ALL.into_iter().enumerate() {
                for reduction in reductions(dtype) {
                    let (_memory, view) = input(member, dtype, 37, seed);
                    member.group.all_reduce(&[view], reduction, &member.stream).unwrap();
                    let what = format!("{reduction:?} of {} on {size} ranks", dtype.name());
                    let expected = expected(dtype, reduction, size, 37, seed);
                    assert_close(&what, dtype, &download(view, &member.stream), &expected);
                }
            }
        });
    }
}

#[test]
fn several_tensors_go_together_empty_and_long_ones_among_them() {
    let _turn = turn();
    for size in SIZES {
        each(size, |member| {
            let counts = [5, 0, LONG, 1];
            let inputs = counts.map(|count| input(member, DType::F32, count, count));
            let views: Vec<View> = inputs.iter().map(|(_, view)| *view).collect();
            member.group.all_reduce(&views, Reduction::AVERAGE, &member.stream).unwrap();
            for (count, view) in counts.iter().zip(&views) {
                let expected = expected(DType::F32, Reduction::AVERAGE, size, *count, *count);
                assert_close("average", DType::F32, &download(*view, &member.stream), &expected);
            }
            member.group.all_reduce(&[], Reduction::SUM, &member.stream).unwrap();
        });
    }
}

#[test]
fn broadcast_from_every_rank_with_every_type() {
    let _turn = turn();
    for size in SIZES {
        each(size, |member| {
            for dtype in DType::ALL {
                for root in 0..size {
                    let inputs = [11, 0, 3].map(|count| input(member, dtype, count, root));
                    let views: Vec<View> = inputs.iter().map(|(_, view)| *view).collect();
                    member.group.broadcast(&views, root, &member.stream).unwrap();
                    for view in views {
                        let got = download(view, &member.stream).numbers();
                        assert_eq!(got, data::numbers(dtype, root, view.len(), root), "{} from {root}", dtype.name());
                    }
                }
            }
        });
    }
}

#[test]
fn all_gather_with_equal_and_uneven_counts() {
    let _turn = turn();
    for size in SIZES {
        each(size, |member| {
            for dtype in DType::ALL {
                let layouts = [vec![6; size], uneven(size), vec![0; size]];
                let memory: Vec<_> = layouts
                    .iter()
                    .map(|counts| {
                        let mut whole = Data::zeros(dtype, counts.iter().sum());
                        let (from, own) = (start(counts, member.rank), counts[member.rank]);
                        let part = Data::new(dtype, &data::numbers(dtype, member.rank, own, 1));
                        let range = from * dtype.size()..(from + own) * dtype.size();
                        whole.bytes_mut()[range].copy_from_slice(part.bytes());
                        upload(&whole, &member.stream)
                    })
                    .collect();
                let views: Vec<_> =
                    memory.iter().zip(&layouts).map(|((_, view), counts)| (*view, counts.clone())).collect();
                member.group.all_gather(&views, &member.stream).unwrap();
                for (view, counts) in views {
                    let parts = (0..size).flat_map(|rank| data::numbers(dtype, rank, counts[rank], 1));
                    let expected: Vec<f64> = parts.collect();
                    assert_eq!(download(view, &member.stream).numbers(), expected, "{} {counts:?}", dtype.name());
                }
            }
        });
    }
}

#[test]
fn reduce_scatter_with_equal_and_uneven_counts() {
    let _turn = turn();
    for size in SIZES {
        each(size, |member| {
            for dtype in DType::ALL {
                for reduction in reductions(dtype) {
                    let layouts = [vec![6; size], uneven(size), vec![0; size]];
                    let inputs: Vec<_> =
                        layouts.iter().map(|counts| input(member, dtype, counts.iter().sum(), 2)).collect();
                    let views: Vec<_> =
                        inputs.iter().zip(&layouts).map(|((_, view), counts)| (*view, counts.clone())).collect();
                    member.group.reduce_scatter(&views, reduction, &member.stream).unwrap();
                    for (view, counts) in views {
                        let from = start(&counts, member.rank);
                        let to = from + counts[member.rank];
                        let expected = expected(dtype, reduction, size, view.len(), 2).part(from, to);
                        let got = download(view.part(from, to), &member.stream);
                        assert_close(&format!("{reduction:?} of {}", dtype.name()), dtype, &got, &expected);
                    }
                }
            }
        });
    }
}

#[test]
fn long_parts_are_scattered_and_gathered() {
    let _turn = turn();
    each(2, |member| {
        let (_memory, view) = input(member, DType::I64, 2 * LONG, 3);
        let counts = vec![LONG, LONG];
        member.group.reduce_scatter(&[(view, counts.clone())], Reduction::SUM, &member.stream).unwrap();
        member.group.all_gather(&[(view, counts)], &member.stream).unwrap();
        let expected = expected(DType::I64, Reduction::SUM, 2, 2 * LONG, 3);
        assert_eq!(download(view, &member.stream).numbers(), expected.numbers());
    });
}

#[test]
fn all_to_all_with_equal_and_uneven_counts() {
    let _turn = turn();
    for size in SIZES {
        // How many elements go from one rank to another.
        let layouts: [fn(usize, usize) -> usize; 3] =
            [|_, _| 4, |from, to| (3 * from + 2 * to) % 5, |from, _| from * LONG];
        each(size, |member| {
            for dtype in DType::ALL {
                for (seed, count) in layouts.iter().enumerate() {
                    let me = member.rank;
                    let sent: Vec<usize> = (0..size).map(|to| count(me, to)).collect();
                    let received: Vec<usize> = (0..size).map(|from| count(from, me)).collect();
                    let (_out, out) = input(member, dtype, sent.iter().sum(), seed);
                    let (_into, into) = upload(&Data::zeros(dtype, received.iter().sum()), &member.stream);
                    member.group.all_to_all((out, &sent), (into, &received), &member.stream).unwrap();
                    let part = |from: usize| {
                        let theirs: Vec<usize> = (0..size).map(|to| count(from, to)).collect();
                        let whole = data::numbers(dtype, from, theirs.iter().sum(), seed);
                        whole[start(&theirs, me)..][..theirs[me]].to_vec()
                    };
                    let expected: Vec<f64> = (0..size).flat_map(part).collect();
                    assert_eq!(download(into, &member.stream).numbers(), expected, "{} {seed}", dtype.name());
                }
            }
        });
    }
}

#[test]
fn calls_on_several_streams_are_done_in_order() {
    let _turn = turn();
    each(2, |member| {
        let others: Vec<_> = (0..3).map(|_| member.stream.gpu().stream(false).unwrap()).collect();
        let inputs: Vec<_> = (0..60).map(|seed| input(member, DType::I32, 10, seed)).collect();
        for (i, (_, view)) in inputs.iter().enumerate() {
            member.group.all_reduce(&[*view], Reduction::SUM, &others[i % 3]).unwrap();
        }
        for other in &others {
            member.stream.wait(&other.record().unwrap()).unwrap();
        }
        for (seed, (_, view)) in inputs.iter().enumerate() {
            let expected = expected(DType::I32, Reduction::SUM, 2, 10, seed);
            assert_eq!(download(*view, &member.stream).numbers(), expected.numbers());
        }
    });
}
