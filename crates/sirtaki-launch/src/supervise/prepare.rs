//! Before anything starts: every host answers, runs the same version, has the program, and reaches the others.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Instant,
};

use super::{
    Job,
    links::{Heard, Links},
};
use crate::{
    Advice,
    ended::signal_name,
    placement::Start,
    plan::HostPlan,
    protocol::{Check, Checked, Event, Hello, Order, VERSION},
    roles::{Cast, Role},
    tf_config::{self, Cluster},
};

/// What was found out about the hosts.
pub(super) struct Found {
    pub(super) hellos: Vec<Hello>,
    pub(super) checked: Vec<Checked>,
    pub(super) master_port: u16,
    /// Everywhere the store listens so far.
    stores: Vec<SocketAddr>,
}

impl Found {
    /// Where the ranks of a host reach the store: in the chosen network, if there is one.
    pub(super) fn store(&self, host: usize) -> SocketAddr {
        let chosen = self.checked[0].network.as_ref().map(|(address, ..)| *address);
        let found = self.stores.iter().find(|store| Some(store.ip()) == chosen);
        found.copied().unwrap_or(self.checked[host].store)
    }

    /// Where TensorFlow's servers of all processes listen; nowhere if no ports were asked for. The first ports of a host
    /// are those of its ranks.
    pub(super) fn workers(&self, plan: &[HostPlan], cast: &Cast) -> Cluster {
        let mut cluster = Cluster::default();
        let mut others = BTreeMap::new();
        for (host, checked) in self.checked.iter().enumerate() {
            let address = checked.network.as_ref().map_or(Ipv4Addr::LOCALHOST.into(), |(address, ..)| *address);
            let all = checked.ports.iter().map(|&port| SocketAddr::new(address, port).to_string());
            let mut all = all.collect::<Vec<_>>().into_iter();
            cluster.workers.extend(all.by_ref().take(plan[host].ranks.len()));
            others.extend(cast.others_on(host, self.checked.len()).zip(all));
        }
        for (process, address) in others {
            match cast.role(process) {
                Role::Coordinator => cluster.coordinator = Some(address),
                _ => cluster.servers.push(address),
            }
        }
        cluster
    }

    /// Where other tools meet: the first host's address in the chosen network.
    pub(super) fn master_address(&self) -> IpAddr {
        match &self.checked[0].network {
            Some((address, ..)) => *address,
            None => self.checked[0].store.ip(),
        }
    }
}

/// Starts all agents and finds out whether the job can run.
pub(super) fn prepare(job: &Job, links: &mut Links) -> Result<Found, Advice> {
    for (host, start) in job.hosts().iter().zip(&job.placement.starts) {
        let command = start.command(&host.host, &job.spec, &job.sirtaki);
        links.start(&host.host, &command, *start != Start::Here)?;
    }
    let hosts = job.hosts().len();
    let hellos = gather(job, links, 0..hosts, |event| match event {
        Event::Hello(hello) => Some(hello),
        _ => None,
    })?;
    same_version(job.hosts(), &hellos)?;
    let (secret, interface) = (job.secret.clone(), job.spec.interface.clone());
    links.order(0, Order::Serve { secret, tls: job.spec.tls, open: hosts > 1, interface });
    let serving = gather(job, links, 0..1, |event| match event {
        Event::Serving { stores, master_port } => Some((stores, master_port)),
        _ => None,
    })?;
    let (stores, master_port) = serving.into_iter().next().unwrap_or_default();
    for host in 0..hosts {
        let check = Check {
            host,
            hosts,
            stores: stores.clone(),
            secret: job.secret.clone(),
            tls: job.spec.tls,
            interface: job.spec.interface.clone(),
            patience: job.spec.start_timeout,
            ports: if tf_config::wanted(&job.spec, &job.placement.plan) { job.processes_of(host).count() } else { 0 },
            program: job.program(host),
        };
        links.order(host, Order::Check(check));
    }
    let checked = gather(job, links, 0..hosts, |event| match event {
        Event::Checked(checked) => Some(checked),
        _ => None,
    })?;
    Ok(Found { hellos, checked, master_port, stores })
}

fn same_version(hosts: &[HostPlan], hellos: &[Hello]) -> Result<(), Advice> {
    for (hello, host) in hellos.iter().zip(hosts) {
        if hello.version != VERSION {
            let message = format!("host {} has sirtaki {}, this is {VERSION}", host.host, hello.version);
            let hint = "install the same version there, or say where it is with --remote-sirtaki";
            return Err(Advice::new(message, hint));
        }
    }
    Ok(())
}

/// Waits until each of these hosts has sent the expected answer.
fn gather<T>(
    job: &Job,
    links: &mut Links,
    hosts: std::ops::Range<usize>,
    wanted: impl Fn(Event) -> Option<T>,
) -> Result<Vec<T>, Advice> {
    let deadline = Instant::now() + job.spec.start_timeout;
    let mut said: Vec<Option<T>> = hosts.clone().map(|_| None).collect();
    while let Some(missing) = said.iter().position(Option::is_none) {
        let name = |host: usize| job.hosts()[host].host.clone();
        match links.hear(deadline) {
            Some(Heard::Event { host, event: Event::Problem { message, hint } }) => {
                let message = if job.hosts().len() > 1 { format!("host {}: {message}", name(host)) } else { message };
                return Err(Advice::new(message, hint));
            }
            Some(Heard::Event { host, event }) if hosts.contains(&host) => {
                said[host - hosts.start] = wanted(event).or(said[host - hosts.start].take());
            }
            Some(Heard::Event { .. } | Heard::Message { .. } | Heard::Written | Heard::Hosts(_)) => {}
            Some(Heard::Gone { host, how }) => {
                return Err(unreachable(&name(host), &how, job.placement.starts[host]));
            }
            Some(Heard::Signal(signal)) => {
                let message = format!("interrupted by {} before the job had started", signal_name(signal));
                return Err(Advice::new(message, "nothing was started"));
            }
            None => {
                let message =
                    format!("host {} did not answer for {} s", name(missing), job.spec.start_timeout.as_secs_f64());
                return Err(Advice::new(message, "is it up? --start-timeout allows more time"));
            }
        }
    }
    Ok(said.into_iter().flatten().collect())
}

/// Why no agent runs on a host, with what to do about it.
fn unreachable(host: &str, how: &str, start: Start) -> Advice {
    let message = format!("cannot start on host {host}: {how}");
    let hint = match start {
        Start::Ssh if how.contains("Permission denied") => {
            format!(
                "{host} must accept your key without asking for a password: `ssh-copy-id {host}`, then try `ssh {host} true`"
            )
        }
        Start::Ssh if how.contains("Host key verification failed") => {
            format!("accept its key once by hand: `ssh {host} true`")
        }
        Start::Ssh if how.contains("not found") || how.contains("No such file") => {
            format!("install sirtaki on {host}, or say where it is with --remote-sirtaki")
        }
        Start::Ssh => format!("`ssh {host} true` has to work without asking anything"),
        Start::Slurm => "look at `scontrol show job $SLURM_JOB_ID`".to_owned(),
        Start::Here => "this is a mistake of sirtaki; please report it".to_owned(),
        Start::Pbs => format!("`pbs_tmrsh {host} true` has to work"),
        Start::Lsf => format!("`blaunch {host} true` has to work"),
    };
    Advice::new(message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_refused_by_name() {
        let hosts = ["a", "b"].map(|host| HostPlan { host: host.into(), ranks: 0..1 });
        let hello =
            |version: &str| Hello { version: version.into(), host: String::new(), cores: Vec::new(), gpus: Vec::new() };
        assert!(same_version(&hosts, &[hello(VERSION), hello(VERSION)]).is_ok());
        let error = same_version(&hosts, &[hello(VERSION), hello("0.0.9")]).unwrap_err();
        assert!(error.message.contains("host b has sirtaki 0.0.9") && error.hint.contains("--remote-sirtaki"));
    }

    #[test]
    fn ranks_reach_the_store_in_the_chosen_network() {
        let store = |text: &str| text.parse::<SocketAddr>().unwrap();
        let network = |text: &str| Some((text.parse().unwrap(), "eth0".to_owned(), String::new()));
        let checked = |stores: [&str; 2], chosen| {
            stores.map(|text| Checked { store: store(text), network: network(chosen), ports: vec![70, 71] }).into()
        };
        let found = |checked| Found {
            hellos: Vec::new(),
            checked,
            master_port: 1,
            stores: ["10.0.0.1:7", "10.0.1.1:8", "127.0.0.1:9"].map(store).into(),
        };
        let slow = found(checked(["127.0.0.1:9", "10.0.0.1:7"], "10.0.1.1"));
        assert_eq!((slow.store(0), slow.store(1)), (store("10.0.1.1:8"), store("10.0.1.1:8")));
        let plan = [0..1, 1..2].map(|ranks| HostPlan { host: "a".into(), ranks });
        let cast = Cast { servers: 1, coordinator: true, ..Cast::of_ranks(2) };
        let cluster = slow.workers(&plan, &cast);
        assert_eq!(cluster.workers, ["10.0.1.1:70", "10.0.1.1:70"]);
        assert_eq!((cluster.servers, cluster.coordinator), (vec!["10.0.1.1:71".into()], Some("10.0.1.1:71".into())));
        let mut alone: Vec<Checked> = checked(["127.0.0.1:9", "10.0.0.1:7"], "10.0.1.1");
        alone[0].network = None;
        assert_eq!(found(alone).store(0), store("127.0.0.1:9"));
    }

    #[test]
    fn the_hint_fits_the_reason() {
        let hint = |how: &str| unreachable("b", how, Start::Ssh).hint;
        assert!(hint("ssh ended with exit code 255: me@b: Permission denied (publickey).").contains("ssh-copy-id b"));
        assert!(hint("ssh ended with exit code 127: sh: 1: exec: sirtaki: not found").contains("--remote-sirtaki"));
        assert!(hint("ssh ended with exit code 255: Connection refused").contains("`ssh b true`"));
    }
}
