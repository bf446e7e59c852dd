//! Cables with a rate and a latency between hosts made of network namespaces.
//!
//! The kernel can do this (netem), but not every kernel was built with it. So every host gets a TUN device, and threads
//! of this process carry its packets to the others: each packet takes its time on the sender's cable, then the latency.
//! Packets are never lost; a sender that is too fast fills the memory in between. The kernel's token bucket would do
//! for the rate alone, but where processors are busy it delivers less than it was told to.

use std::{
    fs::File,
    io::{self, Read, Write},
    num::NonZero,
    os::fd::AsFd,
    process::Command,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    ioctl::{Setter, ioctl},
    thread::set_current_timer_slack,
};

use crate::hosts::Hosts;

/// The interface on every host; their addresses are 10.78.0.x.
pub const INTERFACE: &str = "cable";
/// `TUNSETIFF`.
const ATTACH: u32 = 0x4004_54ca;
/// `IFF_TUN` without a header before the packets.
const FLAGS: u16 = 0x1001;
/// Bytes of a packet; large ones keep the threads' work small.
const PACKET: usize = 9000;
/// How much longer a packet's data would be in packets of 1500 bytes, with the headers of Ethernet, IP and TCP.
const WIRE: f64 = 1538.0 / 1448.0;

/// A packet and when it arrives.
type Flight = (Instant, Vec<u8>);

/// Cables between all of these hosts, until dropped.
pub struct Cables {
    hosts: Vec<String>,
    carriers: Vec<JoinHandle<()>>,
}

impl Cables {
    /// Connects `hosts` with `megabits` per second out of each and `latency` between any two.
    pub fn new(hosts: &Hosts, megabits: u32, latency: Duration) -> io::Result<Cables> {
        let names: Vec<String> = (0..hosts.count()).map(|host| hosts.name(host)).collect();
        let mut ends = Vec::new();
        for (number, name) in (1..).zip(&names) {
            ends.push(Arc::new(device(number, name)?));
        }
        let mut carriers = Vec::new();
        for (from, end) in ends.iter().enumerate() {
            let mut ways: Vec<Option<Sender<Flight>>> = Vec::new();
            for (to, other) in ends.iter().enumerate() {
                if from == to {
                    ways.push(None);
                    continue;
                }
                let (sender, receiver) = channel();
                ways.push(Some(sender));
                let other = other.clone();
                carriers.push(thread::spawn(move || deliver(&receiver, &other)));
            }
            let end = end.clone();
            carriers.push(thread::spawn(move || pick_up(&end, &ways, f64::from(megabits) / 8e-6, latency)));
        }
        Ok(Cables { hosts: names, carriers })
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = Command::new("ip").args(["-n", host, "link", "delete", INTERFACE]).output();
        }
        // When a device is gone, reading from it ends, and so does everything behind it.
        self.carriers.drain(..).for_each(|carrier| drop(carrier.join()));
    }
}

/// A device in the namespace `host`, with an address, and our end of it.
fn device(number: usize, host: &str) -> io::Result<File> {
    let end = File::options().read(true).write(true).open("/dev/net/tun")?;
    let name = format!("sk{}-{number}", std::process::id());
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&FLAGS.to_ne_bytes());
    // SAFETY: this request reads a `struct ifreq`, which has 40 bytes: 16 of the name, then the flags.
    unsafe { ioctl(end.as_fd(), Setter::<ATTACH, [u8; 40]>::new(request))? };
    for command in [
        format!("link set {name} netns {host}"),
        format!("-n {host} link set {name} name {INTERFACE} mtu {PACKET}"),
        format!("-n {host} addr add 10.78.0.{number}/24 dev {INTERFACE}"),
        format!("-n {host} link set {INTERFACE} up"),
    ] {
        let output = Command::new("ip").args(command.split_whitespace()).output()?;
        if !output.status.success() {
            return Err(io::Error::other(format!("ip {command}: {}", String::from_utf8_lossy(&output.stderr))));
        }
    }
    Ok(end)
}

/// Reads what a host sends and passes it on.
fn pick_up(end: &File, ways: &[Option<Sender<Flight>>], rate: f64, latency: Duration) {
    let mut packet = vec![0; 1 << 16];
    let mut free = Instant::now();
    while let Ok(length) = { end }.read(&mut packet) {
        // The last number of the address in an IPv4 packet says which host it is for.
        if length < 20 || packet[0] >> 4 != 4 {
            continue;
        }
        free = free.max(Instant::now()) + Duration::from_secs_f64(length as f64 * WIRE / rate);
        let way = usize::from(packet[19]).checked_sub(1).and_then(|host| ways.get(host));
        if let Some(Some(way)) = way
            && way.send((free + latency, packet[..length].to_vec())).is_err()
        {
            return;
        }
    }
}

/// Hands packets over when they have arrived.
fn deliver(flights: &Receiver<Flight>, end: &File) {
    // Sleep as exactly as the kernel can.
    let _ = set_current_timer_slack(NonZero::new(1));
    for (arrival, packet) in flights {
        thread::sleep(arrival.saturating_duration_since(Instant::now()));
        let _ = { end }.write_all(&packet);
    }
}
