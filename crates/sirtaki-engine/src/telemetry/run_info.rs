//! What a run is: who runs what, where, with which settings. The file `run.json` of a run's folder.

use std::{
    collections::BTreeMap,
    env,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use sirtaki_comm::Group;

use crate::{job::variables, machine};

const FORMAT: &str = "sirtaki run, version 1";
/// Variables that may matter for the outcome, by prefix.
const TELLING: [&str; 4] = ["SIRTAKI_", "HOROVOD_", "OMP_", "CUDA_VISIBLE_DEVICES"];

/// Those that only say where in the job a process is, by suffix.
const PLACES: [&str; 4] = ["_RANK", "_SIZE", "_HOSTNAME", "_FOLDER"];

/// The file.
#[derive(Debug, Clone, Serialize)]
pub(super) struct About {
    format: &'static str,
    name: String,
    /// Seconds since 1970.
    started: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<End>,
    command: Vec<String>,
    version: &'static str,
    ranks: usize,
    hosts: Vec<String>,
    machine: Machine,
    environment: BTreeMap<String, String>,
    pub(super) settings: BTreeMap<String, String>,
}

/// How it went.
#[derive(Debug, Clone, Serialize)]
pub(super) struct End {
    pub(super) seconds: f64,
    /// Why it could not go on.
    pub(super) failed: Option<String>,
    /// Reports of the program for which there was no room.
    pub(super) dropped: u64,
    /// How many processes wanted a processor of rank 0's machine meanwhile, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load: Option<f64>,
}

/// Rank 0's machine.
#[derive(Debug, Clone, Serialize)]
struct Machine {
    processor: String,
    cores: usize,
    memory_bytes: u64,
}

impl About {
    /// This run, which begins now.
    pub(super) fn new(folder: &Path, group: &Group) -> Self {
        let telling = |(name, _): &(String, String)| {
            TELLING.iter().any(|start| name.starts_with(start))
                && !variables::is_place(name)
                && !PLACES.iter().any(|end| name.ends_with(end))
        };
        Self {
            format: FORMAT,
            name: folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            ended: None,
            command: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            version: env!("CARGO_PKG_VERSION"),
            ranks: group.size(),
            hosts: group.members().iter().map(|member| member.host.clone()).collect(),
            machine: Machine {
                processor: machine::processor().unwrap_or_default(),
                cores: machine::cores(),
                memory_bytes: machine::memory("MemTotal"),
            },
            environment: env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .filter(telling)
                .collect(),
            settings: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known_and_the_secret_stays_one() {
        // SAFETY: nextest runs every test in a process of its own, and no other thread reads the environment here.
        unsafe { env::set_var(variables::SECRET, "0f0f") };
        let about = About::new(Path::new("runs/first"), &Group::local(0, 2));
        let text = serde_json::to_string(&about).unwrap();
        assert!(about.machine.memory_bytes > 1 << 20 && about.machine.cores > 0);
        assert_eq!((about.name.as_str(), about.ranks), ("first", 2));
        assert!(!text.contains("0f0f") && !text.contains("\"ended\""), "{text}");
    }
}
