//! Hosts made of network namespaces: each has an address in two networks, which meet in a namespace with two bridges.

use std::{
    ffi::OsStr,
    fs,
    net::Ipv4Addr,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};

/// The prefix of all namespaces' names; the process that made them and the test follow.
const MARK: &str = "sirtaki-test-";

/// Namespaces that vanish on drop, with all processes in them.
pub struct Hosts {
    prefix: String,
    count: usize,
}

fn ip(arguments: &str) {
    run("ip", arguments);
}

fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split_whitespace()).output().expect("iproute2 is installed");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Hosts {
    /// `count` hosts; `prefix` distinguishes those of one test from those of another. Interface `fast` has the
    /// addresses 10.77.1.x, interface `slow` 10.77.2.x.
    pub fn new(prefix: &str, count: usize) -> Hosts {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        sweep();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts { prefix: format!("{MARK}{}-{prefix}{number}-", std::process::id()), count };
        let switch = hosts.switch();
        ip(&format!("netns add {switch}"));
        for network in ["fast", "slow"] {
            ip(&format!("-n {switch} link add {network} type bridge"));
            ip(&format!("-n {switch} link set {network} up"));
        }
        for host in 0..count {
            let name = hosts.name(host);
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
            for (number, network) in [(1, "fast"), (2, "slow")] {
                let port = format!("{network}{host}");
                ip(&format!("-n {name} link add {network} type veth peer name {port} netns {switch}"));
                ip(&format!("-n {switch} link set {port} master {network} up"));
                ip(&format!("-n {name} addr add 10.77.{number}.{}/24 dev {network}", host + 1));
                ip(&format!("-n {name} link set {network} up"));
            }
        }
        hosts
    }

    fn switch(&self) -> String {
        format!("{}sw", self.prefix)
    }

    /// The namespace of a host.
    pub fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.prefix)
    }

    /// The address of a host in the network `fast`.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 1, u8::try_from(host + 1).expect("a network of this size"))
    }

    /// How many hosts there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A program that will run on a host.
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(host)]).arg(program);
        command
    }

    /// Limits what every host sends into `network` to this many megabits per second.
    pub fn throttle(&self, network: &str, megabits: u32) {
        (0..self.count).for_each(|host| self.throttle_host(host, network, megabits));
    }

    /// Limits what one host sends.
    pub fn throttle_host(&self, host: usize, network: &str, megabits: u32) {
        let rule = format!("qdisc add dev {network} root tbf rate {megabits}mbit burst 64kb latency 50ms");
        run("tc", &format!("-n {} {rule}", self.name(host)));
    }

    /// Pulls a host's cables.
    pub fn cut(&self, host: usize) {
        for network in ["fast", "slow"] {
            ip(&format!("-n {} link set {network}{host} down", self.switch()));
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let names = (0..self.count).map(|host| self.name(host)).chain([self.switch()]);
        names.for_each(|name| delete(&name));
    }
}

/// Kills what still runs in a namespace, such as a client waiting for a server that is gone, and removes the namespace.
fn delete(name: &str) {
    let output = Command::new("ip").args(["netns", "pids", name]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    for pid in text.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let _ = Command::new("ip").args(["netns", "delete", name]).output();
}

/// Removes what killed tests have left behind.
fn sweep() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(MARK).and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            delete(&name);
        }
    }
}
