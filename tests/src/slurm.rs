//! A real Slurm cluster on this machine: a front node with munged and slurmctld, and nodes with a slurmd each.
//!
//! Every node is a [`Container`] in its own network namespace, so nodes have host names, addresses and processes of
//! their own, ports are never taken, and cables can be cut. Commands run on the front node, as on a login node.

use std::{fs, path::Path, process::Command};

use sirtaki_comm::secure::Secret;
use tempfile::TempDir;

use crate::{container::Container, hosts::Hosts, wait::until};

/// How many processors a node claims to have.
pub const NODE_CPUS: usize = 8;

/// A cluster that vanishes on drop, with all its jobs.
pub struct Slurm {
    nodes: Vec<Container>,
    _front: Container,
    hosts: Hosts,
    folder: TempDir,
}

impl Slurm {
    /// A cluster of `count` idle nodes named `n0`, `n1`, ...; `prefix` as in [`Hosts::new`].
    pub fn start(prefix: &str, count: usize) -> Slurm {
        let hosts = Hosts::new(prefix, count + 1);
        let folder = tempfile::tempdir().expect("a folder for settings, state and logs");
        let path = folder.path();
        configure(path, &hosts, count);
        // Slurm 22 asks for cgroups even if its settings use none, unless it is told the version.
        fs::write(path.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\n").expect("a new file");
        fs::write(path.join("munge.key"), Secret::random().expect("random bytes").to_hex()).expect("a new file");
        let here = path.display();
        let front = format!(
            "cd {here} && chmod 400 munge.key || exit 1
            munged --foreground --force --key-file munge.key --socket {here}/munge.socket --pid-file {here}/munge.pid \
                --log-file {here}/munge.log --seed-file {here}/munge.seed 2>munged.log &
            until [ -S munge.socket ]; do sleep 0.02; done
            SLURM_CONF={here}/slurm.conf slurmctld -D 2>slurmctld.log"
        );
        let front = Container::start("front", Some(&hosts.name(count)), &front);
        until("munged", || path.join("munge.socket").exists());
        let node = |number: usize| {
            let script = format!("SLURM_CONF={here}/slurm.conf slurmd -D -N n{number} 2>{here}/n{number}.log");
            Container::start(&format!("n{number}"), Some(&hosts.name(number)), &script)
        };
        let nodes = (0..count).map(node).collect();
        let slurm = Slurm { nodes, _front: front, hosts, folder };
        let idle = format!("idle {count}");
        until("all Slurm nodes idle", || slurm.says("sinfo", &["-h", "-o", "%T %D"]).trim() == idle);
        slurm
    }

    /// A command like `srun` or `sbatch`, or any program, on the front node.
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.hosts.command(self.nodes.len(), program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SLURM_")) {
            command.env_remove(name);
        }
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        command
    }

    /// What a command on the front node prints.
    pub fn says(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().expect("slurm-client is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What runs on a node.
    pub fn node(&self, number: usize) -> &Container {
        &self.nodes[number]
    }

    /// The network: the nodes' hosts and then that of the front node.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }
}

fn configure(folder: &Path, hosts: &Hosts, count: usize) {
    let mut text = format!(
        "ClusterName=test\n\
         SlurmctldHost=front({address})\n\
         SlurmUser=root\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={folder}/munge.socket\n\
         StateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/%n\n\
         SlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/%n.pid\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\n\
         ReturnToService=2\n\
         MpiDefault=none\n\
         KillWait=5\n",
        address = hosts.address(count),
        folder = folder.display(),
    );
    for number in 0..count {
        let address = hosts.address(number);
        text += &format!("NodeName=n{number} NodeAddr={address} CPUs={NODE_CPUS} RealMemory=1000\n");
        fs::create_dir(folder.join(format!("n{number}"))).expect("a new folder");
    }
    text += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
    fs::create_dir(folder.join("state")).expect("a new folder");
    fs::write(folder.join("slurm.conf"), text).expect("a new file");
}
