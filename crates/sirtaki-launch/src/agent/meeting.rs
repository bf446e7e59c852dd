//! How the hosts of a job find each other before its ranks do: the store, the network, and whether the program is there.

use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::Instant,
};

use sirtaki_comm::{
    Settings,
    rendezvous::{Store, StoreExchange, TcpStore, TcpStoreServer, candidates, introduce, measure_network, select},
    secure::Secret,
};
use sirtaki_engine::job::{LISTENED, exit_key};

use super::Result;
use crate::{
    Advice,
    advice::Explain,
    port,
    programs::is_executable,
    protocol::{Check, Checked, Program},
};

/// The store of the job, and a port kept free for the meeting of other tools, such as PyTorch's.
pub(super) struct StoreHost {
    server: TcpStoreServer,
    pub(super) master_port: u16,
    _kept: OwnedFd,
}

impl StoreHost {
    /// Serves the store: only on loopback unless `open`; otherwise also on the network of this interface, or on all
    /// networks until one is chosen.
    pub(super) fn serve(secret: &Secret, tls: bool, open: bool, interface: Option<String>) -> Result<Self> {
        let mut addresses: Vec<IpAddr> = Vec::new();
        if open {
            let all = candidates()?;
            let wanted = match interface {
                Some(wish) => vec![select(&all, &wish)?],
                None => all,
            };
            addresses.extend(wanted.into_iter().map(|candidate| candidate.address));
        }
        // Several hosts of a job may be one machine.
        addresses.push(Ipv4Addr::LOCALHOST.into());
        let server = TcpStore::serve_on(&addresses, secret, tls || open)?;
        let bind = if open { everywhere() } else { Ipv4Addr::LOCALHOST.into() };
        let (kept, master_port) = port::keep(bind).explain("cannot reserve a port")?;
        Ok(Self { server, master_port, _kept: kept })
    }

    /// Where it may be reached, best first.
    pub(super) fn stores(&self) -> Vec<SocketAddr> {
        self.server.addresses()
    }

    /// The network is chosen: the store listens nowhere else from now on.
    pub(super) fn keep(&mut self, address: IpAddr) {
        self.server.keep(address);
    }

    /// Tells all ranks how a rank ended.
    pub(super) fn note(&self, rank: usize, how: &str) {
        self.publish(&exit_key(rank), how.as_bytes());
    }

    /// Sets a key.
    pub(super) fn publish(&self, key: &str, value: &[u8]) {
        let _ = self.server.local().set(key, value);
    }

    /// Forgets keys.
    pub(super) fn forget(&self, prefix: &str) {
        self.server.local().forget(prefix);
    }

    /// Passes on what processes of an elastic job say to the launcher.
    pub(super) fn listen(&self, heard: impl Fn(&[u8]) + Send + Sync + 'static) {
        self.server.local().listen(LISTENED, heard);
    }
}

/// All addresses of this host, in both families where there are two.
fn everywhere() -> IpAddr {
    let both: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    match TcpListener::bind((both, 0)) {
        Ok(_) => both,
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Checks whether the job can run here, together with the agents of the other hosts. The ports in the answer stay free
/// for as long as the sockets are kept.
pub(super) fn check(check: &Check) -> Result<(Checked, Vec<OwnedFd>)> {
    find_program(&check.program)?;
    let (store, address) = reach(check)?;
    let network = network(check, store)?;
    let own = network.as_ref().map_or(Ipv4Addr::LOCALHOST.into(), |(address, ..)| *address);
    let kept: std::io::Result<Vec<_>> = (0..check.ports).map(|_| port::keep(own)).collect();
    let (sockets, ports) = kept.explain("cannot reserve ports for the ranks")?.into_iter().unzip();
    Ok((Checked { store: address, network, ports }, sockets))
}

/// This host's address for the others, its interface, and why; `None` where there are no others.
fn network(check: &Check, store: Arc<dyn Store>) -> Result<Option<(IpAddr, String, String)>> {
    if check.hosts == 1 {
        return Ok(None);
    }
    let mut settings = Settings::new(check.secret.clone());
    (settings.tls, settings.interface) = (check.tls, check.interface.clone());
    let mut exchange = StoreExchange::new(store, "hosts", check.host, check.hosts, check.patience);
    let group = introduce(check.host, &mut exchange)?;
    let network = measure_network(&group, &mut exchange, &settings)?;
    Ok(Some((network.address, network.interface, network.report)))
}

/// The first address at which the store answers.
fn reach(check: &Check) -> Result<(Arc<dyn Store>, SocketAddr)> {
    let deadline = Instant::now() + check.patience;
    let (sender, answers) = mpsc::channel();
    for &address in &check.stores {
        let (sender, secret, tls) = (sender.clone(), check.secret.clone(), check.tls || check.hosts > 1);
        thread::spawn(move || {
            let answer = TcpStore::connect(address, &secret, tls, deadline);
            let _ = sender.send((address, answer));
        });
    }
    drop(sender);
    let mut problems = Vec::new();
    for (address, answer) in answers {
        match answer {
            Ok(store) => return Ok((Arc::new(store), address)),
            Err(error) => problems.push(error.to_string()),
        }
    }
    let message = format!("cannot reach the first host of the job: {}", problems.join("; "));
    let hint = "hosts must reach each other directly; check for a firewall, or choose a network with --interface";
    Err(Advice::new(message, hint))
}

/// The program as the system will find it.
fn find_program(program: &Program) -> Result<PathBuf> {
    let folder = Path::new(&program.folder);
    if !folder.is_dir() {
        let hint = "choose a folder that every host has with --workdir";
        return Err(Advice::new(format!("there is no folder {}", folder.display()), hint));
    }
    let name = program.name();
    if name.contains('/') {
        let path = folder.join(name);
        return if is_executable(&path) { Ok(path) } else { Err(missing(name, &path)) };
    }
    let set = program.environment.iter().rev().find(|(variable, _)| variable == "PATH").map(|(_, value)| value.into());
    let path = set.or_else(|| env::var_os("PATH")).unwrap_or_default();
    let found = env::split_paths(&path).map(|place| folder.join(place).join(name)).find(|path| is_executable(path));
    found.ok_or_else(|| missing(name, &folder.join(name)))
}

/// What is wrong with a program that cannot be run; `path` is where a file of its name would be.
fn missing(name: &str, path: &Path) -> Advice {
    let (message, hint) = match fs::metadata(path) {
        Ok(file) if file.is_dir() => (format!("{name} is a folder, not a program"), "name a program".to_owned()),
        Ok(_) if path.extension().is_some_and(|extension| extension == "py") => {
            (format!("{name} is not executable"), format!("run it with Python: `sirtaki run … -- python {name}`"))
        }
        Ok(_) if name.contains('/') => {
            (format!("{name} is not executable"), format!("make it so with `chmod +x {name}`"))
        }
        Ok(_) => (format!("there is no program `{name}`"), format!("for the file in the folder write ./{name}")),
        Err(_) => (format!("there is no program `{name}`"), "check the spelling, or give its path".to_owned()),
    };
    Advice::new(message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, folder: &Path) -> Program {
        Program {
            command: vec![name.into()],
            folder: folder.display().to_string(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        }
    }

    #[test]
    fn the_store_listens_where_it_has_to_and_nowhere_else() {
        let secret = Secret::random().unwrap();
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let alone = StoreHost::serve(&secret, false, false, None).unwrap();
        assert!(alone.stores().iter().all(|store| store.ip() == loopback));
        let mut open = StoreHost::serve(&secret, false, true, None).unwrap();
        assert!(open.stores().iter().all(|store| !store.ip().is_unspecified()), "{:?}", open.stores());
        open.keep(loopback);
        assert!(open.stores().iter().all(|store| store.ip() == loopback), "{:?}", open.stores());
        let error = StoreHost::serve(&secret, false, true, Some("none7".into())).err().unwrap();
        assert!(error.to_string().contains("none7"), "{error}");
    }

    #[test]
    fn programs_are_found_or_missed_in_words() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("train.py"), "pass").unwrap();
        let find = |name: &str| find_program(&program(name, folder.path()));
        assert!(find("sh").unwrap().ends_with("sh"));
        assert!(find("/bin/sh").is_ok());
        let text = |name: &str| find(name).unwrap_err();
        assert!(text("./train.py").hint.contains("python ./train.py"));
        assert!(text("train.py").hint.contains("python train.py"));
        assert!(text("no-such-program").message.contains("no-such-program"));
        let nowhere = find_program(&program("sh", &folder.path().join("none"))).unwrap_err();
        assert!(nowhere.to_string().contains("there is no folder"));
    }
}
