//! How fast the loops are, compared with copying the same bytes: `cargo test --release -p sirtaki-comm kernel::speed --
//! --ignored --nocapture`.

use std::{hint::black_box, time::Instant};

use super::*;
use crate::{ReduceOp, Reduction};

/// Median seconds of some runs.
fn median(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..25)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Prints bytes read and written per second.
fn report(what: &str, bytes: usize, streams: usize, repeat: usize, mut work: impl FnMut()) {
    let seconds = median(|| (0..repeat).for_each(|_| work())) / repeat as f64;
    println!("{what:40} {:8} KiB {:7.1} GB/s", bytes >> 10, (bytes * streams) as f64 / seconds / 1e9);
}

#[test]
#[ignore = "prints figures, checks nothing"]
fn figures() {
    for bytes in [16 << 10, 256 << 10, 32 << 20] {
        let repeat = ((8 << 20) / bytes).max(1);
        let words: Vec<Vec<u64>> = vec![vec![0; bytes / 8]; 8];
        let rows: Vec<&[u8]> = words.iter().map(|row| bytemuck::cast_slice(row)).collect();
        let (mut out, mut other) = (vec![0u64; bytes / 8], vec![0u64; bytes / 8]);
        let (out, other): (&mut [u8], &mut [u8]) =
            (bytemuck::cast_slice_mut(&mut out), bytemuck::cast_slice_mut(&mut other));
        report("copy", bytes, 2, repeat, || black_box(&mut *out).copy_from_slice(rows[0]));
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::Bool] {
            let name = dtype.name();
            let sum = Plan::new(dtype, Reduction::SUM, 2);
            report(&format!("fold {name}"), bytes, 3, repeat, || fold(&sum, black_box(out), rows[0]));
            report(&format!("fold_both {name}"), bytes, 4, repeat, || fold_both(&sum, black_box(out), other));
            for inputs in [2, 3, 4, 8] {
                for reduction in [Reduction::SUM, Reduction::AVERAGE] {
                    let plan = Plan::new(dtype, reduction, inputs);
                    let what = format!("combine {inputs} {name} {}", reduction.op.name());
                    report(&what, bytes, inputs + 1, repeat, || combine(&plan, &rows[..inputs], black_box(out)));
                }
            }
            report(&format!("combine_tree 8 {name}"), bytes, 9, repeat, || combine_tree(&sum, &rows, black_box(out)));
        }
        let max = Plan::new(DType::F32, Reduction::new(ReduceOp::Max), 2);
        report("fold f32 max", bytes, 3, repeat, || fold(&max, black_box(out), rows[0]));
        report("scale f32", bytes, 2, repeat, || scale(DType::F32, black_box(out), 0.1));
    }
}
