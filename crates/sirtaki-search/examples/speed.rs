//! How long a suggestion takes after so many finished trials.
//!
//! `cargo run --release -p sirtaki-search --example speed -- [FINISHED]... [SAMPLER]...` prints, in milliseconds, the first
//! suggestion of a new sampler, which has to look at the whole history, and the least, the median and the most of those
//! that follow, each after one more trial has been told. Times are those of the processor, so that others who use the
//! machine do not count.
#![allow(clippy::print_stdout)]

use sirtaki_search::{
    sampler::{History, Observation, Outcome, Question, SAMPLERS, Sampler, find},
    space::{Point, Space},
};

const REPEATS: u64 = 15;
const PARAMETERS: usize = 10;

/// Rosenbrock's function with a choice on top.
fn loss(point: &Point) -> f64 {
    let x: Vec<f64> = point.0.iter().flatten().copied().collect();
    let valley = |i: usize| 100.0 * (x[i] - x[i - 1] * x[i - 1]).powi(2) + (1.0 - x[i - 1]).powi(2);
    x[PARAMETERS] + (1..PARAMETERS).map(valley).sum::<f64>()
}

fn finished(number: u64, point: Point) -> Observation {
    let losses = vec![loss(&point)];
    Observation { number: Some(number), point, outcome: Outcome::Finished, losses, violation: 0.0, last_report: None }
}

/// Milliseconds that this process has spent on a processor.
fn spent() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux says how long a process ran");
    let nanoseconds: f64 = text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number");
    nanoseconds / 1e6
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut counts: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![100, 500];
    }
    let wanted = |name: &str| words.iter().all(|word| word.parse::<u64>().is_ok()) || words.iter().any(|w| w == name);
    let floats: Vec<String> = (0..PARAMETERS).map(|i| format!("x{i}=float:-2..2")).collect();
    let space: Space = format!("{},kind=a|b|c", floats.join(",")).parse().expect("a valid space");
    println!("{:10} {:>9} {:>9} {:>9} {:>9} {:>9}", "sampler", "finished", "first", "least", "median", "most");
    for entry in SAMPLERS.iter().filter(|entry| wanted(entry.name)) {
        for &count in &counts {
            let mut history = History::default();
            let mut random = find("random").expect("it is one of ours").make();
            for number in 0..count {
                let point = random.suggest(&Question { seed: 1, space: &space, history: &history, number });
                history.put(finished(number, point));
            }
            let mut sampler: Box<dyn Sampler> = entry.make();
            let mut times = Vec::new();
            for number in count..count + REPEATS {
                let begin = spent();
                let point = sampler.suggest(&Question { seed: 1, space: &space, history: &history, number });
                times.push(spent() - begin);
                history.put(finished(number, point));
            }
            let first = times.remove(0);
            times.sort_by(f64::total_cmp);
            let (least, median, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
            println!("{:10} {count:9} {first:9.2} {least:9.2} {median:9.2} {most:9.2}", entry.name);
        }
    }
}
