//! How long the first moments of a job take: broadcasting the parameters of ResNet-50, fused and not. Ranks are
//! threads, the variants take turns, and every figure comes from engines that were just started.
//!
//! ```sh
//! cargo run --release -p sirtaki-bench --example engine_start -- [ranks] [rounds]
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people")]

use std::time::Instant;

use sirtaki_bench::resnet;
use sirtaki_engine::{Engine, Operation, Settings, decide::fuse::Limits};
use sirtaki_tests::{
    engines::{each, submit},
    make,
    team::Make,
};

/// Parameters that are small as well as many: what ResNet-50 has besides its large convolutions.
const SMALL: usize = 64 << 10;

fn numbers(only_small: bool) -> Vec<usize> {
    resnet::tensors().into_iter().filter(|&length| !only_small || length * 4 < SMALL).collect()
}

/// Milliseconds until all ranks have all parameters of rank 0.
fn broadcast(engine: &Engine, only_small: bool, one_by_one: bool) -> f64 {
    let tensors: Vec<Vec<f32>> = numbers(only_small).into_iter().map(|length| vec![1.0; length]).collect();
    engine.barrier("begin").unwrap();
    let began = Instant::now();
    let hand_in = |(index, data)| submit(engine, &format!("layer {index}"), Operation::Broadcast { root: 0 }, data);
    if one_by_one {
        tensors.into_iter().enumerate().for_each(|tensor| drop(hand_in(tensor).wait().unwrap()));
    } else {
        let tickets: Vec<_> = tensors.into_iter().enumerate().map(hand_in).collect();
        tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    }
    engine.barrier("end").unwrap();
    began.elapsed().as_secs_f64() * 1e3
}

fn describe(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    println!("  {what:<34} median {:8.2} ms, least {:8.2} ms", times[times.len() / 2], times[0]);
}

fn compare_broadcasts(make: Make<'_>, ranks: usize, rounds: usize) {
    let alone = Settings { limits: Limits { fused: 0, large: 0 }, ..Settings::default() };
    let ways =
        [("waiting for each", &alone, true), ("not fused", &alone, false), ("fused", &Settings::default(), false)];
    for only_small in [false, true] {
        println!(
            " broadcast of {} tensors{}",
            numbers(only_small).len(),
            if only_small { ", the small ones" } else { "" }
        );
        let mut times = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (way, times) in ways.iter().zip(&mut times) {
                times.push(each(make, ranks, way.1, |engine| broadcast(engine, only_small, way.2))[0]);
            }
        }
        ways.iter().zip(times).for_each(|(way, times)| describe(way.0, times));
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise| words.get(at).map_or(otherwise, |text| text.parse().unwrap());
    let (ranks, rounds) = (number(0, 2), number(1, 5));
    for (name, make) in [("shared memory", &make::arena as Make<'_>), ("TCP over loopback", &make::tcp)] {
        println!("{ranks} ranks, {name}");
        compare_broadcasts(make, ranks, rounds);
    }
}
