//! `torchrun`, the launcher of PyTorch.

use std::path::Path;

use super::{
    super::{JobError, Lookup, Place, parse::text},
    in_folder, number, position,
};

const SIZE: &str = "WORLD_SIZE";

/// The place of a worker. Rank and size alone say nothing: every starter sets those.
pub(crate) fn by_torchrun(get: Lookup<'_>) -> Result<Option<Place>, JobError> {
    let Some(run) = text(get, "TORCHELASTIC_RUN_ID") else { return Ok(None) };
    let Some(world) = position(get, ("RANK", SIZE), None)? else {
        return Err(JobError::Partial { name: "RANK", present: "TORCHELASTIC_RUN_ID", value: run });
    };
    let limit = Some((SIZE, world.size));
    let local = position(get, ("LOCAL_RANK", "LOCAL_WORLD_SIZE"), limit)?;
    let cross = position(get, ("GROUP_RANK", "GROUP_WORLD_SIZE"), limit)?;
    let part = |name: &str| text(get, name).unwrap_or_default();
    let restarts = number::<u64>(get, "TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0);
    // Several hosts share the address of one of them, where a port belongs to one job alone. On one host the address
    // may be a default that every job has, but the folder for the workers' errors, or else the process that started
    // them, belongs to this job.
    let one_host = local.is_some_and(|local| local.size == world.size);
    let folder =
        local.filter(|_| one_host).and_then(|local| folder_of_attempt(&part("TORCHELASTIC_ERROR_FILE"), local.rank));
    let by_parent = one_host && folder.is_none();
    let key = format!("{:?}", ("torchrun", run, part("MASTER_ADDR"), part("MASTER_PORT"), restarts, folder));
    in_folder(get, world, local, cross, (key, by_parent)).map(Some)
}

/// The folder of a worker's error file that it shares with the others: each has its own below it, by local rank.
fn folder_of_attempt(file: &str, local_rank: usize) -> Option<String> {
    let own = Path::new(file).parent()?;
    (own.file_name()?.to_str()? == local_rank.to_string()).then(|| own.parent()?.to_str().map(Into::into))?
}
