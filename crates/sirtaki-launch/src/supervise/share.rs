//! What each rank is told when it starts.

use super::{Job, prepare::Found};
use crate::{
    cores,
    environment::{self, Interface, Meeting, Share},
    gpus, openmpi, placement,
    plan::Place,
    protocol::{Connect, HostStart, PmiJob, Program, RankStart},
};

/// What the agent of `host` needs to start its ranks.
pub(super) fn of_host(job: &Job, found: &Found, host: usize) -> HostStart {
    let ranks = job.hosts()[host].ranks.clone();
    let places = ranks.filter_map(|rank| job.placement.plan.place(rank));
    let program = job.program(host);
    let has = |name: &str| is_set(job, host, &program, name);
    let ranks = match job.spec.elastic {
        None => places.map(|place| of_rank(job, found, host, &place, &has)).collect(),
        Some(_) => Vec::new(),
    };
    let others = job.cast().others_on(host, job.hosts().len());
    let others = others.map(|process| of_other(job, found, host, (process, 0), &has)).collect();
    HostStart { others, ..with_ranks(job, found, host, ranks) }
}

/// What the agent of its host needs to start a process again that has returned this often.
pub(super) fn of_returned(job: &Job, found: &Found, process: usize, returned: u32) -> HostStart {
    let host = job.host_of(process);
    let program = job.program(host);
    let has = |name: &str| is_set(job, host, &program, name);
    let start = match job.placement.plan.place(process) {
        None => of_other(job, found, host, (process, returned), &has),
        Some(place) => {
            let mut start = of_rank(job, found, host, &place, &has);
            start.environment.extend(environment::returned(returned));
            start
        }
    };
    with_ranks(job, found, host, vec![start])
}

/// What a process is told that is no rank and was started again this often. It runs wherever there is room.
fn of_other(
    job: &Job,
    found: &Found,
    host: usize,
    (process, returned): (usize, u32),
    has: &dyn Fn(&str) -> bool,
) -> RankStart {
    let share = Share { cores: Vec::new(), ..share(job, found, host, (0, 1)) };
    let mut environment = environment::of_other(&job.cast(), process, &meeting(job, found, host), &share, has);
    environment.extend(environment::returned(returned));
    RankStart { rank: process, cores: Vec::new(), environment }
}

/// What the agent of `host` needs to start a process of an elastic job on this seat.
pub(super) fn of_member(job: &Job, found: &Found, host: usize, seat: usize, member: u64) -> HostStart {
    let program = job.program(host);
    let seats = &job.hosts()[host].ranks;
    let share = share(job, found, host, (seat - seats.start, seats.len()));
    let has = |name: &str| is_set(job, host, &program, name);
    let mut environment = environment::of_member(member, &meeting(job, found, host), &share, &has);
    environment.extend(environment::of_worker(&job.cast()));
    with_ranks(job, found, host, vec![RankStart { rank: seat, cores: share.cores, environment }])
}

/// Whether ranks have this variable already.
fn is_set(job: &Job, host: usize, program: &Program, name: &str) -> bool {
    let inherits = job.placement.starts[host].inherits();
    program.environment.iter().any(|(set, _)| set == name)
        || inherits && job.variables.iter().any(|(own, _)| own == name)
}

fn with_ranks(job: &Job, found: &Found, host: usize, ranks: Vec<RankStart>) -> HostStart {
    HostStart {
        ranks,
        others: Vec::new(),
        program: job.program(host),
        terminal: job.terminal,
        grace: job.spec.grace,
        pulse: job.spec.pulses,
        pmi: PmiJob {
            size: job.placement.plan.size(),
            host,
            hosts: job.hosts().len(),
            store: found.store(host),
            secret: job.secret.clone(),
            tls: job.spec.tls || job.hosts().len() > 1,
            patience: job.spec.start_timeout,
        },
        connect: connect(job, host),
        window: super::window(job.hosts().len()),
        job: job.id.clone(),
    }
}

/// How the ranks of `host` are connected through Open MPI; its launcher runs on the first host.
fn connect(job: &Job, host: usize) -> Option<Connect> {
    let open = job.open_mpi.as_ref()?;
    let socket = format!("sirtaki-{}", job.id);
    let launcher = if host == 0 { mpirun(job, &open.mpirun, &socket) } else { Vec::new() };
    Some(Connect { socket: format!("{socket}-{host}"), launcher, patience: job.spec.start_timeout })
}

/// Open MPI's launcher, with a relay as the program of every rank.
fn mpirun(job: &Job, name: &str, socket: &str) -> Vec<String> {
    let hosts = job.hosts();
    let slots = |host: &str, count: usize| format!("{}:{count}", host.rsplit('@').next().unwrap_or(host));
    let list: Vec<String> = match hosts {
        [only] => vec![slots("localhost", only.ranks.len())],
        several => several.iter().map(|host| slots(&host.host, host.ranks.len())).collect(),
    };
    let ends: Vec<String> = hosts.iter().map(|host| host.ranks.end.to_string()).collect();
    let sirtaki = match hosts.len() {
        1 => &job.sirtaki,
        _ => job.spec.remote_sirtaki.as_ref().unwrap_or(&job.sirtaki),
    };
    let mut words = vec![name.to_owned()];
    if job.placement.starts.contains(&placement::Start::Ssh) {
        let mut ssh = placement::Start::Ssh.prefix("", &job.spec);
        ssh.truncate(ssh.len().saturating_sub(2));
        words.extend(["--mca".into(), "plm_rsh_agent".into(), ssh.join(" ")]);
    }
    let size = job.placement.plan.size().to_string();
    let fixed = ["--bind-to", "none", "--map-by", "slot", "-n", &size, "-H", &list.join(",")].map(str::to_owned);
    words.extend(fixed);
    words.extend([sirtaki, "mpi-relay", "--socket", socket, "--ends", &ends.join(",")].map(str::to_owned));
    words
}

/// What one rank is told; `has` says which variables it has already.
fn of_rank(job: &Job, found: &Found, host: usize, place: &Place, has: &dyn Fn(&str) -> bool) -> RankStart {
    let share = share(job, found, host, (place.local_rank, place.local_size));
    let mut environment = environment::of_rank(place, &meeting(job, found, host), &share, has);
    environment.extend(environment::of_worker(&job.cast()));
    if place.size > 1 && job.open_mpi.is_none() && job.spec.mpi != Some(false) {
        let (name, value) = openmpi::GUARD;
        environment.push((name.into(), value.into()));
    }
    RankStart { rank: place.rank, cores: share.cores, environment }
}

/// What one of `size` ranks of a host gets of it.
fn share(job: &Job, found: &Found, host: usize, (rank, size): (usize, usize)) -> Share {
    let hello = &found.hellos[host];
    let (part, parts) = job.spec.part;
    let own_cores = cores::share(&hello.cores, part, parts);
    let own_gpus = cores::share(&hello.gpus, part, parts);
    let cores = if job.spec.divide_cores { cores::share(&own_cores, rank, size) } else { Vec::new() };
    let gpus = match job.spec.divide_gpus {
        true => gpus::share(&own_gpus, rank, size),
        // Programs that choose among all they see must not see those of other jobs.
        false => Some(own_gpus).filter(|gpus| parts > 1 && !gpus.is_empty()),
    };
    let interface = found.checked[host]
        .network
        .as_ref()
        .map(|(address, name, _)| Interface { name: name.clone(), address: address.to_string() });
    Share { host: job.hosts()[host].host.clone(), gpus, cores, interface }
}

fn meeting(job: &Job, found: &Found, host: usize) -> Meeting {
    Meeting {
        job: job.id.clone(),
        store: format!("{}://{}", if job.hosts().len() > 1 { "tls" } else { "tcp" }, found.store(host)),
        secret: job.secret.clone(),
        master_address: found.master_address().to_string(),
        master_port: found.master_port.to_string(),
        workers: found.workers(job.hosts(), &job.cast()),
        timeout: job.spec.timeout,
        start_timeout: job.spec.start_timeout,
        tls: job.spec.tls,
    }
}
