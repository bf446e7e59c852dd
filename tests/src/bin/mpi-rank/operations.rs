//! What matters for MPI in particular: buffers cut into pieces, results that appear in a place other than the wanted
//! one, NaN, short and long messages, groups used at the same time. The values are small whole numbers, so all sums are
//! exact.

use std::thread;

use sirtaki_comm::{CommError, Communicator, DType, ReduceOp, Reduction, SliceMut};

pub(crate) fn all(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let checks = [reductions, extremes, booleans, parts, rooted_parts, exchange, messages, groups];
    checks.into_iter().try_for_each(|check| check(comm))
}

/// Rank `r` of a group has `r` elements more than three, so that counts differ and some are cut unevenly.
fn counts(size: usize) -> Vec<usize> {
    (0..size).map(|rank| if rank == 1 { 0 } else { 3 + 9 * rank }).collect()
}

fn reductions(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank() as i64, comm.group().size() as i64);
    for count in [0, 1, 7, 50] {
        let mine = |i: usize| i as i64 + rank;
        let ranks = size * (size - 1) / 2;
        let mut sum: Vec<f32> = (0..count).map(|i| mine(i) as f32).collect();
        comm.all_reduce((&mut sum).into(), Reduction::SUM.scaled(2.0, 0.5))?;
        assert!(sum.iter().enumerate().all(|(i, &x)| x == (i as i64 * size + ranks) as f32), "{sum:?}");
        let mut mean: Vec<f64> = (0..count).map(|i| mine(i) as f64).collect();
        comm.all_reduce((&mut mean).into(), Reduction::AVERAGE)?;
        let expected = |i: usize| i as f64 + (size - 1) as f64 / 2.0;
        assert!(mean.iter().enumerate().all(|(i, &x)| (x - expected(i)).abs() < 1e-9), "{mean:?}");
        let mut top: Vec<i64> = (0..count).map(mine).collect();
        comm.reduce((&mut top).into(), Reduction::new(ReduceOp::Max), comm.group().size() - 1)?;
        assert!(rank != size - 1 || top.iter().enumerate().all(|(i, &x)| x == i as i64 + size - 1), "{top:?}");
        let mut product = vec![2i32; count];
        comm.all_reduce((&mut product).into(), Reduction::new(ReduceOp::Product))?;
        assert_eq!(product, vec![1 << size; count]);
    }
    Ok(())
}

/// A NaN on one rank reaches all, the zeros have an order, and all ranks hold the same bits.
fn extremes(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    for (op, expected) in [(ReduceOp::Min, -(size as f32)), (ReduceOp::Max, size as f32)] {
        let signed = |rank: usize| if op == ReduceOp::Min { -(rank as f32 + 1.0) } else { rank as f32 + 1.0 };
        let nan = if rank == size - 1 { f32::NAN } else { 1.0 };
        let mut data = vec![signed(rank), nan, f32::NEG_INFINITY, f32::INFINITY, -0.0];
        comm.all_reduce((&mut data).into(), Reduction::new(op))?;
        assert!(data[0] == expected && data[1].is_nan() && data[2] == f32::NEG_INFINITY && data[3] == f32::INFINITY);
        let mut bits = vec![0u8; 4 * size];
        bits[4 * rank..][..4].copy_from_slice(&data[1].to_ne_bytes());
        comm.all_gather((&mut bits).into(), &vec![4; size])?;
        assert!(bits.chunks(4).all(|other| other == &bits[..4]), "{bits:?}");
    }
    Ok(())
}

fn booleans(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let mine = u8::from(comm.group().rank() == 0) * 7;
    for (op, expected) in [(ReduceOp::Sum, [1, 0, 1]), (ReduceOp::Product, [u8::from(comm.group().size() == 1), 0, 1])]
    {
        let mut data = [mine, 0, 5];
        comm.all_reduce(SliceMut::new(DType::Bool, &mut data)?, Reduction::new(op))?;
        assert_eq!(data, expected, "{op:?}");
    }
    Ok(())
}

fn parts(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let (rank, counts) = (comm.group().rank(), counts(comm.group().size()));
    let total: usize = counts.iter().sum();
    let own = |rank: usize| counts[..rank].iter().sum::<usize>()..counts[..=rank].iter().sum();
    let mut all = vec![-1i32; total];
    own(rank).for_each(|i| all[i] = i as i32);
    comm.all_gather((&mut all).into(), &counts)?;
    assert_eq!(all, (0..total as i32).collect::<Vec<_>>());
    comm.reduce_scatter((&mut all).into(), &counts, Reduction::SUM)?;
    assert!(own(rank).all(|i| all[i] == (i * counts.len()) as i32), "{all:?}");
    let mut told = vec![rank as f64; 20];
    comm.broadcast((&mut told).into(), counts.len() - 1)?;
    assert_eq!(told, vec![(counts.len() - 1) as f64; 20]);
    Ok(())
}

fn rooted_parts(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let (rank, counts) = (comm.group().rank(), counts(comm.group().size()));
    for root in 0..counts.len() {
        let before: usize = counts[..rank].iter().sum();
        let total: Vec<i64> = (0..counts.iter().sum::<usize>() as i64).collect();
        let mine = &total[before..before + counts[rank]];
        let mut data = if rank == root { vec![0; total.len()] } else { mine.to_vec() };
        if rank == root {
            data[before..before + counts[rank]].copy_from_slice(mine);
        }
        comm.gather((&mut data).into(), &counts, root)?;
        assert!(rank != root || data == total, "{data:?}");
        if rank != root {
            data.fill(0);
        }
        comm.scatter((&mut data).into(), &counts, root)?;
        assert!(rank == root || data == mine, "{data:?}");
    }
    Ok(())
}

fn exchange(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let between = |from: usize, to: usize| 5 * from + 3 * to;
    let sent: Vec<_> = (0..size).map(|to| between(rank, to)).collect();
    let received: Vec<_> = (0..size).map(|from| between(from, rank)).collect();
    let block = |from: usize, to: usize| vec![(10 * from + to) as u8; between(from, to)];
    let out: Vec<u8> = (0..size).flat_map(|to| block(rank, to)).collect();
    let mut into = vec![0u8; received.iter().sum()];
    comm.all_to_all((&out).into(), &sent, (&mut into).into(), &received)?;
    assert_eq!(into, (0..size).flat_map(|from| block(from, rank)).collect::<Vec<_>>());
    Ok(())
}

fn messages(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    for count in [0, 3, 1024, 1025, 40_000] {
        for from in 0..size.saturating_sub(1) {
            let expected: Vec<f32> = (0..count).map(|i| (i + from) as f32).collect();
            if rank == from {
                comm.send((&expected).into(), from + 1)?;
            } else if rank == from + 1 {
                let mut data = vec![0f32; count];
                comm.receive((&mut data).into(), from)?;
                assert_eq!(data, expected);
            }
        }
    }
    Ok(())
}

/// Even and odd ranks, at the same time as the whole; the last rank takes part in neither half.
fn groups(comm: &mut dyn Communicator) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let takes_part = |rank: usize| size == 1 || rank != size - 1;
    let half = comm.split(takes_part(rank).then_some(u64::MAX - rank as u64 % 2))?;
    assert_eq!(half.is_some(), takes_part(rank));
    let members: Vec<_> = (0..size).filter(|&other| takes_part(other) && other % 2 == rank % 2).collect();
    thread::scope(|scope| {
        let beside = half.map(|mut half| {
            let members = &members;
            scope.spawn(move || {
                assert_eq!(half.group().members().iter().map(|m| m.world_rank).collect::<Vec<_>>(), *members);
                for _ in 0..50 {
                    let mut data = vec![rank as f32; 10];
                    half.all_reduce((&mut data).into(), Reduction::SUM)?;
                    assert_eq!(data[9], members.iter().sum::<usize>() as f32);
                }
                Ok::<_, CommError>(())
            })
        });
        for _ in 0..50 {
            let mut data = vec![1i64; 10];
            comm.all_reduce((&mut data).into(), Reduction::SUM)?;
            assert_eq!(data[9], size as i64);
        }
        beside.map_or(Ok(()), |beside| beside.join().expect("the thread's checks hold"))
    })
}
