//! The files of a run folder: limited in size, regular files, and read only up to the last complete line.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, ErrorKind, Read},
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

use super::{RecordedStep, is_run};

/// Bytes of a description.
pub(super) const SMALL: u64 = 1 << 20;
/// Bytes of a profile or of all steps: thousands of ranks, and several times what is ever written.
pub(super) const LARGE: u64 = 64 << 20;
/// Bytes of one row.
const LINE: u64 = 64 << 10;
/// Rows at most, which is above what the engine keeps.
const ROWS: usize = 200_000;

/// Folders in this one that are runs, by name.
pub(super) fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).map_or(Vec::new(), |entries| {
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_run(path)).collect()
    });
    let mut runs: Vec<PathBuf> = entries;
    runs.sort();
    runs
}

/// An open file of at most `most` bytes, `None` if there is none.
fn open(path: &Path, most: u64) -> Result<Option<File>, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let problem = |what: &dyn std::fmt::Display| format!("{name}: {what}");
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(problem(&error)),
        Ok(about) => about,
    };
    if !about.is_file() {
        return Err(problem(&"not a file"));
    }
    if about.len() > most {
        return Err(format!("{name} has {} MiB, more than the {} MiB that are read", about.len() >> 20, most >> 20));
    }
    File::open(path).map(Some).map_err(|error| problem(&error))
}

/// One JSON value.
pub(super) fn json<T: DeserializeOwned>(path: &Path, most: u64) -> Result<Option<T>, String> {
    let Some(file) = open(path, most)? else { return Ok(None) };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(|error| format!("{name}: {error}"))?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("{name} is damaged: {error}"))
}

/// All rows in the order of time, and how many could not be read. A last line that is cut off does not count.
pub(super) fn steps(path: &Path) -> Result<(Vec<RecordedStep>, usize), String> {
    let Some(file) = open(path, LARGE)? else { return Ok((Vec::new(), 0)) };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (mut reader, mut line) = (BufReader::new(file.take(LARGE)), Vec::new());
    let (mut steps, mut damaged): (Vec<RecordedStep>, usize) = (Vec::new(), 0);
    while steps.len() < ROWS {
        line.clear();
        let read = (&mut reader).take(LINE).read_until(b'\n', &mut line).map_err(|error| format!("{name}: {error}"))?;
        if read == 0 {
            break;
        }
        match serde_json::from_slice::<RecordedStep>(&line) {
            Ok(step) if step.seconds.is_some_and(|seconds| seconds >= 0.0) => steps.push(step),
            Err(_) if line.last() != Some(&b'\n') && (read as u64) < LINE => {}
            _ => damaged += 1,
        }
    }
    steps.sort_by(|a, b| a.seconds.unwrap_or(0.0).total_cmp(&b.seconds.unwrap_or(0.0)));
    Ok((steps, damaged))
}
