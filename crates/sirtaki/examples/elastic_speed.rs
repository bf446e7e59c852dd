//! `cargo xtask bench elastic`: how soon the others go on when a worker is killed, how soon a newcomer takes part, and what
//! it costs to be able to, beside the same job with fixed ranks.
//!
//! This program is everything: it measures, it is the launcher (by the library), its agent, and the workers. A step is
//! 5 ms of computation, an all-reduce of the 61,706 weights of LeNet-5, and a commit. With `--python PYTHON`, which has
//! PyTorch and the wheel, LeNet-5 itself is measured there, too. `faults 32 29 3` kills one of 32 workers every 29 seconds,
//! three times, and says which share of the steps is kept.
#![allow(clippy::print_stdout, reason = "a benchmark talks to the person who started it")]

use std::{
    error::Error,
    io::Write,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};
use sirtaki::{elastic, elastic::Session};
use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{Operation, Request, Tensor};
use sirtaki_launch::{
    Controller, Elastic, Job, JobSpec, Launcher, Observer, agent, outside::Outside, placement::Placement,
    protocol::Stream,
};

const WEIGHTS: usize = 61_706;
const COMPUTATION: Duration = Duration::from_millis(5);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Goals: seconds until the others have done a step, in Rust and with PyTorch, until a newcomer has, and the share of the
/// speed that is kept.
const NEXT_STEP: [f64; 2] = [0.4, 2.0];
const NEWCOMER: f64 = 5.0;
const SHARE: f64 = 0.995;
/// The share of the steps that faults leave.
const KEPT: f64 = 0.98;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Clone, Serialize, Deserialize)]
struct Training {
    step: u64,
    weights: Vec<f32>,
}

/// Seconds of the clock that all processes of this machine share.
fn now() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn say(text: &str) {
    let _ = std::io::stdout().write_all(format!("{text}\n").as_bytes());
}

fn step(session: &mut Session<Training>) -> sirtaki::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < COMPUTATION {
        std::hint::spin_loop();
    }
    let request = Request::new("gradient", Operation::AllReduce(Reduction::AVERAGE), DType::F32, &[WEIGHTS]);
    let gradient = Tensor::from_vec(vec![1.0_f32; WEIGHTS]);
    let mean: Vec<f32> = session.world().engine().submit(request, gradient).wait_one()?.into_vec().unwrap_or_default();
    session.state.weights.iter_mut().zip(mean).for_each(|(weight, mean)| *weight -= 0.01 * mean);
    session.state.step += 1;
    session.commit()
}

/// Trains for so many steps, or until it is ended.
fn work(steps: u64) -> Result<()> {
    say(&format!("init {}", now()));
    let mut begun = None;
    elastic::run(Training { step: 0, weights: vec![0.0; WEIGHTS] }, |session| {
        step(session)?;
        say(&format!("first {} {}", session.round(), now()));
        // Whatever happens later counts, changes of workers included.
        let (begin, before) = *begun.get_or_insert((Instant::now(), session.state.step));
        while session.state.step < steps {
            step(session)?;
        }
        say(&format!("rate {}", (session.state.step - before) as f64 / begin.elapsed().as_secs_f64()));
        Ok(())
    })?;
    Ok(())
}

/// What is heard of a job.
enum Heard {
    Started(usize, u32),
    Line(usize, Vec<String>),
}

struct Listener {
    to: Sender<Heard>,
    rows: Vec<Vec<u8>>,
}

impl Observer for Listener {
    fn started(&mut self, rank: usize, _host: &str, pid: u32) {
        let _ = self.to.send(Heard::Started(rank, pid));
    }

    fn wrote(&mut self, _now: Instant, rank: usize, stream: Stream, bytes: &[u8]) {
        if stream == Stream::Err {
            let _ = std::io::stderr().write_all(bytes);
            return;
        }
        self.rows[rank].extend_from_slice(bytes);
        while let Some(end) = self.rows[rank].iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rows[rank].drain(..=end).collect();
            let words = String::from_utf8_lossy(&line).split_whitespace().map(str::to_owned).collect();
            let _ = self.to.send(Heard::Line(rank, words));
        }
    }
}

/// A job that runs in a thread.
struct Running {
    heard: Receiver<Heard>,
    controller: Controller,
    thread: thread::JoinHandle<std::result::Result<u8, String>>,
    /// The process on each seat, and when it began.
    pids: Vec<u32>,
    began: Vec<f64>,
}

impl Running {
    fn start(program: Vec<String>, ranks: usize, elastic: bool) -> Result<Self> {
        let itself = std::env::current_exe()?;
        let ranks_wanted = ranks.try_into()?;
        let pause = Duration::from_millis(10);
        let limits = Elastic { max: Some(ranks_wanted), cooldown: (pause, pause), ..Elastic::at_least(1.try_into()?) };
        let elastic = elastic.then_some(limits);
        let spec = JobSpec { ranks: Some(ranks_wanted), elastic, ..JobSpec::new(program) };
        let placement = Placement::find(&spec, &Outside { get: &|_| None, ..Outside::real() }, "localhost")?;
        let job = Job::new(spec, placement, &itself)?;
        let (to, heard) = channel();
        let launcher = Launcher::new();
        let controller = launcher.controller();
        let thread = thread::spawn(move || {
            let mut listener = Listener { to, rows: vec![Vec::new(); ranks] };
            let ending = launcher.run(&job, &mut listener).map_err(|advice| advice.to_string())?;
            Ok(ending.outcome.code())
        });
        Ok(Self { heard, controller, thread, pids: vec![0; ranks], began: vec![0.0; ranks] })
    }

    /// The next line of a worker that begins with `word`.
    fn hear(&mut self, word: &str) -> Result<(usize, Vec<String>)> {
        Ok(self.hear_until(word, Instant::now() + PATIENCE)?.ok_or("nothing was heard for too long")?)
    }

    /// The same; nothing if it does not come until then.
    fn hear_until(&mut self, word: &str, until: Instant) -> Result<Option<(usize, Vec<String>)>> {
        loop {
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(error) => return Err(error.into()),
                Ok(Heard::Started(rank, pid)) => self.pids[rank] = pid,
                Ok(Heard::Line(rank, words)) => {
                    if let [first, time] = words.as_slice()
                        && first == "init"
                    {
                        self.began[rank] = time.parse()?;
                    }
                    if words.first().is_some_and(|first| first == word) {
                        return Ok(Some((rank, words)));
                    }
                }
            }
        }
    }

    /// Until all workers have done their first step of a round. Returns when all but one had for the first time, and when
    /// all had: a newcomer may be so fast that this is the same round.
    fn stepped(&mut self) -> Result<(f64, f64)> {
        let (mut round, mut times, mut others) = (0, Vec::new(), None);
        loop {
            let (_, words) = self.hear("first")?;
            let (number, time): (u64, f64) = (words[1].parse()?, words[2].parse()?);
            if number > round {
                (round, times) = (number, Vec::new());
            }
            if number == round {
                times.push(time);
            }
            let last = times.iter().copied().fold(0.0, f64::max);
            if times.len() + 1 == self.pids.len() {
                others.get_or_insert(last);
            }
            if times.len() == self.pids.len() {
                return Ok((others.unwrap_or(last), last));
            }
        }
    }

    /// Kills the worker on a seat.
    fn kill(&self, seat: usize) -> Result<()> {
        let pid = i32::try_from(self.pids[seat]).ok().and_then(Pid::from_raw).ok_or("no process")?;
        Ok(kill_process(pid, Signal::KILL)?)
    }

    fn end(self) -> Result<u8> {
        self.controller.signal(15);
        self.join()
    }

    /// Until all workers have made their steps.
    fn finish(self) -> Result<()> {
        match self.join()? {
            0 => Ok(()),
            code => Err(format!("the job ended with exit code {code}").into()),
        }
    }

    fn join(self) -> Result<u8> {
        Ok(self.thread.join().map_err(|_| "the launcher panicked")??)
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Kills one worker after the other; seconds until the others had done a step, and until the newcomer had, after it began.
fn recoveries(program: Vec<String>, ranks: usize, kills: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut job = Running::start(program, ranks, true)?;
    job.stepped()?;
    let (mut others, mut newcomers) = (Vec::new(), Vec::new());
    for kill in 0..kills {
        let seat = kill % ranks;
        let killed = now();
        job.kill(seat)?;
        let (went_on, all) = job.stepped()?;
        others.push(went_on - killed);
        newcomers.push(all - job.began[seat]);
    }
    job.end()?;
    Ok((others, newcomers))
}

/// Steps per second of the first worker.
fn rate(ranks: usize, elastic: bool, steps: u64) -> Result<f64> {
    let mut job = Running::start(worker(steps)?, ranks, elastic)?;
    let rate = job.hear("rate")?.1[1].parse()?;
    job.finish()?;
    Ok(rate)
}

/// The same while workers other than the first are killed, one in each such time.
fn rate_with_faults(ranks: usize, steps: u64, every: Duration) -> Result<f64> {
    let mut job = Running::start(worker(steps)?, ranks, true)?;
    job.stepped()?;
    let (mut next, mut seat) = (Instant::now() + every, 0);
    let rate = loop {
        match job.hear_until("rate", next)? {
            Some((0, words)) => break words[1].parse()?,
            Some(_) => {}
            None => {
                seat = seat % (ranks - 1) + 1;
                job.kill(seat)?;
                next += every;
            }
        }
    };
    job.finish()?;
    Ok(rate)
}

/// What faults leave of the steps.
fn faults(ranks: usize, seconds: u64, count: u64) -> Result<()> {
    let every = Duration::from_secs(seconds);
    // Half a period more, so that the last fault is followed by as much undisturbed time as it is preceded by.
    let steps = (rate(ranks, true, 300)? * seconds as f64 * (count as f64 + 0.5)) as u64;
    let kept = rate_with_faults(ranks, steps, every)? / rate(ranks, true, steps)?;
    let text = format!("one of {ranks} killed every {seconds} s, {count} times: {kept:.4} of the steps are kept");
    verdict(kept >= KEPT, &format!("{text}, to be at least {KEPT}"));
    Ok(())
}

fn verdict(reached: bool, text: &str) {
    println!("{} {text}", if reached { '✓' } else { '✗' });
}

/// This program as a worker that makes so many steps.
fn worker(steps: u64) -> Result<Vec<String>> {
    Ok(vec![std::env::current_exe()?.display().to_string(), "worker".into(), steps.to_string()])
}

/// What losses cost workers of one kind, of which the next step may take so long.
fn losses(kind: &str, program: Vec<String>, goal: f64, ranks: usize, kills: usize) -> Result<()> {
    let (mut others, mut newcomers) = recoveries(program, ranks, kills)?;
    let most = others.iter().copied().fold(0.0, f64::max);
    let (usual, latest) = (median(&mut others), newcomers.iter().copied().fold(0.0, f64::max));
    let text = format!("{kind}, one of {ranks} killed, {kills} times: the others' next step after {usual:.3} s");
    verdict(usual <= goal, &format!("{text}, {most:.3} s at most, to be at most {goal} s"));
    let usual = median(&mut newcomers);
    let text = format!("{kind}: newcomer in step {usual:.3} s after it began, {latest:.3} s at most");
    verdict(latest <= NEWCOMER, &format!("{text}, to be at most {NEWCOMER} s"));
    Ok(())
}

fn measure(python: Option<String>, ranks: usize, kills: usize, rounds: usize, steps: u64) -> Result<()> {
    losses("Rust", worker(u64::MAX)?, NEXT_STEP[0], ranks, kills)?;
    if let Some(python) = python {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/elastic/worker.py");
        losses("PyTorch", vec![python, script.into()], NEXT_STEP[1], ranks, kills)?;
    }
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let fixed = rate(ranks, false, steps)?;
        ratios.push(rate(ranks, true, steps)? / fixed);
    }
    let ratio = median(&mut ratios);
    let text = format!("elastic ÷ fixed, steps per second of {ranks} workers, median of {rounds}: {ratio:.4}");
    verdict(ratio >= SHARE, &format!("{text}, to be at least {SHARE}"));
    Ok(())
}

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let python = match words.first().map(String::as_str) {
        Some("--python") => words.drain(..2.min(words.len())).nth(1),
        _ => None,
    };
    let number = |at: usize, or: u64| words.get(at).map_or(Ok(or), |word| word.parse());
    match words.first().map(String::as_str) {
        Some("agent") => Ok(agent::work(&std::env::current_exe()?)?),
        Some("worker") => work(number(1, u64::MAX)?),
        Some("faults") => faults(number(1, 32)?.max(2) as usize, number(2, 29)?, number(3, 3)?),
        _ => {
            let [ranks, kills, rounds, steps] = [number(0, 4)?, number(1, 12)?, number(2, 5)?, number(3, 600)?];
            measure(python, ranks.max(2) as usize, kills.max(1) as usize, rounds as usize, steps)
        }
    }
}
