//! What the launcher relies on when it starts an agent over `ssh` or `srun`: clean pipes, and a standard input that ends
//! whatever breaks. Real OpenSSH servers and a real Slurm.

#![allow(clippy::unwrap_used, reason = "an assertion that fails has to panic")]

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    thread,
};

use sirtaki_tests::{container::Container, hosts::Hosts, slurm::Slurm, sshd::Sshd, wait::until};

/// What a command printed; it has to succeed.
fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// `cat` returns every byte that it is given, in both directions at once, and ends when its input does.
fn is_a_clean_pipe(cat: &mut Command) {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, sent) = (child.stdin.take().unwrap(), bytes.clone());
    let writer = thread::spawn(move || stdin.write_all(&sent).unwrap());
    let mut received = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    writer.join().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(received == bytes, "{} bytes came back of {}", received.len(), bytes.len());
}

/// Starts a command whose `cat -u` on a host runs as long as its standard input is open.
fn waits(mut command: Command, host: &Container) -> Child {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    host.wait_for("cat -u", true);
    child
}

/// Kills a client, and waits until what it had started on a host is gone.
fn kill(mut client: Child, host: &Container) {
    client.kill().unwrap();
    client.wait().unwrap();
    host.wait_for("cat -u", false);
}

/// Exit code of a child that is expected to end by itself.
fn code(mut child: Child) -> Option<i32> {
    let mut status = None;
    until("the end of the client", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code()
}

fn ssh(sshd: &Sshd, arguments: &[&str]) -> Command {
    let mut command = Command::new("ssh");
    command.args(sshd.options()).arg("-T").args(arguments);
    command
}

#[test]
fn ssh_runs_commands_on_loopback() {
    let sshd = Sshd::loopback(2);
    assert_eq!(output(&mut ssh(&sshd, &["h0", "hostname"])), "h0\n");
    assert_eq!(output(&mut ssh(&sshd, &["h1", "hostname"])), "h1\n");
    assert_eq!(ssh(&sshd, &["h0", "exit 7"]).status().unwrap().code(), Some(7));
    is_a_clean_pipe(&mut ssh(&sshd, &["h0", "cat"]));
}

#[test]
fn whatever_breaks_an_ssh_connection_ends_the_input_of_what_it_started() {
    let sshd = Sshd::loopback(1);
    kill(waits(ssh(&sshd, &["h0", "cat -u"]), sshd.host(0)), sshd.host(0));

    let client = waits(ssh(&sshd, &["h0", "cat -u"]), sshd.host(0));
    sshd.break_connections(0);
    sshd.host(0).wait_for("cat -u", false);
    assert_eq!(code(client), Some(255));
    assert_eq!(output(&mut ssh(&sshd, &["h0", "hostname"])), "h0\n", "the server itself goes on");
}

#[test]
fn ssh_reaches_hosts_and_notices_a_cut_cable_if_it_asks() {
    let hosts = Hosts::new("ssh", 3);
    let sshd = Sshd::on(&hosts);
    let ssh = |arguments: &[&str]| {
        let mut command = hosts.command(2, "ssh");
        command.args(sshd.options()).args(["-T", "-o", "ServerAliveInterval=1"]).args(arguments);
        command
    };
    assert_eq!(output(&mut ssh(&["h0", "hostname"])), "h0\n");
    assert_eq!(output(&mut ssh(&["10.77.1.2", "hostname"])), "h1\n");
    let (lost, mut kept) = (waits(ssh(&["h0", "cat -u"]), sshd.host(0)), waits(ssh(&["h1", "cat -u"]), sshd.host(1)));
    hosts.cut(0);
    assert_eq!(code(lost), Some(255));
    assert!(!sshd.host(0).find("cat -u").is_empty(), "the other side of the cable has not heard of it");
    drop(kept.stdin.take());
    assert_eq!(code(kept), Some(0));
}

#[test]
fn srun_runs_tasks_on_nodes() {
    let slurm = Slurm::start("tasks", 3);
    let script = "echo $SLURM_PROCID $SLURM_NODEID $(hostname)";
    let text = output(slurm.command("srun").args(["-N2", "--ntasks-per-node=2", "sh", "-c", script]));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 0 n0", "1 0 n0", "2 1 n1", "3 1 n1"]);
    assert_eq!(slurm.command("srun").args(["-n1", "sh", "-c", "exit 7"]).status().unwrap().code(), Some(7));
}

#[test]
fn steps_of_an_allocation_are_clean_pipes_whose_input_ends() {
    let slurm = Slurm::start("pipes", 2);
    let salloc = |program: &str| {
        let mut command = slurm.command("salloc");
        command.args(["-Q", "-N2", "--exclusive", "srun", "-N1", "-n1", "-w", "n1", "--overlap", "sh", "-c", program]);
        command
    };
    is_a_clean_pipe(&mut salloc("exec cat"));

    let mut client = waits(salloc("exec cat -u"), slurm.node(1));
    drop(client.stdin.take());
    assert_eq!(code(client), Some(0));
    slurm.node(1).wait_for("cat -u", false);

    let client = waits(salloc("exec cat -u"), slurm.node(1));
    slurm.node(1).kill("slurmstepd");
    slurm.node(1).wait_for("cat -u", false);
    kill(client, slurm.node(1));
}

#[test]
fn a_step_ends_with_its_srun() {
    let slurm = Slurm::start("ends", 1);
    let mut srun = slurm.command("srun");
    srun.args(["-N1", "-n1", "sh", "-c", "exec cat -u"]);
    kill(waits(srun, slurm.node(0)), slurm.node(0));
}
