//! Options of torchrun, horovodrun, mpirun, Accelerate and DeepSpeed, and what they mean here.

/// What an option of another launcher means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The same as an option of ours, with the same value.
    Ours(&'static str),
    /// The number of processes.
    Ranks,
    /// The number of hosts, which is no question if it is one.
    Nodes,
    /// Nothing: it is the case anyway.
    Needless,
    /// For how long a host is avoided: two values.
    Cooldown,
    /// Something to be said in another way.
    Instead(&'static str),
}

pub(super) const ONCE: &str = "start sirtaki once, on one host, and name the hosts: -H a:4,b:4; inside a Slurm, PBS or \
                               LSF job they are known";
/// For a range of hosts.
pub(super) const RANGE: &str = "for processes that come and go say --min-ranks 2 --max-ranks 8 (docs/elastic.md); \
                                --restarts 3 starts all of them again, as torchrun does";
const NOTICED: &str = "omit it: the end of a process is noticed at once";
const MEETING: &str = "omit it: sirtaki starts the processes of all hosts and sets MASTER_ADDR and MASTER_PORT";
const PLACES: &str = "--cores auto, the default, gives each process its own cores; --cores none turns that off";
const CHOSEN: &str = "omit it: algorithms are chosen by size and by where the ranks are";
const LOGS: &str = "--output DIR writes a file for every process, and --quiet hides them on the terminal";

/// Each option with its meaning; a dash stands for an underscore, too.
const KNOWN: &[(&str, Meaning)] = &[
    ("-np", Meaning::Ranks),
    ("--np", Meaning::Ranks),
    ("--num-proc", Meaning::Ranks),
    ("--num-processes", Meaning::Ranks),
    ("--nproc-per-node", Meaning::Ranks),
    ("--nproc", Meaning::Ranks),
    ("--num-gpus", Meaning::Ranks),
    ("--ntasks", Meaning::Ranks),
    ("--nnodes", Meaning::Nodes),
    ("--num-nodes", Meaning::Nodes),
    ("--num-machines", Meaning::Nodes),
    ("--standalone", Meaning::Needless),
    ("--no-python", Meaning::Needless),
    ("--gloo", Meaning::Needless),
    ("--use-gloo", Meaning::Needless),
    ("--allow-run-as-root", Meaning::Needless),
    ("-hostfile", Meaning::Ours("--hostfile")),
    ("--host-file", Meaning::Ours("--hostfile")),
    ("-machinefile", Meaning::Ours("--hostfile")),
    ("--machinefile", Meaning::Ours("--hostfile")),
    ("-host", Meaning::Ours("--hosts")),
    ("--host", Meaning::Ours("--hosts")),
    ("-x", Meaning::Ours("--env")),
    ("-wdir", Meaning::Ours("--workdir")),
    ("--wdir", Meaning::Ours("--workdir")),
    ("--network-interface", Meaning::Ours("--interface")),
    ("--network-interfaces", Meaning::Ours("--interface")),
    ("--timeline-filename", Meaning::Ours("--timeline")),
    ("--output-filename", Meaning::Ours("--output")),
    ("--log-dir", Meaning::Ours("--output")),
    ("-p", Meaning::Ours("--ssh-port")),
    ("--ssh-identity-file", Meaning::Ours("--ssh-identity")),
    ("-i", Meaning::Ours("--ssh-identity")),
    ("--node-rank", Meaning::Instead(ONCE)),
    ("--machine-rank", Meaning::Instead(ONCE)),
    ("--master-addr", Meaning::Instead(MEETING)),
    ("--master-port", Meaning::Instead(MEETING)),
    ("--main-process-ip", Meaning::Instead(MEETING)),
    ("--main-process-port", Meaning::Instead(MEETING)),
    ("--local-addr", Meaning::Instead(MEETING)),
    ("--rdzv-backend", Meaning::Instead(MEETING)),
    ("--rdzv-endpoint", Meaning::Instead(MEETING)),
    ("--rdzv-id", Meaning::Instead(MEETING)),
    ("--rdzv-conf", Meaning::Instead(MEETING)),
    ("--max-restarts", Meaning::Ours("--restarts")),
    ("--monitor-interval", Meaning::Instead(NOTICED)),
    ("--min-np", Meaning::Ours("--min-ranks")),
    ("--max-np", Meaning::Ours("--max-ranks")),
    ("--min-num-proc", Meaning::Ours("--min-ranks")),
    ("--max-num-proc", Meaning::Ours("--max-ranks")),
    ("--slots-per-host", Meaning::Ours("--slots")),
    ("--host-discovery-script", Meaning::Ours("--discover")),
    ("--blacklist-cooldown-range", Meaning::Cooldown),
    ("-r", Meaning::Instead(LOGS)),
    ("--redirects", Meaning::Instead(LOGS)),
    ("-t", Meaning::Instead(LOGS)),
    ("--tee", Meaning::Instead(LOGS)),
    ("--bind-to", Meaning::Instead(PLACES)),
    ("--map-by", Meaning::Instead(PLACES)),
    ("--mca", Meaning::Instead("set a variable of Open MPI: --env OMPI_MCA_name=value")),
    ("-mca", Meaning::Instead("set a variable of Open MPI: --env OMPI_MCA_name=value")),
    ("--mpi-args", Meaning::Instead("set variables of Open MPI: --env OMPI_MCA_name=value")),
    ("-m", Meaning::Instead("name Python as the program: sirtaki run -n 4 -- python -m MODULE")),
    ("--module", Meaning::Instead("name Python as the program: sirtaki run -n 4 -- python -m MODULE")),
    (
        "--config-file",
        Meaning::Instead("--config FILE reads options from a file in TOML; `sirtaki run --help` has one"),
    ),
    ("--check-build", Meaning::Instead("`sirtaki doctor` shows what is there")),
    ("--disable-cache", Meaning::Instead("omit it: there is no cache of earlier checks of hosts")),
    ("--autotune", Meaning::Instead(CHOSEN)),
    ("--hierarchical-allreduce", Meaning::Instead(CHOSEN)),
    ("--hierarchical-allgather", Meaning::Instead(CHOSEN)),
    ("--num-nccl-streams", Meaning::Instead(CHOSEN)),
    ("--thread-affinity", Meaning::Instead(PLACES)),
    ("--no-stall-check", Meaning::Instead("set a variable: --env SIRTAKI_WARN_AFTER=off")),
    ("--stall-check-warning-time-seconds", Meaning::Instead("set a variable: --env SIRTAKI_WARN_AFTER=60")),
    ("--stall-check-shutdown-time-seconds", Meaning::Instead("set the limit for tensors that wait: --hang-timeout 60")),
    ("--fusion-threshold-mb", Meaning::Instead("set a variable: --env SIRTAKI_FUSION=64M")),
    ("--cycle-time-ms", Meaning::Instead("omit it: tensors are sent as soon as all ranks have them")),
    ("--cache-capacity", Meaning::Instead("omit it: repeated steps are recognised whatever their size")),
    ("--log-level", Meaning::Instead("--verbose says more; docs/environment.md lists what else can be set")),
    ("--timeline-mark-cycles", Meaning::Instead("omit it: the timeline shows when ranks agreed in any case")),
];

/// What an option means, with dashes or underscores inside.
pub(super) fn meaning(name: &str) -> Option<Meaning> {
    let dashed = name.replace('_', "-");
    KNOWN.iter().find(|(known, _)| *known == dashed).map(|(_, meaning)| *meaning)
}

/// Whether another launcher has this option.
pub(super) fn is_known(name: &str) -> bool {
    meaning(name).is_some()
}
