//! How far from the optimum each sampler is after a number of trials, on functions whose optimum is known.
//!
//! `cargo run --release -p sirtaki-search --example regret -- [TRIALS] [SEEDS] [AT-A-TIME] [SAMPLER]... [FUNCTION]...`
//! prints the median over seeds of the regret and its quartiles, and the time per suggestion. With more than one at a
//! time, so many trials are asked for before any of them is told.
#![allow(clippy::print_stdout)]

use std::{f64::consts::PI, time::Instant};

use sirtaki_search::{
    sampler::{History, Observation, Outcome, Question, SAMPLERS, find},
    space::{Point, Space},
};

struct Function {
    name: &'static str,
    space: String,
    evaluate: fn(&[Option<f64>]) -> f64,
    optimum: f64,
}

fn boxed(count: usize, range: &str) -> String {
    (0..count).map(|index| format!("x{index}=float:{range}")).collect::<Vec<_>>().join(",")
}

fn functions() -> Vec<Function> {
    let mut mixed = "optimizer=sgd|adam,lr=log:1e-6..1,act=relu|tanh|gelu,momentum=float:0..0.999 when optimizer == \
                     'sgd',beta=log:1e-4..0.5 when optimizer == 'adam',layers=int:1..6,width0=logint:8..1024"
        .to_owned();
    for layer in 1..6 {
        mixed += &format!(",width{layer}=logint:8..1024 when layers > {layer}");
    }
    vec![
        Function {
            name: "branin",
            space: "x=float:-5..10,y=float:0..15".into(),
            evaluate: branin,
            optimum: 0.397_887_357_729_738_16,
        },
        Function { name: "hartmann6", space: boxed(6, "0..1"), evaluate: hartmann6, optimum: -3.322_368_011_415_515 },
        Function { name: "rosenbrock10", space: boxed(10, "-2.048..2.048"), evaluate: rosenbrock, optimum: 0.0 },
        Function { name: "mixed", space: mixed, evaluate: self::mixed, optimum: 0.0 },
    ]
}

fn at(values: &[Option<f64>], index: usize) -> f64 {
    values[index].expect("this parameter is on")
}

fn branin(p: &[Option<f64>]) -> f64 {
    let (x, y) = (at(p, 0), at(p, 1));
    let valley = y - 5.1 / (4.0 * PI * PI) * x * x + 5.0 / PI * x - 6.0;
    valley * valley + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * x.cos() + 10.0
}

fn hartmann6(p: &[Option<f64>]) -> f64 {
    const HEIGHTS: [f64; 4] = [1.0, 1.2, 3.0, 3.2];
    const WIDTHS: [[f64; 6]; 4] = [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ];
    const CENTRES: [[f64; 6]; 4] = [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ];
    let peak = |i: usize| (0..6).map(|j| WIDTHS[i][j] * (at(p, j) - CENTRES[i][j]).powi(2)).sum::<f64>();
    -(0..4).map(|i| HEIGHTS[i] * (-peak(i)).exp()).sum::<f64>()
}

fn rosenbrock(p: &[Option<f64>]) -> f64 {
    (1..p.len()).map(|i| 100.0 * (at(p, i) - at(p, i - 1).powi(2)).powi(2) + (1.0 - at(p, i - 1)).powi(2)).sum()
}

/// Shaped like a training job: conditional, with integers and choices.
fn mixed(p: &[Option<f64>]) -> f64 {
    let lr = at(p, 1).log10();
    let optimizer = if at(p, 0) == 0.0 {
        0.1 + (lr + 1.5).powi(2) + 4.0 * (at(p, 3) - 0.9).powi(2)
    } else {
        (lr + 3.0).powi(2) + 0.5 * (at(p, 4).log10() + 2.0).powi(2)
    };
    let layers = at(p, 5) as usize;
    let width = |layer: usize| 0.5 * (at(p, 6 + layer).log2() - (8.0 - layer as f64)).powi(2) / layers as f64;
    let network = 0.3 * (layers as f64 - 3.0).powi(2) + (0..layers).map(width).sum::<f64>();
    optimizer + network + [0.0, 0.3, 0.05][at(p, 2) as usize]
}

fn observation(number: u64, point: Point, loss: Option<f64>) -> Observation {
    let outcome = if loss.is_some() { Outcome::Finished } else { Outcome::Running };
    Observation {
        number: Some(number),
        point,
        outcome,
        losses: Vec::from_iter(loss),
        violation: 0.0,
        last_report: None,
    }
}

/// The best regret of one run, and the seconds that its suggestions took.
fn run(function: &Function, space: &Space, sampler: &str, seed: u64, trials: u64, at_a_time: u64) -> (f64, f64) {
    let mut sampler = find(sampler).expect("checked before").make();
    let (mut history, mut best, mut seconds, mut number) = (History::default(), f64::INFINITY, 0.0, 0);
    while number < trials {
        let batch: Vec<(u64, Point)> = (number..trials.min(number + at_a_time))
            .map(|number| {
                let begin = Instant::now();
                let point = sampler.suggest(&Question { seed, space, history: &history, number });
                seconds += begin.elapsed().as_secs_f64();
                assert!(space.contains(&point), "{point:?}");
                history.put(observation(number, point.clone(), None));
                (number, point)
            })
            .collect();
        number += batch.len() as u64;
        for (number, point) in batch {
            let loss = (function.evaluate)(&point.0);
            best = best.min(loss);
            history.put(observation(number, point, Some(loss)));
        }
    }
    (best - function.optimum, seconds)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let number = |index: usize, usual: u64| numbers.get(index).copied().unwrap_or(usual);
    let (trials, seeds, at_a_time) = (number(0, 100), number(1, 20), number(2, 1));
    let wanted = |name: &str, all: &[&str]| {
        words.iter().any(|word| word == name) || !words.iter().any(|word| all.contains(&word.as_str()))
    };
    let functions = functions();
    let names: Vec<&str> = functions.iter().map(|function| function.name).collect();
    let samplers: Vec<&str> = SAMPLERS.iter().map(|entry| entry.name).collect();
    println!("{trials} trials, {at_a_time} at a time, {seeds} seeds");
    println!(
        "{:14} {:10} {:>11} {:>11} {:>11} {:>10}",
        "function", "sampler", "median", "quartile", "quartile", "ms/trial"
    );
    for function in functions.iter().filter(|function| wanted(function.name, &names)) {
        let space: Space = function.space.parse().expect("a valid space");
        for sampler in samplers.iter().filter(|sampler| wanted(sampler, &samplers)) {
            let runs: Vec<(f64, f64)> =
                (0..seeds).map(|seed| run(function, &space, sampler, seed, trials, at_a_time)).collect();
            let mut regrets: Vec<f64> = runs.iter().map(|run| run.0).collect();
            regrets.sort_by(f64::total_cmp);
            let quantile = |part: f64| {
                let place = part * (regrets.len() - 1) as f64;
                (regrets[place.floor() as usize] + regrets[place.ceil() as usize]) / 2.0
            };
            let spent = runs.iter().map(|run| run.1).sum::<f64>() * 1e3 / (seeds * trials) as f64;
            let (median, lower, upper) = (quantile(0.5), quantile(0.25), quantile(0.75));
            println!("{:14} {sampler:10} {median:11.4e} {lower:11.4e} {upper:11.4e} {spent:10.3}", function.name);
        }
    }
}
