//! Every `SIRTAKI_*` variable: one table for people and for the program.

pub use super::variable_names::*;

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The values it may have.
    pub allowed: &'static str,
    /// The value when it is not set.
    pub default: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// Variables that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What they have in common.
    pub about: &'static str,
    /// Its lines, in the order of the reference page.
    pub variables: &'static [Variable],
}

pub(super) const SECONDS: &str = "seconds above zero, such as 60 or 0.5";
pub(super) const SECONDS_OR_OFF: &str = "seconds, such as 60 or 0.5; 0 or off for never";
const SWITCH: &str = "1, true, yes, on, 0, false, no or off";
const BYTES: &str = "bytes, such as 65536, 64K or 16M";

/// The variables that give a process its place.
const PLACE: Section = Section {
    title: "Place in the job",
    about: "Set by `sirtaki run` for every process it starts. Under `mpirun`, `srun` and `torchrun` the place is found \
            from their variables instead.",
    variables: &[
        Variable {
            name: RANK,
            allowed: "a number from 0 to SIRTAKI_SIZE - 1",
            default: "set by whoever starts the job",
            about: "Which process of the job this is.",
        },
        Variable {
            name: SIZE,
            allowed: "a number above zero",
            default: "set by whoever starts the job",
            about: "How many processes the job has.",
        },
        Variable {
            name: LOCAL_RANK,
            allowed: "a number from 0 to SIRTAKI_LOCAL_SIZE - 1",
            default: "found by asking the other ranks where they are",
            about: "Which process of its host this is.",
        },
        Variable {
            name: LOCAL_SIZE,
            allowed: "a number from 1 to SIRTAKI_SIZE",
            default: "found by asking the other ranks where they are",
            about: "How many processes of the job its host has.",
        },
        Variable {
            name: CROSS_RANK,
            allowed: "a number from 0 to SIRTAKI_CROSS_SIZE - 1",
            default: "found by asking the other ranks where they are",
            about: "Which host of the job it is on.",
        },
        Variable {
            name: CROSS_SIZE,
            allowed: "a number from 1 to SIRTAKI_SIZE",
            default: "found by asking the other ranks where they are",
            about: "How many hosts the job has.",
        },
        Variable {
            name: STORE,
            allowed: "tcp://ADDRESS:PORT or tls://ADDRESS:PORT, such as tcp://127.0.0.1:29400",
            default: "set by whoever starts the job",
            about: "Where the processes of the job find each other; `tls` says that it is encrypted, as between hosts.",
        },
        Variable {
            name: SECRET,
            allowed: "64 hexadecimal digits",
            default: "drawn at random for every job",
            about: "What every process must prove it knows before another one listens to it. Keep it out of arguments and \
                    logs.",
        },
        Variable {
            name: JOB,
            allowed: "letters, digits and dashes",
            default: "drawn at random for every job",
            about: "The job's name, to tell jobs apart in reports. Not secret.",
        },
        Variable {
            name: RESTART,
            allowed: "a number from 0 on",
            default: "not set",
            about: "How often the job was started before; set with `sirtaki run --restarts`.",
        },
        Variable {
            name: MEMBER,
            allowed: "a number from 1 on",
            default: "not set",
            about: "Which process of an elastic job this is; no other ever gets the number. Ranks change there, so that \
                    those above are not set; see `sirtaki run --min-ranks`.",
        },
        Variable {
            name: ROLE,
            allowed: "worker, server or coordinator",
            default: "worker",
            about: "What this process is to its job; set where there are servers or a coordinator, which are no ranks, see \
                    `sirtaki run --servers`.",
        },
        Variable {
            name: SERVER,
            allowed: "a number from 0 to SIRTAKI_SERVERS - 1",
            default: "not set",
            about: "Which server of the job this process is.",
        },
        Variable {
            name: SERVERS,
            allowed: "a number from 0 on",
            default: "not set",
            about: "How many servers the job has; all its processes are told.",
        },
        Variable {
            name: RETURNED,
            allowed: "a number from 1 on",
            default: "not set",
            about: "How often this process was started again in its place, see `sirtaki run --server-restarts`.",
        },
        Variable {
            name: RECORD,
            allowed: "PROCESS:DESCRIPTOR, such as 4711:5",
            default: "memory of the process itself",
            about: "Memory of the launcher for the flight record, so that it can be read after the process is gone.",
        },
    ],
};

/// The variables that configure how processes communicate.
const COMMUNICATION: Section = Section {
    title: "Communication",
    about: "How processes talk to each other.",
    variables: &[
        Variable {
            name: TIMEOUT,
            allowed: SECONDS,
            default: "60",
            about: "How long a rank may wait for another without any progress before that is an error.",
        },
        Variable {
            name: START_TIMEOUT,
            allowed: SECONDS,
            default: "60",
            about: "How long to wait for all ranks to appear.",
        },
        Variable {
            name: ALGORITHM,
            allowed: "auto, flat, ring, doubling, halving, tree, direct or layered",
            default: "auto",
            about: "The all-reduce algorithm; auto decides by size and topology. Must be the same for all ranks.",
        },
        Variable {
            name: TLS,
            allowed: SWITCH,
            default: "0",
            about: "Encrypt tensors between hosts, too; the connections by which ranks agree always are. Must be the same \
                    for all ranks. Over MPI, which has no encryption, it is refused when there are several hosts.",
        },
        Variable {
            name: INTERFACE,
            allowed: "an interface, an address or a network, such as eth0, 10.0.0.5 or 10.0.0.0/24",
            default: "the fastest one that reaches all peers, by measuring",
            about: "The network interface to use between hosts.",
        },
        Variable {
            name: SHM,
            allowed: SWITCH,
            default: "1",
            about: "Let ranks of one host share memory; without it, they talk over loopback.",
        },
        Variable {
            name: MPI,
            allowed: "the path of a library, such as /opt/mpi/lib/libmpi.so",
            default: "the one that fits the launcher",
            about: "The MPI library to use under an MPI launcher.",
        },
        Variable {
            name: GPU,
            allowed: "auto, nccl, shared or staged",
            default: "auto",
            about: "How tensors in the memory of GPUs travel: by NCCL, in each other's memory on the GPUs of one host, or \
                    through the host's memory. Rank 0's value counts.",
        },
        Variable {
            name: NCCL,
            allowed: "the path of a library, such as /opt/nccl/lib/libnccl.so.2",
            default: "the one that the process has loaded already, or the system's",
            about: "The NCCL library to use, version 2.14 or later.",
        },
        Variable {
            name: CUDA,
            allowed: "the path of a library, such as /usr/lib/libcuda.so.1",
            default: "the system's",
            about: "The CUDA driver library to use.",
        },
        Variable {
            name: NVML,
            allowed: "the path of a library, such as /usr/lib/libnvidia-ml.so.1",
            default: "the system's",
            about: "NVIDIA's management library, which tells how much of a GPU is in use.",
        },
    ],
};

/// The variables that configure when the engine does what.
const ENGINE: Section = Section {
    title: "Engine",
    about: "When tensors are reduced, and what is said about those that wait.",
    variables: &[
        Variable {
            name: FUSION,
            allowed: "bytes, such as 65536, 64K or 16M; 0 or off for none",
            default: "16M",
            about: "Small tensors are reduced together in batches of at most this size. Rank 0's value counts.",
        },
        Variable {
            name: FUSION_LARGE,
            allowed: BYTES,
            default: "1M",
            about: "A tensor of at least this size is reduced by itself. Rank 0's value counts.",
        },
        Variable {
            name: ADOPT,
            allowed: SWITCH,
            default: "1",
            about: "Adopt an order that repeats, which then needs no more agreement. Rank 0's value counts.",
        },
        Variable {
            name: WARN_AFTER,
            allowed: SECONDS_OR_OFF,
            default: "10",
            about: "After how long rank 0 explains who waits for whom.",
        },
        Variable {
            name: HANG_TIMEOUT,
            allowed: SECONDS_OR_OFF,
            default: "1800",
            about: "After how long a tensor that waits for a late rank is an error on all ranks. Ranks that wait for each \
                    other get an error at once.",
        },
    ],
};

/// The variables that configure what a job shows of itself.
const TELEMETRY: Section = Section {
    title: "Monitoring",
    about: "What a job reports about itself. Rank 0 writes the files, with what all ranks have sent it.",
    variables: &[
        Variable {
            name: TIMELINE,
            allowed: "the path of a file",
            default: "HOROVOD_TIMELINE if that is set, which gives the file the form of Horovod's; else none",
            about: "Keep a timeline of all ranks in this file, in the Chrome trace format, for ui.perfetto.dev.",
        },
        Variable {
            name: TIMELINE_LIMIT,
            allowed: BYTES,
            default: "256M",
            about: "How large a timeline may become; what comes later is dropped and counted.",
        },
        Variable {
            name: PROFILE,
            allowed: "1, true, yes, on, 0, false, no, off or the path of a file",
            default: "0",
            about: "Print a profile of all ranks at the end; with a path, also write it there as JSON.",
        },
        Variable {
            name: RUN_FOLDER,
            allowed: "the path of a folder",
            default: "none",
            about: "Record the run in this folder, for `sirtaki report`; if it holds one already, in a new folder beside it.",
        },
        Variable {
            name: TENSORBOARD,
            allowed: "the path of a folder",
            default: "none",
            about: "Write what the program reports to a new file in this folder, for TensorBoard.",
        },
    ],
};

/// All of them, in the order of the reference page.
pub const SECTIONS: &[Section] = &[PLACE, COMMUNICATION, ENGINE, TELEMETRY];

/// Every line of the table.
pub fn all() -> impl Iterator<Item = &'static Variable> {
    SECTIONS.iter().flat_map(|section| section.variables)
}

/// What a variable may be.
pub(super) fn allowed(name: &str) -> &'static str {
    all().find(|variable| variable.name == name).map_or("set", |variable| variable.allowed)
}

/// Whether the variable says where in a job a process is, rather than how the job is configured.
pub(crate) fn is_place(name: &str) -> bool {
    PLACE.variables.iter().any(|variable| variable.name == name)
}

/// The reference page `docs/environment.md`, with sections of the program's own at the end.
pub fn reference(more: &[Section]) -> String {
    let mut page = String::from(
        "# Environment variables\n\n\
         Written by `cargo xtask docs` from `crates/sirtaki-engine/src/job/variables.rs`; change it there.\n\
         Flags of the command line come before variables, variables before defaults.\n",
    );
    for Section { title, about, variables } in SECTIONS.iter().chain(more) {
        page += &format!("\n## {title}\n\n{about}\n\n");
        page += "| variable | values | default | what it does |\n|---|---|---|---|\n";
        for Variable { name, allowed, default, about } in *variables {
            page += &format!("| `{name}` | {allowed} | {default} | {about} |\n");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sirtaki_comm::collective::Algorithm;

    use super::*;

    #[test]
    fn names_are_ours_and_appear_once() {
        let names: HashSet<&str> = all().map(|variable| variable.name).collect();
        assert_eq!(names.len(), all().count());
        assert!(names.iter().all(|name| name.starts_with("SIRTAKI_")));
        for algorithm in Algorithm::ALL {
            assert!(allowed(ALGORITHM).contains(algorithm.name()), "{} is not in the table", algorithm.name());
        }
    }
}
