//! How fast a TCP link is on this machine: two processes send and receive the same amount at once, one thread each.
//!
//! `cargo run --release --example link_speed -- [MiB] [repetitions] [--buffers KiB] [--write KiB] [--spin] [--pull]
//! [--tls] [--pin] [--at ADDRESS] [--child-in NETWORK_NAMESPACE]`

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::{
    env,
    io::IoSlice,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    thread::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
};
use sirtaki_comm::{
    Settings,
    link::{Bell, Link, TcpLink, link_over},
    secure::{
        Access, Gate, Secret,
        handshake::{Acceptor, Claim, Purpose},
    },
};

struct Options {
    bytes: usize,
    repetitions: usize,
    buffers: usize,
    write: usize,
    spin: bool,
    pull: bool,
    tls: bool,
    pin: bool,
    at: String,
    child_in: String,
}

fn options() -> Options {
    let mut options = Options {
        bytes: 16 << 20,
        repetitions: 20,
        buffers: 0,
        write: 0,
        spin: false,
        pull: false,
        tls: false,
        pin: false,
        at: "127.0.0.1".into(),
        child_in: String::new(),
    };
    let mut words = env::args().skip(1);
    let mut place = 0;
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap();
        match word.as_str() {
            "--buffers" => options.buffers = value().parse::<usize>().unwrap() << 10,
            "--write" => options.write = value().parse::<usize>().unwrap() << 10,
            "--spin" => options.spin = true,
            "--pull" => options.pull = true,
            "--tls" => options.tls = true,
            "--pin" => options.pin = true,
            "--child-in" => options.child_in = value(),
            "--at" => options.at = value(),
            number if place == 0 => (options.bytes, place) = (number.parse::<usize>().unwrap() << 20, 1),
            number => options.repetitions = number.parse().unwrap(),
        }
    }
    options
}

fn exchange(link: &mut dyn Link, out: &[u8], into: &mut [u8], options: &Options) {
    let (mut sent, mut received, mut sum) = (0, 0, 0u64);
    let write = if options.write == 0 { usize::MAX } else { options.write };
    while sent < out.len() || received < into.len() {
        let before = sent + received;
        if sent < out.len() {
            let end = out.len().min(sent.saturating_add(write));
            sent += link.push(&[IoSlice::new(&out[sent..end])]).unwrap();
        }
        if received < into.len() {
            received += if options.pull {
                link.pull(into.len() - received, &mut |piece| sum += u64::from(piece[0])).unwrap()
            } else {
                link.fill(&mut into[received..]).unwrap()
            };
        }
        if before == sent + received && !options.spin {
            let Bell::Descriptor(fd) = link.bell() else { continue };
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::OUT, sent < out.len());
            wanted.set(PollFlags::IN, received < into.len());
            poll(&mut [PollFd::from_borrowed_fd(fd, wanted)], None).unwrap();
        }
    }
}

fn make(socket: TcpStream, options: &Options) -> Box<dyn Link> {
    if options.buffers > 0 {
        let socket = socket2::SockRef::from(&socket);
        socket.set_send_buffer_size(options.buffers).unwrap();
        socket.set_recv_buffer_size(options.buffers).unwrap();
    }
    Box::new(TcpLink::new(socket, Duration::from_secs(60)).unwrap())
}

/// Both ends of an encrypted link need the same secret, which the child finds in its environment.
fn tls_link(caller: Option<SocketAddr>, options: &Options) -> (Box<dyn Link>, Option<std::process::Child>) {
    let secret =
        env::var("LINK_SPEED_SECRET").map_or_else(|_| Secret::random().unwrap(), |s| Secret::from_hex(&s).unwrap());
    let mut settings = Settings::new(secret.clone());
    settings.tls = true;
    let access = Access::from_settings(&settings).unwrap();
    let claim = Claim { purpose: Purpose::Link, rank: 1, group: [0; 16], to: 0 };
    let me = Acceptor { purpose: Purpose::Link, group: claim.group, rank: claim.to };
    if let Some(address) = caller {
        let stream = access.call(address, &claim, Instant::now() + Duration::from_secs(10)).unwrap();
        return (link_over(stream, &settings).unwrap(), None);
    }
    let (listener, address) = Gate::bind(options.at.parse().unwrap()).unwrap();
    let (sender, arrivals) = std::sync::mpsc::channel();
    let _gate = Gate::open(listener, access, me, move |stream, _| sender.send(stream).unwrap()).unwrap();
    let child = child(address, &secret, options);
    let stream = arrivals.recv().unwrap();
    (link_over(stream, &settings).unwrap(), Some(child))
}

fn child(address: SocketAddr, secret: &Secret, options: &Options) -> std::process::Child {
    let program = env::current_exe().unwrap();
    let mut command = if options.child_in.is_empty() {
        Command::new(program)
    } else {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &options.child_in]).arg(program);
        command
    };
    command.args(env::args().skip(1)).env("LINK_SPEED_PEER", address.to_string());
    command.env("LINK_SPEED_SECRET", secret.to_hex()).spawn().unwrap()
}

fn main() {
    let options = options();
    let peer: Option<SocketAddr> = env::var("LINK_SPEED_PEER").ok().map(|text| text.parse().unwrap());
    if options.pin {
        let mut cores = CpuSet::new();
        cores.set(usize::from(peer.is_some()));
        sched_setaffinity(None, &cores).unwrap();
    }
    let (mut link, child) = match (options.tls, peer) {
        (true, peer) => tls_link(peer, &options),
        (false, Some(address)) => (make(TcpStream::connect(address).unwrap(), &options), None),
        (false, None) => {
            let listener = TcpListener::bind((options.at.as_str(), 0)).unwrap();
            let child = child(listener.local_addr().unwrap(), &Secret::random().unwrap(), &options);
            (make(listener.accept().unwrap().0, &options), Some(child))
        }
    };
    let out = vec![1; options.bytes];
    let mut into = vec![0; options.bytes];
    let mut times = Vec::new();
    let mut cpu = Vec::new();
    for _ in 0..options.repetitions + 2 {
        exchange(
            &mut *link,
            &[0],
            &mut [0],
            &Options { spin: false, pull: false, at: String::new(), child_in: String::new(), ..options },
        );
        let (started, used) = (Instant::now(), cpu_time());
        exchange(&mut *link, &out, &mut into, &options);
        times.push(started.elapsed());
        cpu.push(cpu_time() - used);
    }
    if let Some(mut child) = child {
        let mut times = times.split_off(2);
        let mut cpu = cpu.split_off(2);
        times.sort();
        cpu.sort();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let (median, busy) = (times[times.len() / 2], cpu[cpu.len() / 2]);
        println!(
            "{:.2} ms median, {:.2} ms best, {:.2} GB/s each way; {:.2} ms of a core",
            ms(median),
            ms(times[0]),
            options.bytes as f64 / median.as_secs_f64() / 1e9,
            ms(busy)
        );
        child.wait().unwrap();
    }
}

/// What this process used of its core so far; unlike the time that passed, it hardly depends on what else runs.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
