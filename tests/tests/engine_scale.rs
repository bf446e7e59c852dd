//! Many ranks as threads agree on many tensors; what a step costs is printed (`--nocapture`).

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::time::{Duration, Instant};

use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{
    Operation, Request, Settings, Ticket,
    agree::Table,
    message::{Spoken, Verdict, Word},
};
use sirtaki_tests::{
    engines::{each, sum, vector},
    make,
};

const TENSORS: usize = 1000;

/// Milliseconds of the best step, on the slowest rank.
fn steps(size: usize, adopt: bool) -> f64 {
    let settings = Settings { adopt, ..Settings::default() };
    let times = each(&make::arena, size, &settings, |engine| {
        let names: Vec<String> = (0..TENSORS).map(|index| format!("layer.{index}.weight")).collect();
        let mut best = f64::INFINITY;
        for _ in 0..4 {
            let start = Instant::now();
            let tickets: Vec<Ticket> = names.iter().map(|name| sum(engine, name, vec![1.0_f32; 4])).collect();
            for ticket in tickets {
                assert_eq!(vector::<f32>(ticket.wait_one()), [size as f32; 4]);
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e3);
        }
        best
    });
    times.into_iter().fold(0.0, f64::max)
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
    println!("ranks   agreed step   adopted step   table alone   table, per rank");
    for size in [4, 16, 64] {
        let (agreed, adopted) = (steps(size, false), steps(size, true));
        let alone = table(size);
        let each = alone / size as f64;
        println!("{size:5} {agreed:10.1} ms {adopted:11.1} ms {alone:10.2} ms {each:14.4} ms");
    }
}
