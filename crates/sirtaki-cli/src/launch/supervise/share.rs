//! What each rank is told when it starts.

use super::{Job, prepare::Found};
use crate::launch::{
    cores,
    environment::{self, Interface, Meeting, Share},
    gpus,
    plan::Place,
    protocol::{RankStart, Start},
};

/// What the agent of `host` needs to start its ranks.
pub(super) fn of_host(job: &Job, found: &Found, host: usize) -> Start {
    let ranks = job.hosts()[host].ranks.clone();
    let places = ranks.filter_map(|rank| job.placement.plan.place(rank));
    let program = job.program(host);
    let inherits = job.placement.starts[host].inherits();
    let set = |name: &str| program.environment.iter().any(|(set, _)| set == name);
    let has = |name: &str| set(name) || inherits && std::env::var_os(name).is_some();
    Start {
        ranks: places.map(|place| of_rank(job, found, host, &place, &has)).collect(),
        program: program.clone(),
        terminal: job.terminal,
        grace: job.options.grace,
        pulse: job.options.shows_progress() || job.options.dashboard.is_some(),
    }
}

/// What one rank is told; `has` says which variables it has already.
fn of_rank(job: &Job, found: &Found, host: usize, place: &Place, has: &dyn Fn(&str) -> bool) -> RankStart {
    let hello = &found.hellos[host];
    let (rank, size) = (place.local_rank, place.local_size);
    let cores = if job.options.divide_cores { cores::share(&hello.cores, rank, size) } else { Vec::new() };
    let interface = found.checked[host]
        .network
        .as_ref()
        .map(|(address, name, _)| Interface { name: name.clone(), address: address.to_string() });
    let share = Share {
        host: job.hosts()[host].host.clone(),
        gpus: job.options.divide_gpus.then(|| gpus::share(&hello.gpus, rank, size)).flatten(),
        cores: cores.clone(),
        interface,
    };
    let meeting = Meeting {
        job: job.id.clone(),
        store: format!("tcp://{}", found.checked[host].store),
        secret: job.secret.clone(),
        master_address: found.master_address().to_string(),
        master_port: found.master_port.to_string(),
        timeout: job.options.timeout,
        start_timeout: job.options.start_timeout,
        tls: job.options.tls,
    };
    RankStart { rank: place.rank, cores, environment: environment::of_rank(place, &meeting, &share, has) }
}
