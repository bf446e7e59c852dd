//! The rank's side: it runs the closure, leaves the result in a file, and ends.

use std::{fmt::Display, fs, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use sirtaki_engine::{files, job::variables};

use super::{LaunchError, file, parent::Returned};
use crate::{World, init};

/// What a rank leaves behind.
pub(super) type Left<T> = Result<T, String>;

/// Runs the closure as one of its ranks; does not return.
pub(super) fn work<T: Serialize, E: Display>(
    folder: &Path,
    call: &str,
    work: impl FnOnce(&World) -> Result<T, E>,
) -> ! {
    let (rank, left): (usize, Left<T>) = match init() {
        Ok(world) => (world.rank(), work(&world).map_err(|error| error.to_string())),
        Err(error) => {
            let rank = std::env::var(variables::RANK).ok().and_then(|rank| rank.parse().ok());
            (rank.unwrap_or(0), Err(error.to_string()))
        }
    };
    let path = file(folder, call, rank);
    let fails = i32::from(left.is_err());
    let written = postcard::to_stdvec(&left)
        .map_err(|error| error.to_string())
        .and_then(|bytes| files::write(&path, &bytes).map_err(|error| error.to_string()));
    std::process::exit(if written.is_ok() { fails } else { 2 })
}

/// What an earlier call had returned to the program that started this one.
pub(super) fn earlier<T: DeserializeOwned>(folder: &Path, call: &str) -> Result<Vec<T>, LaunchError> {
    let path = file(folder, call, usize::MAX);
    let kept = fs::read(&path).ok().and_then(|bytes| postcard::from_bytes::<Returned>(&bytes).ok());
    let missing = || LaunchError::Start(format!("this rank came to {call}, which the program had not called before"));
    let results = kept.ok_or_else(missing)??;
    results.iter().map(|bytes| postcard::from_bytes(bytes).map_err(|_| missing())).collect()
}
