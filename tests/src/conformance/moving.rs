//! Value checks of the operations that only move data.

use sirtaki_comm::{Communicator, DType};

use crate::data::{Data, numbers};

/// Uneven counts around `base`; some are zero, and with a base of zero all of them.
pub fn counts_for(size: usize, base: usize) -> Vec<usize> {
    (0..size).map(|rank| base * ((rank * 2 + 1) % 4) + if base > 0 { rank % 3 } else { 0 }).collect()
}

fn of_rank(dtype: DType, rank: usize, count: usize) -> Data {
    Data::new(dtype, &numbers(dtype, rank, count, count))
}

/// The parts of all ranks one after another.
fn joined(dtype: DType, counts: &[usize]) -> Data {
    let all: Vec<f64> = counts.iter().enumerate().flat_map(|(rank, &n)| numbers(dtype, rank, n, n)).collect();
    Data::new(dtype, &all)
}

/// A buffer for all parts in which only that of `rank` is filled.
fn only_mine(dtype: DType, counts: &[usize], rank: usize) -> Data {
    let part = |r: usize, n: usize| if r == rank { numbers(dtype, r, n, n) } else { vec![1.0; n] };
    Data::new(dtype, &counts.iter().enumerate().flat_map(|(r, &n)| part(r, n)).collect::<Vec<_>>())
}

/// All ranks get what the root has.
pub fn broadcast_from_every_root(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    for root in 0..size {
        for dtype in DType::ALL {
            for count in [0, 1, 5, 1027] {
                let mut data = of_rank(dtype, rank, count);
                comm.broadcast(data.slice_mut(), root).unwrap();
                let what = format!("broadcast of {count} {} from {root}", dtype.name());
                assert_eq!(data.bytes(), of_rank(dtype, root, count).bytes(), "{what}");
            }
        }
    }
    let mut large = of_rank(DType::F32, rank, (1 << 20) + 3);
    comm.broadcast(large.slice_mut(), size - 1).unwrap();
    assert_eq!(large.digest(), of_rank(DType::F32, size - 1, (1 << 20) + 3).digest());
}

/// Parts of different lengths arrive in rank order everywhere.
pub fn all_gather_uneven(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    for dtype in DType::ALL {
        for base in [0, 1, 100, 5000] {
            let counts = counts_for(size, base);
            let mut all = only_mine(dtype, &counts, rank);
            comm.all_gather(all.slice_mut(), &counts).unwrap();
            assert!(all.bytes() == joined(dtype, &counts).bytes(), "all_gather of {} {counts:?}", dtype.name());
        }
    }
    let counts = counts_for(size, 150_001);
    let mut all = only_mine(DType::F32, &counts, rank);
    comm.all_gather(all.slice_mut(), &counts).unwrap();
    assert_eq!(all.digest(), joined(DType::F32, &counts).digest());
}

/// Every pair of ranks has its own count, and some are zero.
pub fn all_to_all_uneven(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let parcel = |dtype: DType, from: usize, to: usize, count: usize| numbers(dtype, from * 31 + to, count, to);
    for dtype in DType::ALL {
        for base in [0, 1, 33, 20_000] {
            let count = |from: usize, to: usize| base * ((from * 3 + to * 5 + 1) % 3) + from.min(base);
            let sent: Vec<usize> = (0..size).map(|to| count(rank, to)).collect();
            let received: Vec<usize> = (0..size).map(|from| count(from, rank)).collect();
            let out: Vec<f64> = (0..size).flat_map(|to| parcel(dtype, rank, to, sent[to])).collect();
            let expected: Vec<f64> = (0..size).flat_map(|from| parcel(dtype, from, rank, received[from])).collect();
            let (out, expected) = (Data::new(dtype, &out), Data::new(dtype, &expected));
            let mut into = Data::zeros(dtype, received.iter().sum());
            comm.all_to_all(out.slice(), &sent, into.slice_mut(), &received).unwrap();
            assert!(into.bytes() == expected.bytes(), "all_to_all of {} around {base}", dtype.name());
        }
    }
}

/// The root collects parts and hands them out again.
pub fn gather_and_scatter(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    for root in 0..size {
        for dtype in DType::ALL {
            for base in [0, 1, 700] {
                let counts = counts_for(size, base);
                let what = format!("{} {counts:?}, root {root}", dtype.name());
                let mut data =
                    if rank == root { only_mine(dtype, &counts, rank) } else { of_rank(dtype, rank, counts[rank]) };
                comm.gather(data.slice_mut(), &counts, root).unwrap();
                if rank == root {
                    assert!(data.bytes() == joined(dtype, &counts).bytes(), "gather of {what}");
                } else {
                    data = Data::zeros(dtype, counts[rank]);
                }
                comm.scatter(data.slice_mut(), &counts, root).unwrap();
                if rank != root {
                    assert!(data.bytes() == of_rank(dtype, rank, counts[rank]).bytes(), "scatter of {what}");
                }
            }
        }
    }
}

/// Every pair of ranks exchanges something in both directions.
pub fn send_and_receive(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut travel = |from: usize, to: usize, dtype: DType, count: usize| {
        if rank == from {
            comm.send(of_rank(dtype, from, count).slice(), to).unwrap();
        } else if rank == to {
            let mut data = Data::zeros(dtype, count);
            comm.receive(data.slice_mut(), from).unwrap();
            assert!(data.bytes() == of_rank(dtype, from, count).bytes(), "{from} to {to}, {count} {}", dtype.name());
        }
    };
    for low in 0..size {
        for high in low + 1..size {
            for (dtype, count) in [(DType::F32, 0), (DType::U8, 1), (DType::F64, 33), (DType::I32, 300_001)] {
                travel(low, high, dtype, count);
                travel(high, low, dtype, count);
            }
        }
    }
}

/// Barriers in a row, between other calls.
pub fn many_barriers(comm: &mut dyn Communicator) {
    for i in 0..50 {
        comm.barrier().unwrap();
        if i % 10 == 0 {
            let mut data = of_rank(DType::I64, 0, i);
            comm.broadcast(data.slice_mut(), 0).unwrap();
        }
    }
}
