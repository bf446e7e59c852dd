//! An isolated environment for real daemons: own processes, host name, `/run` and, if wanted, network namespace.
//!
//! A PID namespace, because nothing escapes from it: daemons fork, double-fork and start sessions, and still the kernel
//! kills them all when the first process ends. That one ends when its standard input does: on drop, when a test panics,
//! and also when the test itself is killed. Process groups and lists of PIDs cannot guarantee this.

use std::{
    fs,
    io::Read,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until;

/// What the first process does around the script, which it runs in the background.
const FIRST: &str = "PATH=$PATH:/usr/sbin:/sbin
    hostname \"$1\" && mount -t tmpfs run /run && exec 3<&0 && echo ready || exit 1
    exec >&2
    (eval \"$2\") &
    (read -r _ <&3) &
    wait $!";

/// Processes that vanish on drop.
pub struct Container {
    /// `unshare`, which ends when all processes have ended.
    outside: Child,
    /// What `/proc/PID/ns/pid` links to for the processes inside.
    processes: PathBuf,
}

impl Container {
    /// Runs a shell script on a host of this name, in a network namespace or in ours. The script is run once; its
    /// daemons stay when it ends.
    pub fn start(name: &str, network: Option<&str>, script: &str) -> Container {
        let mut command = match network {
            Some(network) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", network, "unshare"]);
                command
            }
            None => Command::new("unshare"),
        };
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--propagation", "private"]);
        command.args(["sh", "-c", FIRST, "container", name, script]);
        let outside = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("util-linux is installed");
        let mut container = Container { outside, processes: PathBuf::new() };
        let mut line = [0; 6];
        let stdout = container.outside.stdout.as_mut().expect("standard output is piped");
        stdout.read_exact(&mut line).unwrap_or_else(|_| panic!("cannot make a container for {name}; are we root?"));
        let link = format!("/proc/{}/ns/pid_for_children", container.outside.id());
        container.processes = fs::read_link(link).expect("unshare is running");
        container
    }

    /// The living processes inside and their command lines, except those that belong to the container itself.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let entries = fs::read_dir("/proc").expect("/proc is mounted");
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let inside = |pid: i32| {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            let namespace = fs::read_link(folder.join("ns/pid")).ok()?;
            let line = fs::read(folder.join("cmdline")).ok().filter(|line| !line.is_empty())?;
            let text = String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned();
            let ours = text.contains(FIRST) || namespace != self.processes;
            (!ours).then_some((Pid::from_raw(pid)?, text))
        };
        pids.filter_map(inside).collect()
    }

    /// The processes inside whose command line begins like this.
    pub fn find(&self, beginning: &str) -> Vec<Pid> {
        self.processes().into_iter().filter(|(_, line)| line.starts_with(beginning)).map(|(pid, _)| pid).collect()
    }

    /// Waits until a process whose command line begins like this is there, or no longer there.
    pub fn wait_for(&self, beginning: &str, there: bool) {
        until(&format!("`{beginning}` running: {there}"), || self.find(beginning).is_empty() != there);
    }

    /// Kills the processes inside whose command line begins like this.
    pub fn kill(&self, beginning: &str) {
        for pid in self.find(beginning) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.outside.stdin.take());
        let _ = self.outside.wait();
    }
}
