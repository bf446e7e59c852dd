//! `cargo xtask bench elastic`: how soon the others go on when a worker is killed, how soon a newcomer takes part, and what
//! it costs to be able to, beside the same job with fixed ranks.
//!
//! This program is everything: it measures, it is the launcher (by the library), its agent, and the workers. A step is
//! 5 ms of computation, an all-reduce of the 61,706 weights of LeNet-5, and a commit.
#![allow(clippy::print_stdout, reason = "a benchmark talks to the person who started it")]

use std::{
    error::Error,
    io::Write,
    sync::mpsc::{Receiver, Sender, channel},
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
/// Goals: seconds until the others have done a step, until a newcomer has, and the share of the speed that is kept.
const GOALS: (f64, f64, f64) = (0.4, 5.0, 0.995);

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
    elastic::run(Training { step: 0, weights: vec![0.0; WEIGHTS] }, |session| {
        step(session)?;
        say(&format!("first {} {}", session.round(), now()));
        let (begin, before) = (Instant::now(), session.state.step);
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
    fn start(ranks: usize, elastic: bool, steps: u64) -> Result<Self> {
        let itself = std::env::current_exe()?;
        let program = [itself.display().to_string(), "worker".into(), steps.to_string()];
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
        loop {
            match self.heard.recv_timeout(PATIENCE)? {
                Heard::Started(rank, pid) => self.pids[rank] = pid,
                Heard::Line(rank, words) => {
                    if let [first, time] = words.as_slice()
                        && first == "init"
                    {
                        self.began[rank] = time.parse()?;
                    }
                    if words.first().is_some_and(|first| first == word) {
                        return Ok((rank, words));
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

    fn end(self) -> Result<u8> {
        self.controller.signal(15);
        Ok(self.thread.join().map_err(|_| "the launcher panicked")??)
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Kills one worker after the other; seconds until the others had done a step, and until the newcomer had, after it began.
fn recoveries(ranks: usize, kills: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut job = Running::start(ranks, true, u64::MAX)?;
    job.stepped()?;
    let (mut others, mut newcomers) = (Vec::new(), Vec::new());
    for kill in 0..kills {
        let seat = kill % ranks;
        let pid = i32::try_from(job.pids[seat]).ok().and_then(Pid::from_raw).ok_or("no process")?;
        let killed = now();
        kill_process(pid, Signal::KILL)?;
        let (went_on, all) = job.stepped()?;
        others.push(went_on - killed);
        newcomers.push(all - job.began[seat]);
    }
    job.end()?;
    Ok((others, newcomers))
}

/// Steps per second of the first worker.
fn rate(ranks: usize, elastic: bool, steps: u64) -> Result<f64> {
    let mut job = Running::start(ranks, elastic, steps)?;
    let rate = job.hear("rate")?.1[1].parse()?;
    let code = job.thread.join().map_err(|_| "the launcher panicked")??;
    if code == 0 { Ok(rate) } else { Err(format!("the job ended with exit code {code}").into()) }
}

fn verdict(reached: bool, text: &str) {
    println!("{} {text}", if reached { '✓' } else { '✗' });
}

fn measure(ranks: usize, kills: usize, rounds: usize, steps: u64) -> Result<()> {
    let (mut others, mut newcomers) = recoveries(ranks, kills)?;
    let most = others.iter().copied().fold(0.0, f64::max);
    let (usual, latest) = (median(&mut others), newcomers.iter().copied().fold(0.0, f64::max));
    let text =
        format!("one of {ranks} killed, {kills} times: the others' next step after {usual:.3} s, {most:.3} s at most");
    verdict(usual <= GOALS.0, &format!("{text}, to be at most {} s", GOALS.0));
    let text = format!("newcomer in step {:.3} s after it began, {latest:.3} s at most", median(&mut newcomers));
    verdict(latest <= GOALS.1, &format!("{text}, to be at most {} s", GOALS.1));
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let fixed = rate(ranks, false, steps)?;
        ratios.push(rate(ranks, true, steps)? / fixed);
    }
    let ratio = median(&mut ratios);
    let text = format!("elastic ÷ fixed, steps per second of {ranks} workers, median of {rounds}: {ratio:.4}");
    verdict(ratio >= GOALS.2, &format!("{text}, to be at least {}", GOALS.2));
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| words.get(at).map_or(Ok(or), |word| word.parse());
    match words.first().map(String::as_str) {
        Some("agent") => Ok(agent::work(&std::env::current_exe()?)?),
        Some("worker") => work(number(1, u64::MAX)?),
        _ => {
            let [ranks, kills, rounds, steps] = [number(0, 4)?, number(1, 12)?, number(2, 5)?, number(3, 600)?];
            measure(ranks.max(2) as usize, kills.max(1) as usize, rounds as usize, steps)
        }
    }
}
