//! Value checks of all_reduce, reduce and reduce_scatter.

use sirtaki_comm::{Communicator, DType, ReduceOp, Reduction};

use super::moving::counts_for;
use crate::{
    data::{Data, numbers},
    reference::{assert_close, expected},
};

fn mine(comm: &dyn Communicator, dtype: DType, count: usize, seed: usize) -> Data {
    Data::new(dtype, &numbers(dtype, comm.group().rank(), count, seed))
}

/// Panics unless every rank has the same bits.
fn assert_same_everywhere(comm: &mut dyn Communicator, what: &str, data: &Data) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut digests = vec![0i64; size];
    digests[rank] = data.digest();
    comm.all_gather((&mut digests).into(), &vec![1; size]).unwrap();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{what}: ranks have different bits: {digests:x?}");
}

fn check(comm: &mut dyn Communicator, dtype: DType, reduction: Reduction, count: usize) {
    let what = format!("all_reduce of {count} {} with {reduction:?}", dtype.name());
    let mut data = mine(comm, dtype, count, count);
    comm.all_reduce(data.slice_mut(), reduction).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_close(&what, dtype, &data, &expected(dtype, reduction, comm.group().size(), count, count));
    assert_same_everywhere(comm, &what, &data);
}

/// Every type, every operation, short lengths and odd ones.
pub fn all_reduce_every_type(comm: &mut dyn Communicator) {
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            for count in [0, 1, 2, 7, 258, 4099] {
                check(comm, dtype, Reduction::new(op), count);
            }
        }
    }
}

/// More than any internal buffer or piece holds.
pub fn all_reduce_large(comm: &mut dyn Communicator) {
    check(comm, DType::F32, Reduction::SUM, (1 << 20) + 3);
    check(comm, DType::F32, Reduction::AVERAGE, 200_001);
    check(comm, DType::BF16, Reduction::SUM, 300_001);
    check(comm, DType::F16, Reduction::AVERAGE, 70_001);
    check(comm, DType::I64, Reduction::new(ReduceOp::Max), 65_537);
    check(comm, DType::U8, Reduction::SUM, 100_003);
    check(comm, DType::I32, Reduction::AVERAGE, 33_333);
}

/// Factors before and after; integers keep the whole part of the products.
pub fn factors(comm: &mut dyn Communicator) {
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            for (before, after) in [(0.5, 1.0), (1.0, 3.0), (0.5, 4.0), (2.0, 0.25)] {
                for count in [1, 37, 1029] {
                    check(comm, dtype, Reduction::new(op).scaled(before, after), count);
                }
            }
        }
    }
}

/// The mean of equal large numbers is that number, although their sum cannot be represented.
pub fn averages_do_not_overflow(comm: &mut dyn Communicator) {
    let large = [
        (DType::F16, 40_000.0),
        (DType::BF16, 3e38),
        (DType::F32, 3e38),
        (DType::F64, 1.7e308),
        (DType::I8, -128.0),
        (DType::U8, 255.0),
        (DType::I32, f64::from(i32::MAX)),
        (DType::I64, 9.0e18),
    ];
    for (dtype, value) in large {
        for count in [1, 19, 5003] {
            let mut data = Data::new(dtype, &vec![value; count]);
            let all = data.clone();
            comm.all_reduce(data.slice_mut(), Reduction::AVERAGE).unwrap();
            assert_close(&format!("average of {count} {}", dtype.name()), dtype, &data, &all);
        }
    }
}

/// A NaN on one rank reaches all; integers wrap around; any nonzero byte is a true boolean.
pub fn nan_and_wrap_around(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    for op in ReduceOp::ALL {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let mut data = Data::new(dtype, &[1.0, if rank == size - 1 { f64::NAN } else { 1.0 }, 1.0]);
            comm.all_reduce(data.slice_mut(), Reduction::new(op)).unwrap();
            let nan: Vec<bool> = data.numbers().iter().map(|x| x.is_nan()).collect();
            assert_eq!(nan, [false, true, false], "{} {}", op.name(), dtype.name());
        }
    }
    let mut wrapped = vec![i32::MAX, i32::MIN];
    comm.all_reduce((&mut wrapped).into(), Reduction::SUM).unwrap();
    let times = size as i32;
    assert_eq!(wrapped, [i32::MAX.wrapping_mul(times), i32::MIN.wrapping_mul(times)]);
    let mut flags = Data::zeros(DType::Bool, 2);
    flags.bytes_mut().copy_from_slice(&[if rank == 0 { 0xa4 } else { 0 }, 0]);
    comm.all_reduce(flags.slice_mut(), Reduction::SUM).unwrap();
    assert_eq!(flags.bytes(), [1, 0]);
}

/// Sums that depend on their order come out the same on every rank and every time.
pub fn same_bits_everywhere_and_always(comm: &mut dyn Communicator) {
    let rank = comm.group().rank() as f64;
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for count in [1, 3, 1000, 100_003] {
            for reduction in [Reduction::SUM, Reduction::AVERAGE, Reduction::SUM.scaled(0.1, 0.7)] {
                let what = format!("{} of {count} {}", reduction.op.name(), dtype.name());
                let uneven: Vec<f64> = (0..count).map(|i| (i as f64 * 0.7 + rank).sin() / (rank + 0.3)).collect();
                let input = Data::new(dtype, &uneven);
                let (mut first, mut second) = (input.clone(), input);
                comm.all_reduce(first.slice_mut(), reduction).unwrap();
                comm.all_reduce(second.slice_mut(), reduction).unwrap();
                assert_eq!(first.digest(), second.digest(), "{what}: another run gives other bits");
                assert_same_everywhere(comm, &what, &first);
            }
        }
    }
}

/// The root gets the reduction.
pub fn reduce_to_every_root(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    for root in 0..size {
        for dtype in DType::ALL {
            for (op, count) in [(ReduceOp::Sum, 0), (ReduceOp::Average, 1), (ReduceOp::Max, 301), (ReduceOp::Sum, 9001)]
            {
                let mut data = mine(comm, dtype, count, root);
                comm.reduce(data.slice_mut(), Reduction::new(op), root).unwrap();
                if rank == root {
                    let what = format!("reduce({}) of {count} {} to {root}", op.name(), dtype.name());
                    assert_close(&what, dtype, &data, &expected(dtype, Reduction::new(op), size, count, root));
                }
            }
        }
    }
}

/// Every rank gets its part of the reduction; parts differ in length and may be empty.
pub fn reduce_scatter_uneven(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            for base in [0, 1, 10, 2000] {
                let counts = counts_for(size, base);
                let total = counts.iter().sum();
                let mut data = mine(comm, dtype, total, base);
                comm.reduce_scatter(data.slice_mut(), &counts, Reduction::new(op)).unwrap();
                let start: usize = counts[..rank].iter().sum();
                let part = |data: &Data| data.part(start, start + counts[rank]);
                let what = format!("reduce_scatter({}) of {} with counts {counts:?}", op.name(), dtype.name());
                let whole = expected(dtype, Reduction::new(op), size, total, base);
                assert_close(&what, dtype, &part(&data), &part(&whole));
            }
        }
    }
}
