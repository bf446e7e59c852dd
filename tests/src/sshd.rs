//! Real OpenSSH servers, one per host: in the network namespaces of [`Hosts`], or on loopback with a port each.
//!
//! Nothing of the machine's own ssh is used or changed: keys, server settings and a client configuration are made for
//! each set of servers, and `ssh -F` points the client to it, as it does for any user with several configurations.

use std::{
    fmt::Write,
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    path::Path,
    process::Command,
};

use sirtaki_launch::port;
use tempfile::TempDir;

use crate::{container::Container, hosts::Hosts, wait::until};

/// Servers that vanish on drop, with all sessions and what these started.
pub struct Sshd {
    servers: Vec<Container>,
    folder: TempDir,
    _reserved: Vec<OwnedFd>,
}

/// Where a server listens.
struct Place {
    network: Option<String>,
    address: SocketAddr,
}

impl Sshd {
    /// A server on port 22 of each host. Clients have to run on one of the hosts; see [`Hosts::command`].
    pub fn on(hosts: &Hosts) -> Sshd {
        let place = |host| Place { network: Some(hosts.name(host)), address: (hosts.address(host), 22).into() };
        Sshd::start((0..hosts.count()).map(place).collect(), Vec::new())
    }

    /// `count` servers on 127.0.0.1, each with its own port.
    pub fn loopback(count: usize) -> Sshd {
        let (places, reserved) = (0..count)
            .map(|_| {
                let (socket, port) = port::keep(Ipv4Addr::LOCALHOST.into()).expect("a free port");
                (Place { network: None, address: (Ipv4Addr::LOCALHOST, port).into() }, socket)
            })
            .unzip();
        Sshd::start(places, reserved)
    }

    fn start(places: Vec<Place>, reserved: Vec<OwnedFd>) -> Sshd {
        let folder = tempfile::tempdir().expect("a folder for keys and logs");
        for key in ["server", "client"] {
            let file = folder.path().join(key);
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).status();
            assert!(made.expect("openssh-client is installed").success(), "ssh-keygen failed");
        }
        fs::write(folder.path().join("config"), client_config(folder.path(), &places)).expect("a new file");
        let servers = places.iter().enumerate().map(|(host, place)| serve(folder.path(), host, place)).collect();
        for host in 0..places.len() {
            let log = folder.path().join(format!("h{host}.log"));
            let listens = || fs::read_to_string(&log).is_ok_and(|text| text.contains("Server listening"));
            until(&format!("an OpenSSH server that writes {}", log.display()), listens);
        }
        Sshd { servers, folder, _reserved: reserved }
    }

    /// The options that make the client `ssh` know the hosts `h0`, `h1`, ... (and their addresses, in namespaces).
    pub fn options(&self) -> [String; 2] {
        ["-F".into(), self.folder.path().join("config").display().to_string()]
    }

    /// What runs on a host.
    pub fn host(&self, host: usize) -> &Container {
        &self.servers[host]
    }

    /// Kills the server's side of all connections to a host, but not what was started over them.
    pub fn break_connections(&self, host: usize) {
        self.servers[host].kill("sshd: root@");
    }
}

fn serve(folder: &Path, host: usize, place: &Place) -> Container {
    let text = format!(
        "ListenAddress {address}\n\
         HostKey {folder}/server\n\
         AuthorizedKeysFile {folder}/client.pub\n\
         PidFile none\n\
         UsePAM no\n\
         StrictModes no\n\
         PermitRootLogin yes\n\
         PasswordAuthentication no\n\
         MaxStartups 1000\n\
         MaxSessions 1000\n",
        address = place.address,
        folder = folder.display(),
    );
    let name = format!("h{host}");
    let file = folder.join(format!("{name}.config"));
    fs::write(&file, text).expect("a new file");
    let log = folder.join(format!("{name}.log"));
    // sshd has to be called by an absolute path, and needs the folder into which it confines itself.
    let script = format!("mkdir /run/sshd; $(command -v sshd) -D -e -f {} 2>{}", file.display(), log.display());
    Container::start(&name, place.network.as_deref(), &script)
}

fn client_config(folder: &Path, places: &[Place]) -> String {
    let mut text = String::new();
    for (host, place) in places.iter().enumerate() {
        let names = match &place.network {
            Some(_) => format!("h{host} {}", place.address.ip()),
            None => format!("h{host}"),
        };
        let (address, port) = (place.address.ip(), place.address.port());
        write!(text, "Host {names}\n  HostName {address}\n  Port {port}\n\n").expect("strings grow");
    }
    write!(
        text,
        "Host *\n\
         \x20 User root\n\
         \x20 IdentityFile {folder}/client\n\
         \x20 IdentitiesOnly yes\n\
         \x20 UserKnownHostsFile {folder}/known_hosts\n\
         \x20 GlobalKnownHostsFile none\n\
         \x20 StrictHostKeyChecking accept-new\n\
         \x20 ControlMaster no\n\
         \x20 LogLevel error\n",
        folder = folder.display(),
    )
    .expect("strings grow");
    text
}
