//! Many ranks as threads agree on many tensors; what a step costs is printed (`--nocapture`).

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::time::{Duration, Instant};

use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{
    Operation, Request, Settings,
    decide::{
        agree::Table,
        message::{Spoken, Verdict, Word},
    },
};
use sirtaki_tests::scale::{self, TENSORS};

fn milliseconds(size: usize, adopt: bool) -> f64 {
    scale::measure(size, adopt, 4).wall.as_secs_f64() * 1e3
}

/// Milliseconds the table itself takes for a step that all ranks announce by number.
fn table(size: usize) -> f64 {
    let mut table = Table::new(size, Settings::default().limits);
    table.set_adopting(false);
    let request = |index: usize| {
        let operation = Operation::AllReduce(Reduction::SUM);
        Box::new(Request::new(format!("layer.{index}.weight"), operation, DType::F32, &[4]))
    };
    let mut best = f64::INFINITY;
    for step in 0..5 {
        let start = Instant::now();
        for rank in 0..size {
            let words = match step {
                0 => (0..TENSORS).map(|index| Word::Announce(request(index))).collect(),
                _ => vec![Word::Ready((0..TENSORS as u32).collect())],
            };
            words.into_iter().for_each(|word| table.hear(rank, Spoken { epoch: 0, word }, Duration::ZERO));
        }
        let verdicts = table.decide();
        assert!(matches!(&verdicts[..], [Verdict::Run(batches)] if batches.len() == 1), "{verdicts:?}");
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    best
}

#[test]
fn a_thousand_tensors_among_many_ranks() {
    println!("ranks    agreed step   per rank   adopted step   per rank   table alone   per rank");
    for size in [4, 16, 64] {
        let (agreed, adopted) = (milliseconds(size, false), milliseconds(size, true));
        print!("{size:5}");
        for (time, width) in [(agreed, 12), (adopted, 12), (table(size), 11)] {
            print!(" {time:width$.2} ms {:7.4} ms", time / size as f64);
        }
        println!();
    }
}
