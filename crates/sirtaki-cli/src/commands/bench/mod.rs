//! `sirtaki bench`: this command started several times, measuring itself.
//!
//! The parent serves the store and starts the ranks; rank 0 reports one line per result. If a rank fails, the benchmark
//! ends with an error that names it.

mod data;
mod plot;
mod row;
pub mod scaling;
pub mod sizes;
mod table;
mod watch;
mod worker;

use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::Command,
};

use anyhow::Result;
use sirtaki_comm::{rendezvous::TcpStore, secure::Secret};
use sirtaki_engine::job::settings::communication;
use sirtaki_launch::local::LocalJob;

pub(crate) use self::table::time;
pub use self::worker::work;
use crate::{
    args::{Allreduce, Transport},
    env,
    printer::Printer,
};

/// Runs the benchmark and prints its results.
pub fn run(arguments: &Allreduce, program: &Path, printer: &mut Printer) -> Result<()> {
    let secret = Secret::random()?;
    let variables = variables(arguments, &secret);
    let lookup = |name: &str| overlay(&variables, name);
    let settings = communication(&lookup, secret)?;
    let server = TcpStore::serve(IpAddr::V4(Ipv4Addr::LOCALHOST), &settings.secret, settings.tls)?;
    let store = format!("tcp://{}", server.address());
    let size = arguments.ranks.get();
    let job = LocalJob::start(size, true, |rank| {
        let mut command = Command::new(program);
        command.args(worker_arguments(arguments)).env_remove(env::ALGORITHM);
        command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
        command.env(env::RANK, rank.to_string()).env(env::SIZE, size.to_string()).env(env::STORE, &store);
        command
    })?;
    let rows = watch::follow(job, arguments, printer)?;
    if !arguments.json && !rows.is_empty() {
        table::print(&rows, printer)?;
    }
    Ok(())
}

/// What the ranks' environment has in addition to this process's. The secret is passed here, never in arguments, which
/// other users can read.
fn variables(arguments: &Allreduce, secret: &Secret) -> Vec<(&'static str, String)> {
    let mut variables = vec![(env::SECRET, secret.to_hex().to_string())];
    if let Some(timeout) = arguments.timeout {
        variables.push((env::TIMEOUT, timeout.as_secs_f64().to_string()));
    }
    let (shared, tls) = match arguments.transport {
        Transport::Auto => return variables,
        Transport::Shm => ("1", "0"),
        Transport::Tcp => ("0", "0"),
        Transport::Tls => ("0", "1"),
    };
    variables.extend([(env::SHM, shared.to_owned()), (env::TLS, tls.to_owned())]);
    variables
}

fn overlay(variables: &[(&'static str, String)], name: &str) -> Option<String> {
    let set = variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    // The flag has already read this variable, and accepts more than the variable does.
    if name == env::ALGORITHM { None } else { set.or_else(|| env::process(name)) }
}

fn worker_arguments(arguments: &Allreduce) -> Vec<String> {
    let mut list = vec![
        "bench-worker".into(),
        format!("--algorithm={}", arguments.algorithm),
        format!("--sizes={}", arguments.sizes),
        format!("--dtype={}", arguments.dtype.name()),
    ];
    list.extend(arguments.repeat.map(|repeat| format!("--repeat={repeat}")));
    list
}
