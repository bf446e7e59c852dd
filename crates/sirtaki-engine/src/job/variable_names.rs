//! The names of the variables that [`super::variables`] describes, apart from it so that the table stays readable.

/// This process's rank.
pub const RANK: &str = "SIRTAKI_RANK";
/// Number of processes.
pub const SIZE: &str = "SIRTAKI_SIZE";
/// This process's number on its host.
pub const LOCAL_RANK: &str = "SIRTAKI_LOCAL_RANK";
/// Number of processes on this host.
pub const LOCAL_SIZE: &str = "SIRTAKI_LOCAL_SIZE";
/// This host's number.
pub const CROSS_RANK: &str = "SIRTAKI_CROSS_RANK";
/// Number of hosts.
pub const CROSS_SIZE: &str = "SIRTAKI_CROSS_SIZE";
/// Where the ranks meet.
pub const STORE: &str = "SIRTAKI_STORE";
/// The job's secret.
pub const SECRET: &str = "SIRTAKI_SECRET";
/// The job's name.
pub const JOB: &str = "SIRTAKI_JOB";
/// How often the job was started before.
pub const RESTART: &str = "SIRTAKI_RESTART";
/// This process's number in an elastic job.
pub const MEMBER: &str = "SIRTAKI_MEMBER";
/// What this process is to its job.
pub const ROLE: &str = "SIRTAKI_ROLE";
/// This process's number among the servers.
pub const SERVER: &str = "SIRTAKI_SERVER";
/// Number of servers.
pub const SERVERS: &str = "SIRTAKI_SERVERS";
/// How often this process was started again.
pub const RETURNED: &str = "SIRTAKI_RETURNED";
/// Memory for the flight record.
pub const RECORD: &str = "SIRTAKI_RECORD";
/// Patience with a silent rank.
pub const TIMEOUT: &str = "SIRTAKI_TIMEOUT";
/// Patience at start-up.
pub const START_TIMEOUT: &str = "SIRTAKI_START_TIMEOUT";
/// The all-reduce algorithm.
pub const ALGORITHM: &str = "SIRTAKI_ALGORITHM";
/// Encryption.
pub const TLS: &str = "SIRTAKI_TLS";
/// The network interface.
pub const INTERFACE: &str = "SIRTAKI_INTERFACE";
/// Shared memory.
pub const SHM: &str = "SIRTAKI_SHM";
/// The MPI library.
pub const MPI: &str = "SIRTAKI_MPI";
/// How tensors of GPUs travel.
pub const GPU: &str = "SIRTAKI_GPU";
/// The NCCL library.
pub const NCCL: &str = "SIRTAKI_NCCL";
/// NVIDIA's management library.
pub const NVML: &str = "SIRTAKI_NVML";
/// The CUDA driver's library.
pub const CUDA: &str = "SIRTAKI_CUDA";
/// The limit of a fused batch.
pub const FUSION: &str = "SIRTAKI_FUSION";
/// The size from which a tensor is not fused.
pub const FUSION_LARGE: &str = "SIRTAKI_FUSION_LARGE";
/// Adopting a repeated order.
pub const ADOPT: &str = "SIRTAKI_ADOPT";
/// When a waiting tensor is explained.
pub const WARN_AFTER: &str = "SIRTAKI_WARN_AFTER";
/// When a waiting tensor ends the job.
pub const HANG_TIMEOUT: &str = "SIRTAKI_HANG_TIMEOUT";

/// A timeline of all ranks.
pub const TIMELINE: &str = "SIRTAKI_TIMELINE";
/// Bytes of a timeline.
pub const TIMELINE_LIMIT: &str = "SIRTAKI_TIMELINE_LIMIT";
/// A profile at the end.
pub const PROFILE: &str = "SIRTAKI_PROFILE";
/// The folder of a run.
pub const RUN_FOLDER: &str = "SIRTAKI_RUN_FOLDER";
/// The folder of files for TensorBoard.
pub const TENSORBOARD: &str = "SIRTAKI_TENSORBOARD";
/// Horovod's name for a timeline, which counts where ours is not set; `DYNAMIC` stands for one that is started later.
pub const HOROVOD_TIMELINE: &str = "HOROVOD_TIMELINE";
/// Whether a timeline in Horovod's form shows where collectives begin.
pub const HOROVOD_TIMELINE_MARK_CYCLES: &str = "HOROVOD_TIMELINE_MARK_CYCLES";
