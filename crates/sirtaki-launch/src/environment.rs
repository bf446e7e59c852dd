//! What a rank finds in its environment: its place, where the others are, and the variables that other tools read, so
//! that programs written for them run unchanged. Also decides which of the launcher's own variables are passed to other
//! hosts.
//!
//! Pure: the code that starts a process removes [`OWN`] from what it inherits and adds what is returned here.

use std::time::Duration;

use sirtaki_comm::secure::Secret;

use super::{
    plan::Place,
    roles::{Cast, Role},
    tf_config::{self, Cluster},
};
use crate::env;

/// The variables that belong to the launcher: never inherited, never taken from the user's `--env`.
pub const OWN: &[&str] = &[
    env::RANK,
    env::SIZE,
    env::LOCAL_RANK,
    env::LOCAL_SIZE,
    env::CROSS_RANK,
    env::CROSS_SIZE,
    env::STORE,
    env::SECRET,
    env::JOB,
    env::RECORD,
    env::RESTART,
    env::MEMBER,
    env::ROLE,
    env::SERVER,
    env::SERVERS,
    env::RETURNED,
    env::INTERFACE,
    env::TIMEOUT,
    env::START_TIMEOUT,
    env::TLS,
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "HOROVOD_RANK",
    "HOROVOD_SIZE",
    "HOROVOD_LOCAL_RANK",
    "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK",
    "HOROVOD_CROSS_SIZE",
    "HOROVOD_HOSTNAME",
    "HOROVOD_ELASTIC",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
];

/// Variables of an MPI launcher under which this launcher itself may run. Ranks are not its ranks, so they do not
/// inherit them.
pub const OF_MPI: &[&str] = &[
    "PMI_FD",
    "PMI_ID",
    "PMI_PORT",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMIX_SERVER_URI2",
    "PMIX_SERVER_URI21",
    "PMIX_SERVER_URI3",
    "PMIX_SERVER_URI4",
    "PMIX_SERVER_URI41",
];

/// Passed to other hosts, by name.
const TRAVEL: &[&str] = &["PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG", "LANGUAGE", "TZ", "NO_COLOR"];

/// Passed to other hosts, by the beginning of the name.
const TRAVEL_PREFIXES: &[&str] = &[
    "CONDA_",
    "CUDA_",
    "GLOO_",
    "HF_",
    "HOROVOD_",
    "JAX_",
    "KMP_",
    "LC_",
    "MKL_",
    "MLFLOW_",
    "NCCL_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "RUST_",
    "SIRTAKI_",
    "TF_",
    "TOKENIZERS_",
    "TORCH",
    "TRANSFORMERS_",
    "WANDB_",
    "XLA_",
];

/// Not passed although a prefix above matches: they describe the launcher's own start.
const STAY_PREFIXES: &[&str] = &["SIRTAKI_RUN_", "TORCHELASTIC_"];

/// A variable asked for with `--env`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Its name.
    pub name: String,
    /// Its value; `None` takes the launcher's.
    pub value: Option<String>,
}

/// What all ranks of a job have in common. Fields are text so that a dry run can show placeholders for values that are
/// only known once a job starts.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// The id of the job; not secret.
    pub job: String,
    /// Where the ranks meet: `tcp://ADDRESS:PORT`, or `tls://` where that is encrypted.
    pub store: String,
    /// With which they authenticate to each other.
    pub secret: Secret,
    /// Address of the first rank's host, for other tools.
    pub master_address: String,
    /// A free port there.
    pub master_port: String,
    /// Where TensorFlow's servers of all processes would listen; empty where it is not told.
    pub workers: Cluster,
    /// How long a rank may wait for another without progress.
    pub timeout: Duration,
    /// How long to wait for all ranks.
    pub start_timeout: Duration,
    /// Whether connections are encrypted.
    pub tls: bool,
}

/// What one rank gets of its host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// The host's name.
    pub host: String,
    /// The processors the rank keeps to; empty for all.
    pub cores: Vec<usize>,
    /// The GPUs it sees; `None` leaves that unchanged.
    pub gpus: Option<Vec<String>>,
    /// The network between hosts; `None` when there is only one.
    pub interface: Option<Interface>,
}

/// The network that was chosen on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// The host's address in it.
    pub address: String,
}

/// The variables of the rank at `place`. `has` tells which variables are already set, by the user or by inheritance;
/// these are kept where the choice is the user's.
pub fn of_rank(place: &Place, job: &Meeting, share: &Share, has: &dyn Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut all = Variables(Vec::with_capacity(64));
    own_names(&mut all, place);
    common_names(&mut all, job, share);
    names_of_torch(&mut all, place, job);
    names_of_horovod_and_mpi(&mut all, place);
    if !job.workers.is_empty() && !has(tf_config::VARIABLE) {
        all.set(tf_config::VARIABLE, job.workers.told_to(Role::Worker, place.rank));
    }
    of_share(&mut all, share, has);
    all.0
}

/// The variables of a process of an elastic job, whose rank is not known yet and may change.
pub fn of_member(member: u64, job: &Meeting, share: &Share, has: &dyn Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut all = Variables(Vec::with_capacity(32));
    all.set(env::MEMBER, member);
    all.set("HOROVOD_ELASTIC", 1);
    common_names(&mut all, job, share);
    of_share(&mut all, share, has);
    all.0
}

/// What a worker is told in addition where there are others than ranks.
pub fn of_worker(cast: &Cast) -> Vec<(String, String)> {
    let mut all = Variables(Vec::new());
    if cast.processes() > cast.ranks {
        all.set(env::ROLE, Role::Worker);
        all.set(env::SERVERS, cast.servers);
    }
    all.0
}

/// The variables of a process that is no rank.
pub fn of_other(
    cast: &Cast,
    process: usize,
    job: &Meeting,
    share: &Share,
    has: &dyn Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let (role, number) = (cast.role(process), cast.number(process));
    let mut all = Variables(Vec::with_capacity(32));
    all.set(env::ROLE, role);
    all.set(env::SERVERS, cast.servers);
    all.set(env::SIZE, cast.ranks);
    if role == Role::Server {
        all.set(env::SERVER, number);
    }
    common_names(&mut all, job, share);
    if !job.workers.is_empty() && !has(tf_config::VARIABLE) {
        all.set(tf_config::VARIABLE, job.workers.told_to(role, number));
    }
    of_share(&mut all, share, has);
    all.0
}

/// What a process is told that was started again this often.
pub fn returned(times: u32) -> Option<(String, String)> {
    (times > 0).then(|| (env::RETURNED.into(), times.to_string()))
}

/// What a process gets of its host, unless the user has chosen otherwise.
fn of_share(all: &mut Variables, share: &Share, has: &dyn Fn(&str) -> bool) {
    let mut unless_set = |name: &str, value: &dyn ToString| {
        if !has(name) {
            all.set(name, value.to_string());
        }
    };
    if !share.cores.is_empty() {
        unless_set("OMP_NUM_THREADS", &share.cores.len());
    }
    unless_set("PYTHONUNBUFFERED", &1);
    if let Some(interface) = &share.interface {
        unless_set("GLOO_SOCKET_IFNAME", &interface.name);
        unless_set("NCCL_SOCKET_IFNAME", &interface.name);
    }
    if let Some(gpus) = &share.gpus {
        all.set("CUDA_VISIBLE_DEVICES", gpus.join(","));
    }
}

/// The variable that tells a rank where its agent keeps the rank's flight record: process and descriptor.
pub fn record((process, descriptor): (u32, i32)) -> (String, String) {
    (env::RECORD.into(), format!("{process}:{descriptor}"))
}

struct Variables(Vec<(String, String)>);

impl Variables {
    fn set(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.into(), value.to_string()));
    }
}

fn own_names(all: &mut Variables, place: &Place) {
    all.set(env::RANK, place.rank);
    all.set(env::SIZE, place.size);
    all.set(env::LOCAL_RANK, place.local_rank);
    all.set(env::LOCAL_SIZE, place.local_size);
    all.set(env::CROSS_RANK, place.cross_rank);
    all.set(env::CROSS_SIZE, place.cross_size);
}

fn common_names(all: &mut Variables, job: &Meeting, share: &Share) {
    all.set(env::JOB, &job.job);
    all.set(env::STORE, &job.store);
    all.set(env::SECRET, job.secret.to_hex().as_str());
    all.set(env::TIMEOUT, job.timeout.as_secs_f64());
    all.set(env::START_TIMEOUT, job.start_timeout.as_secs_f64());
    all.set(env::TLS, u8::from(job.tls));
    if let Some(interface) = &share.interface {
        all.set(env::INTERFACE, &interface.address);
    }
    all.set("HOROVOD_HOSTNAME", &share.host);
}

fn names_of_torch(all: &mut Variables, place: &Place, job: &Meeting) {
    all.set("RANK", place.rank);
    all.set("WORLD_SIZE", place.size);
    all.set("LOCAL_RANK", place.local_rank);
    all.set("LOCAL_WORLD_SIZE", place.local_size);
    all.set("GROUP_RANK", place.cross_rank);
    all.set("GROUP_WORLD_SIZE", place.cross_size);
    all.set("ROLE_RANK", place.rank);
    all.set("ROLE_WORLD_SIZE", place.size);
    all.set("MASTER_ADDR", &job.master_address);
    all.set("MASTER_PORT", &job.master_port);
}

fn names_of_horovod_and_mpi(all: &mut Variables, place: &Place) {
    for (prefix, cross) in [("HOROVOD_", true), ("OMPI_COMM_WORLD_", false)] {
        all.set(&format!("{prefix}RANK"), place.rank);
        all.set(&format!("{prefix}SIZE"), place.size);
        all.set(&format!("{prefix}LOCAL_RANK"), place.local_rank);
        all.set(&format!("{prefix}LOCAL_SIZE"), place.local_size);
        if cross {
            all.set(&format!("{prefix}CROSS_RANK"), place.cross_rank);
            all.set(&format!("{prefix}CROSS_SIZE"), place.cross_size);
        }
    }
}

/// Whether one of the launcher's variables goes with a job to hosts that do not inherit them.
pub fn travels(name: &str) -> bool {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let chosen = TRAVEL.contains(&name) || begins(TRAVEL_PREFIXES);
    chosen && !begins(STAY_PREFIXES) && !OWN.contains(&name)
}

/// What an agent is told to add for all its ranks: the user's wishes and, unless the agent inherits them anyway, those
/// of the launcher's variables that are passed on. A wish for a variable that the launcher does not have is dropped.
pub fn of_host(own: impl Iterator<Item = (String, String)>, wishes: &[Wish], inherits: bool) -> Vec<(String, String)> {
    let own: Vec<_> = own.collect();
    let mut all: Vec<(String, String)> = match inherits {
        true => Vec::new(),
        false => own.iter().filter(|(name, _)| travels(name)).cloned().collect(),
    };
    for wish in wishes {
        let from_own = || own.iter().find(|(name, _)| *name == wish.name).map(|(_, value)| value.clone());
        if let Some(value) = wish.value.clone().or_else(from_own) {
            all.retain(|(name, _)| *name != wish.name);
            all.push((wish.name.clone(), value));
        }
    }
    all
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
