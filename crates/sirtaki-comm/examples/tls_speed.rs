//! What TLS costs: an all-reduce of 64 MiB and one of 8 bytes between two network namespaces, in plaintext and with TLS,
//! taking turns in the same two processes. Needs root for the namespaces.
//!
//! ```sh
//! cargo run --release --example tls_speed
//! ```

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::{
    env,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use sirtaki_comm::{
    Communicator, ReduceOp, Reduction, Settings,
    rendezvous::{FileStore, connect},
    secure::Secret,
};

/// Elements of four bytes, and how many in a row are one measurement.
const LARGE: (usize, u32) = (16 << 20, 1);
const SMALL: (usize, u32) = (2, 500);
/// Measurements of each.
const TIMES: usize = 21;

fn main() {
    match env::var("TLS_SPEED_RANK") {
        Ok(rank) => measure(rank.parse().unwrap()),
        Err(_) => start(),
    }
}

/// Two namespaces with a cable between them, which go with this value.
struct Namespaces([String; 2]);

impl Namespaces {
    fn new() -> Self {
        let names = ["a", "b"].map(|side| format!("tls-speed-{}-{side}", std::process::id()));
        let [a, b] = &names;
        ip(&["netns", "add", a]);
        ip(&["netns", "add", b]);
        ip(&["-n", a, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", b]);
        for (name, address) in [(a, "10.77.0.1/24"), (b, "10.77.0.2/24")] {
            ip(&["-n", name, "addr", "add", address, "dev", "cable"]);
            ip(&["-n", name, "link", "set", "cable", "up"]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        let made = Self(names);
        made.0.iter().for_each(|name| wait_for_carrier(name));
        made
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// An interface is not up at once when it is told to be.
fn wait_for_carrier(name: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    let is_up = || {
        let shown = Command::new("ip").args(["-n", name, "-o", "link", "show", "cable"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("state UP")
    };
    while !is_up() {
        assert!(Instant::now() < end, "the cable of {name} does not come up");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).status().expect("the command `ip`");
    assert!(done.success(), "ip {} failed; namespaces need root", arguments.join(" "));
}

fn start() {
    let folder = tempfile::tempdir().unwrap();
    let namespaces = Namespaces::new();
    let secret = Secret::random().unwrap();
    let children = [0, 1].map(|rank| {
        Command::new("ip")
            .args(["netns", "exec", &namespaces.0[rank]])
            .arg(env::current_exe().unwrap())
            .env("TLS_SPEED_RANK", rank.to_string())
            .env("TLS_SPEED_FOLDER", folder.path())
            .env("TLS_SPEED_SECRET", secret.to_hex())
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    });
    let ended = children.map(|mut child| child.wait().unwrap());
    assert!(ended.iter().all(|ended| ended.success()), "a rank failed");
}

/// One rank.
fn measure(rank: usize) {
    let mut pair = [false, true].map(|tls| {
        let mut settings = Settings::new(Secret::from_hex(&env::var("TLS_SPEED_SECRET").unwrap()).unwrap());
        settings.tls = tls;
        let job = if tls { "tls" } else { "plain" };
        let store = FileStore::new(env::var("TLS_SPEED_FOLDER").unwrap(), job).unwrap();
        connect(Arc::new(store), rank, 2, settings).unwrap()
    });
    let large = in_turns(&mut pair, LARGE);
    let small = in_turns(&mut pair, SMALL);
    if rank == 0 {
        let speed = |time: Duration| (4 * LARGE.0) as f64 / time.as_secs_f64() / 1e9;
        let [plain, tls] = large.map(speed);
        println!("all-reduce of 64 MiB: plaintext {plain:.2} GB/s, TLS {tls:.2} GB/s: {:.0} %", 100.0 * tls / plain);
        let [plain, tls] = small.map(|time| time.as_secs_f64() * 1e6);
        println!("all-reduce of 8 bytes: plaintext {plain:.1} us, TLS {tls:.1} us: {:.1} us more", tls - plain);
    }
}

/// The median time of an all-reduce on each, one after the other.
fn in_turns(pair: &mut [Box<dyn Communicator>; 2], (elements, row): (usize, u32)) -> [Duration; 2] {
    let mut data = vec![1.0_f32; elements];
    let mut taken = [Vec::new(), Vec::new()];
    // The first two of each warm up.
    for round in 0..TIMES + 2 {
        for (communicator, taken) in pair.iter_mut().zip(&mut taken) {
            communicator.barrier().unwrap();
            let begun = Instant::now();
            for _ in 0..row {
                communicator.all_reduce((&mut data).into(), Reduction::new(ReduceOp::Max)).unwrap();
            }
            if round >= 2 {
                taken.push(begun.elapsed() / row);
            }
        }
    }
    taken.map(|mut taken| {
        taken.sort_unstable();
        taken[taken.len() / 2]
    })
}
