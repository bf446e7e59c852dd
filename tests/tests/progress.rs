//! How far a job is, as people see it: on a terminal, in a log, and on a page in a real browser.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use sirtaki_tests::{
    browser,
    launch::{Finished, Launch},
    stand_in::library,
    wait,
};

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");
const RANK: &str = env!("CARGO_BIN_EXE_engine-rank");

/// Two ranks, each with a GPU, that say how far they are; rank 1 is slow. They take about four seconds.
fn course(mut command: Command) -> Launch {
    command.env("TEST_GPU", "1").envs(["SIRTAKI_CUDA", "SIRTAKI_NCCL", "SIRTAKI_NVML"].map(|name| (name, library())));
    command.env("TEST_SCENARIO", "course").env("TEST_ODD", "1").env("TERM", "xterm").env_remove("NO_COLOR");
    Launch::start(command)
}

/// What the stand-in says of both GPUs.
const GPUS: &str = "GPUs 42 % busy  GPU memory 3.0 of 80.0 GiB at most";

fn on_a_terminal(options: &str) -> Finished {
    let mut command = Command::new("script");
    let line = format!("stty cols 90 rows 24; {SIRTAKI} run -n 2 {options} -- {RANK}");
    command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    let done = course(command).ends();
    assert_eq!(done.code, 0, "{:?}", done.out);
    done
}

#[test]
fn a_terminal_shows_the_whole_job_below_what_ranks_write() {
    let screen = on_a_terminal("").out.join("\n");
    let plain = without_looks(&screen);
    for text in
        ["/200  ", "steps/s", "samples/s", "loss 0.0", "accuracy 50.0 %", "test accuracy 75.00 %", GPUS, "late "]
    {
        assert!(plain.contains(text), "{text}: {plain}");
    }
    assert!(plain.contains("rank 1 keeps others waiting "), "{plain}");
    let (last, half) = (screen.rfind("steps/s").unwrap(), plain.find("half").unwrap());
    assert!(plain[half..].contains("steps/s"), "the view goes on below what is written");
    let rest = &screen[last..];
    assert!(rest.contains("\u{1b}[J"), "it is wiped away in the end: {rest:?}");
    assert!(plain.trim_end().ends_with("done through"), "{plain}");
}

/// Without colours; movements of the cursor stay.
fn without_looks(screen: &str) -> String {
    let mut pieces = screen.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        match piece.split_once('m').filter(|(look, _)| look.bytes().all(|byte| byte.is_ascii_digit() || byte == b';')) {
            Some((_, text)) => plain.push_str(text),
            None => plain.push_str(&format!("\u{1b}[{piece}")),
        }
    }
    plain
}

#[test]
fn progress_can_be_switched_off() {
    let screen = on_a_terminal("--progress off").out.join("\n");
    assert!(!screen.contains("steps/s") && !screen.contains("late "), "{screen}");
}

#[test]
fn a_log_has_a_line_now_and_then_without_control_characters() {
    let mut command = Command::new(SIRTAKI);
    command.env("TEST_ENDLESS", "150").args(["run", "-n", "2", "--", RANK]);
    let job = course(command);
    let line = job.says("steps/s");
    assert!(line.starts_with("step ") && line.contains("/200  "), "{line}");
    job.signal(Signal::INT);
    let done = job.ends();
    assert!(!done.out.iter().chain(&done.err).any(|line| line.contains(['\u{1b}', '\r'])), "{done:?}");
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// What the page is told.
fn data(address: &str, token: &str) -> Value {
    let answer = get(address, &format!("/{token}/data"));
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    serde_json::from_str(body).unwrap()
}

/// Waits until the job has come this far.
fn await_step(address: &str, token: &str, step: u64) -> Value {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        let data = data(address, token);
        if data["now"]["said"]["step"].as_u64() >= Some(step) {
            return data;
        }
        assert!(Instant::now() < deadline, "step {step} is not reached: {data}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_browser_shows_the_job_while_it_runs() {
    let mut command = Command::new(SIRTAKI);
    command.env("TEST_ENDLESS", "200").args(["run", "-n", "2", "--dashboard", "--", RANK]);
    let job = course(command);
    let line = job.says("dashboard: http://127.0.0.1:");
    let url = line.strip_prefix("dashboard: ").unwrap().to_owned();
    let (address, token) = url.trim_start_matches("http://").trim_end_matches('/').split_once('/').unwrap();
    assert_eq!(token.len(), 32);
    assert!(get(address, "/").starts_with("HTTP/1.1 403 ") && get(address, "/data").starts_with("HTTP/1.1 403 "));
    await_step(address, token, 20);
    let later = await_step(address, token, 200);
    let known = |data: &Value| data["now"]["ranks"].as_array().unwrap().iter().all(|rank| rank["gpu"]["busy"] == 42);
    wait::until("the use of both GPUs", || known(&data(address, token)));
    assert_eq!((later["now"]["ranks"].as_array().unwrap().len(), &later["ended"]), (2, &Value::Null));
    let page = browser::dom(&url);
    let has = |text: &str| assert!(page.contains(text), "{text}: {page}");
    has("<h1 id=\"name\">engine-rank</h1>");
    has("running for ");
    for figure in ["loss", "accuracy", "throughput", "steps", "lateness", "late", "memory", "gpu-memory", "gpu-busy"] {
        has(&format!("<figure id=\"{figure}\">"));
    }
    let drawn = page.matches("<path d=\"M").count();
    assert!(drawn >= 6, "{drawn} lines and marks: {page}");
    let texts =
        ["<dd class=\"value\">200</dd>", "of 200, 100 %", "75.00 %", "rank 1", "role=\"img\" aria-label=\"Loss"];
    for text in texts.into_iter().chain(["<td class=\"number\">42 %</td>", "3.0 GiB of 80 GiB"]) {
        has(text);
    }
    assert!(!page.contains("NaN") && !page.contains("undefined"), "{page}");
    job.signal(Signal::INT);
    let done = job.ends();
    let told: Vec<&String> = done.err.iter().chain(&done.out).filter(|line| line.contains(token)).collect();
    assert_eq!(told.len(), 1, "the token is said once: {told:?}");
    assert!(TcpStream::connect(address).is_err(), "the page ends with the job");
}
