//! What starters of jobs leave in a process's variables: a function for each starter, which returns nothing if another
//! one was used, a place if it was this one, and an error if its variables contradict each other.

mod mpi;
mod sirtaki;
mod slurm;
#[cfg(test)]
mod tests;
mod torchrun;

use std::{path::PathBuf, str::FromStr};

pub(super) use self::{
    mpi::by_mpi,
    sirtaki::{by_sirtaki, role, store},
    slurm::by_slurm,
    torchrun::by_torchrun,
};
use super::{JobError, Lookup, Place, Position, parse::text, place::Meeting};

/// A number in a variable, if it is set.
fn number<T: FromStr>(get: Lookup<'_>, name: &'static str) -> Result<Option<T>, JobError> {
    let Some(value) = text(get, name) else { return Ok(None) };
    let number = value.parse().map_err(|_| JobError::Bad { name, value, allowed: "a number".into() })?;
    Ok(Some(number))
}

/// A position from the variables for rank and size. The size is at most `limit`, the size of something larger, given
/// with its name.
fn position(
    get: Lookup<'_>,
    (rank_name, size_name): (&'static str, &'static str),
    limit: Option<(&str, usize)>,
) -> Result<Option<Position>, JobError> {
    let (rank, size) = (number::<usize>(get, rank_name)?, number::<usize>(get, size_name)?);
    let (rank, size) = match (rank, size) {
        (None, None) => return Ok(None),
        (Some(rank), Some(size)) => (rank, size),
        (None, Some(size)) => return partial(rank_name, size_name, size),
        (Some(rank), None) => return partial(size_name, rank_name, rank),
    };
    let bad = |name, value: usize, allowed| Err(JobError::Bad { name, value: value.to_string(), allowed });
    if size == 0 {
        return bad(size_name, size, "a number above zero".into());
    }
    if let Some((larger, limit)) = limit
        && size > limit
    {
        return bad(size_name, size, format!("at most {limit}, which is {larger}"));
    }
    if rank >= size {
        return bad(rank_name, rank, format!("below {size}, which is {size_name}"));
    }
    Ok(Some(Position { rank, size }))
}

fn partial<T>(name: &'static str, present: &'static str, value: usize) -> Result<T, JobError> {
    Err(JobError::Partial { name, present, value: value.to_string() })
}

/// A place whose ranks meet in the user's cache folder; a single rank has nobody to meet.
fn in_folder(
    get: Lookup<'_>,
    world: Position,
    local: Option<Position>,
    cross: Option<Position>,
    (key, by_parent): (String, bool),
) -> Result<Place, JobError> {
    if world.size == 1 {
        return Ok(Place::alone());
    }
    let meeting = Meeting::Folder { cache: cache(get)?, key, by_parent };
    Ok(Place { rank: world.rank, size: world.size, local, cross, meeting })
}

/// The user's folder for files that can be lost. A relative path would mean a different folder in every process.
pub(super) fn cache(get: Lookup<'_>) -> Result<PathBuf, JobError> {
    let folder = |name| text(get, name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache"))).ok_or_else(|| {
        let allowed = "the user's folder, in which the ranks are to meet, unless XDG_CACHE_HOME is another one".into();
        JobError::Missing { name: "HOME", allowed }
    })
}
