//! Runs a closure on many processes of this machine and returns their results: for tests, notebooks and first steps.
//!
//! A closure cannot be sent to another process, but another process can get to the same place: each rank is the same
//! program, started again with the same arguments, which runs until it reaches the same call and there runs the closure
//! instead of starting anything. The results of earlier calls are passed to the ranks, so that they get there without
//! starting anything either. In a cargo test, only that test is run again.
//!
//! So a program does the same before the call whether it is a rank or not, and its ranks end inside the call.

mod parent;
mod rank;

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt::Display,
    panic::Location,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::World;

/// Tells a rank which call it was started for: its folder and the call's name.
const CALL: &str = "SIRTAKI_CALL";

/// Why a call on many processes has no results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LaunchError {
    /// The closure returned an error on this rank before it did on any other.
    #[error("rank {rank}: {message}")]
    Rank {
        /// Which one.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// A rank ended before it reached the end of the closure: it panicked, or was killed, or could not join the others.
    #[error("rank {rank} {how}{}", said(last_lines))]
    Ended {
        /// Which one.
        rank: usize,
        /// How, as in `was killed by SIGKILL`.
        how: String,
        /// The last lines it wrote.
        last_lines: Vec<String>,
    },
    /// Nothing could be started.
    #[error("cannot start ranks: {0}")]
    Start(String),
}

fn said(lines: &[String]) -> String {
    if lines.is_empty() { String::new() } else { format!(": {}", lines.join("\n")) }
}

thread_local! {
    /// How often each call was made on this thread.
    static CALLS: RefCell<HashMap<String, usize>> = RefCell::default();
}

/// The place of a call in the program, and how often the same thread had been there before.
fn name(location: &Location<'_>) -> String {
    let place = format!("{}:{}:{}", location.file(), location.line(), location.column());
    let thread = std::thread::current().name().unwrap_or_default().to_owned();
    let key = format!("{thread} {place}");
    let times = CALLS.with_borrow_mut(|calls| {
        let times = calls.entry(key.clone()).or_default();
        *times += 1;
        *times
    });
    format!("{key} {times}")
}

/// The file that keeps something about a call, or about one rank of it.
fn file(folder: &Path, call: &str, rank: usize) -> PathBuf {
    let call: String = call.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    folder.join(format!("{call}.{rank}"))
}

/// Runs `work` on `ranks` processes of this machine and returns their results, by rank, or the first error.
///
/// ```no_run
/// # fn main() -> Result<(), sirtaki::LaunchError> {
/// let sums = sirtaki::launch(4, |world| {
///     let mut mine = vec![world.rank() as f32];
///     # let _ = &mut mine;
///     Ok::<_, std::io::Error>(mine)
/// })?;
/// assert_eq!(sums.len(), 4);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn launch<T, E>(ranks: usize, work: impl FnOnce(&World) -> Result<T, E>) -> Result<Vec<T>, LaunchError>
where
    T: Serialize + DeserializeOwned,
    E: Display,
{
    let call = name(Location::caller());
    let started_for = std::env::var(CALL).ok();
    match started_for.as_deref().and_then(|value| value.split_once('\n')) {
        Some((folder, wanted)) if wanted == call => rank::work(Path::new(folder), &call, work),
        Some((folder, _)) => rank::earlier(Path::new(folder), &call),
        None => parent::run(ranks, &call),
    }
}
