//! Hosts made of network namespaces: each has an address in two networks, which meet in a namespace with two bridges.

use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

/// Namespaces that vanish on drop.
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
    /// `count` hosts whose names begin with `prefix`. Interface `fast` has the addresses
    /// 10.77.1.x, interface `slow` 10.77.2.x.
    pub fn new(prefix: &str, count: usize) -> Hosts {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let hosts = Hosts { prefix: format!("{prefix}{}n{number}", std::process::id()), count };
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

    /// Limits what every host sends into `network` to this many megabits per second.
    pub fn throttle(&self, network: &str, megabits: u32) {
        for host in 0..self.count {
            let rule = format!("qdisc add dev {network} root tbf rate {megabits}mbit burst 64kb latency 50ms");
            run("tc", &format!("-n {} {rule}", self.name(host)));
        }
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
        for name in names {
            let _ = Command::new("ip").args(["netns", "delete", &name]).output();
        }
    }
}
