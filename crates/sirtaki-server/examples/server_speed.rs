//! Figures of parameter servers: push and pull, touched rows, stragglers, and a sparse logistic regression.
//!
//! `cargo xtask bench server` runs it beside peers. Workers are threads. Where computing is what is compared, it is a
//! sleep of a known length, so that theory has an answer and the number of cores has none.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program that measures")]

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use sirtaki_comm::{Settings, secure::Secret};
use sirtaki_server::{
    Delay, Gradient, Head, HeadOptions, Rows, RuleSpec, Rules, Server, TableSpec, Worker, WorkerReport,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CONSISTENCIES: [(&str, Delay); 4] = [
    ("in step", Delay::Bounded(0)),
    ("k = 4", Delay::Bounded(4)),
    ("k = 8", Delay::Bounded(8)),
    ("asynchronous", Delay::Unbounded),
];

/// Runs workers of a service, and returns what each of them says.
fn service<T: Send>(
    (delay, servers, workers): (Delay, usize, usize),
    table: &TableSpec,
    work: impl Fn(usize, &mut Worker) -> T + Sync,
) -> Vec<T> {
    let settings = Settings::new(Secret::random().unwrap());
    let head = Head::open(HERE, &settings, HeadOptions { delay, copies: 1, servers, workers }).unwrap();
    let address = head.address();
    let _servers: Vec<Server> =
        (0..servers).map(|_| Server::start(address, HERE, &settings, Rules::default()).unwrap()).collect();
    let begin = Barrier::new(workers);
    thread::scope(|threads| {
        let run = |number| {
            let (settings, work, begin) = (&settings, &work, &begin);
            threads.spawn(move || {
                let mut worker = Worker::join(address, settings).unwrap();
                worker.create(table.clone(), &[]).unwrap();
                begin.wait();
                let said = work(number, &mut worker);
                worker.leave();
                said
            })
        };
        let all: Vec<_> = (0..workers).map(run).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn dense(elements: u64) -> TableSpec {
    TableSpec { name: "weights".into(), rows: elements, width: 1, rule: RuleSpec::sgd() }
}

fn step(worker: &mut Worker, values: &[f32]) {
    let rows = Rows::Range(0..values.len() as u64);
    let gradient = Gradient { table: "weights", rows: rows.clone(), leaves: (0, 0), values };
    worker.push_pull(0.1, &[gradient], None, &[("weights", rows)]).unwrap();
}

/// Steps per second of all workers together, while each computes as long as `compute` says.
fn straggling(delay: Delay, compute: impl Fn(usize, u64) -> Duration + Sync) -> f64 {
    const TIME: Duration = Duration::from_secs(4);
    let values = vec![0.0; 16 << 10];
    let rates = service((delay, 1, 4), &dense(16 << 10), |number, worker| {
        let (begun, mut steps) = (Instant::now(), 0_u64);
        while begun.elapsed() < TIME {
            thread::sleep(compute(number, steps));
            step(worker, &values);
            steps += 1;
        }
        steps as f64 / begun.elapsed().as_secs_f64()
    });
    rates.iter().sum()
}

/// A number from 0 to 1 that follows from these two.
fn draw(number: usize, step: u64) -> f64 {
    let mut mixed = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ step.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

fn stragglers() {
    const STEP: Duration = Duration::from_millis(20);
    let slow = |number: usize, _: u64| if number == 0 { 2 * STEP } else { STEP };
    let stalls = |number: usize, step: u64| if draw(number, step) < 0.05 { 5 * STEP } else { STEP };
    println!("steps per second of 4 workers that compute for 20 ms");
    println!("{:<14} {:>28} {:>28}", "", "one takes twice as long", "5 % of steps take 5 x");
    let mut first = None;
    for (name, delay) in CONSISTENCIES {
        let (permanent, some) = (straggling(delay, slow), straggling(delay, stalls));
        let (one, other) = *first.get_or_insert((permanent, some));
        println!("{name:<14} {permanent:>18.1} ({:.2} x) {some:>18.1} ({:.2} x)", permanent / one, some / other);
    }
    println!("goals: asynchronous 1.65 x (theory 1.75); k = 8 with stalls 1.35 x\n");
}

/// Push and pull of 4.8 MB by two workers on one server: milliseconds of a step.
fn transfer() {
    const ELEMENTS: u64 = 1_200_000;
    let values = vec![0.5; ELEMENTS as usize];
    let times = service((Delay::Unbounded, 1, 2), &dense(ELEMENTS), |_, worker| {
        (0..5).for_each(|_| step(worker, &values));
        let mut times: Vec<f64> = (0..40)
            .map(|_| {
                let begun = Instant::now();
                step(worker, &values);
                begun.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    println!("push + pull of 4.8 MB, 2 workers, 1 server: {mean:.2} ms (median of 40, mean of both workers)\n");
}

/// Bytes for an embedding of which one row in a hundred is touched.
fn rows() {
    const ROWS: u64 = 10_000_000;
    let width = 4;
    let words = TableSpec { name: "words".into(), rows: ROWS, width, rule: RuleSpec::sgd() };
    let report = service((Delay::Unbounded, 1, 1), &words, |_, worker| {
        let touched: Vec<u64> = (0..ROWS / 100).map(|place| 100 * place + place % 97).collect();
        let rows = Rows::some(&touched).unwrap();
        let values = vec![0.5; touched.len() * width as usize];
        let before = worker.report();
        let gradient = Gradient { table: "words", rows: rows.clone(), leaves: (0, 0), values: &values };
        worker.push_pull(0.1, &[gradient], None, &[("words", rows)]).unwrap();
        let after = worker.report();
        (after.sent + after.received - before.sent - before.received, 2 * 4 * values.len() as u64)
    });
    let (moved, needed) = report[0];
    let times = moved as f64 / needed as f64;
    println!(
        "embedding of 10,000,000 rows of {width}, 1 % touched: {moved} bytes for {needed} of rows, {times:.3} x (goal 1.1)\n"
    );
}

/// A sample of a logistic regression: features that are there, and what they mean.
fn sample(number: u64, features: u64) -> (Vec<u64>, f32) {
    // Few features are frequent and most are rare, as in records of clicks.
    let mut some: Vec<u64> = (0..20).map(|place| (draw(place, number).powi(4) * features as f64) as u64).collect();
    some.sort_unstable();
    some.dedup();
    let score: f64 = some.iter().map(|&feature| draw(7, feature) - 0.5).sum();
    (some, if score > 0.0 { 1.0 } else { 0.0 })
}

/// Sparse logistic regression with FTRL, one of four workers twice as slow: seconds of computing and waiting of each.
fn regression() -> Vec<(&'static str, Vec<(f64, f64)>)> {
    const FEATURES: u64 = 1_000_000;
    let table = TableSpec { name: "weights".into(), rows: FEATURES, width: 1, rule: RuleSpec::ftrl(0.01, 0.01) };
    println!(
        "sparse logistic regression, {FEATURES} features, 4 workers, the first twice as slow, 100 steps of 100 samples each"
    );
    let mut all = Vec::new();
    for (name, delay) in [CONSISTENCIES[0], CONSISTENCIES[1], CONSISTENCIES[3]] {
        let begun = Instant::now();
        let said = service((delay, 2, 4), &table, |number, worker| learn(number, worker, FEATURES));
        let seconds = begun.elapsed().as_secs_f64();
        let right: f64 = said.iter().map(|(_, _, right)| right).sum::<f64>() / said.len() as f64;
        println!("{name:<14} {seconds:>6.2} s, {:.1} % of the last samples right", 100.0 * right);
        for (number, (computing, report, _)) in said.iter().enumerate() {
            let waiting = report.waited.as_secs_f64();
            println!(
                "  worker {number}: computing {computing:>6.2} s, waiting {waiting:>6.2} s, behind {:?}",
                report.behind
            );
        }
        all.push((name, said.iter().map(|(computing, report, _)| (*computing, report.waited.as_secs_f64())).collect()));
    }
    all
}

fn learn(number: usize, worker: &mut Worker, features: u64) -> (f64, WorkerReport, f64) {
    const STEPS: u64 = 100;
    const BATCH: u64 = 100;
    let (mut computing, mut right) = (Duration::ZERO, 0_u64);
    for step in 0..STEPS {
        let first = (step * 4 + number as u64) * BATCH;
        let samples: Vec<_> = (first..first + BATCH).map(|number| sample(number, features)).collect();
        let mut touched: Vec<u64> = samples.iter().flat_map(|(some, _)| some.iter().copied()).collect();
        touched.sort_unstable();
        touched.dedup();
        let rows = Rows::some(&touched).unwrap();
        let weights = worker.pull(&[("weights", rows.clone())]).unwrap().remove(0);
        let begun = Instant::now();
        let mut gradient = vec![0.0; touched.len()];
        for (some, label) in &samples {
            let places: Vec<usize> = some.iter().map(|feature| touched.binary_search(feature).unwrap()).collect();
            let score: f32 = places.iter().map(|&place| weights[place]).sum();
            let wrong = 1.0 / (1.0 + (-score).exp()) - label;
            places.iter().for_each(|&place| gradient[place] += wrong / BATCH as f32);
            right += u64::from(step >= STEPS - 20 && (score > 0.0) == (*label > 0.5));
        }
        // The rest of a step that takes 10 ms, or 20 ms for the slow one.
        thread::sleep(Duration::from_millis(if number == 0 { 20 } else { 10 }).saturating_sub(begun.elapsed()));
        computing += begun.elapsed();
        let gradient = Gradient { table: "weights", rows, leaves: (0, 0), values: &gradient };
        worker.push(0.5, &[gradient], None).unwrap();
    }
    (computing.as_secs_f64(), worker.report(), right as f64 / (20 * BATCH) as f64)
}

/// Computing and waiting of each worker as bars.
fn plot(all: &[(&str, Vec<(f64, f64)>)]) -> String {
    use std::fmt::Write;
    let longest = all.iter().flat_map(|(_, workers)| workers).map(|(one, other)| one + other).fold(0.1, f64::max);
    let (mut bars, mut y) = (String::new(), 40.0);
    for (name, workers) in all {
        let _ = write!(bars, "<text x='10' y='{y}' font-weight='bold'>{name}</text>");
        for (number, (computing, waiting)) in workers.iter().enumerate() {
            y += 22.0;
            let (one, other) = (400.0 * computing / longest, 400.0 * waiting / longest);
            let _ = write!(
                bars,
                "<text x='10' y='{}'>worker {number}</text><rect x='90' y='{y}' width='{one:.1}' height='16' \
                 fill='#2a6f97'/><rect x='{:.1}' y='{y}' width='{other:.1}' height='16' fill='#e9c46a'/>",
                y + 12.0,
                90.0 + one
            );
        }
        y += 46.0;
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='520' height='{y}' font-family='sans-serif' font-size='12'>\
         <rect width='100%' height='100%' fill='white'/><text x='90' y='18'>blue: computing, yellow: waiting; the \
         longest is {longest:.2} s</text>{bars}</svg>"
    )
}

fn main() {
    if std::env::args().any(|argument| argument == "transfer") {
        return transfer();
    }
    transfer();
    rows();
    stragglers();
    let all = regression();
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(&file, plot(&all)).unwrap();
        println!("plot: {file}");
    }
}
