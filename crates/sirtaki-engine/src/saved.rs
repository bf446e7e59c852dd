//! Outcomes of tuning in a file, for the next job. Only rank 0 reads and writes it.
//!
//! A file that is not one of ours is never written to. One that is, is replaced as a whole: written beside, brought to
//! disk and renamed, so that whoever reads it sees the old or the new one. Two jobs that end their search at the same
//! moment may lose the outcome of one, which is searched for again.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{
    files::replace,
    tune::{Choice, Tuned, Workload},
};

/// The kind of file, in its first line.
const FORMAT: &str = "sirtaki tuning, version 1";
/// Bytes of a file at most.
const LARGEST: u64 = 1 << 20;
/// Outcomes in a file at most; the oldest go.
const MOST: usize = 500;

/// Where an outcome is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// Of this library.
    pub version: String,
    /// How many there are.
    pub ranks: usize,
    /// On how many hosts.
    pub hosts: usize,
    /// The communicator, and what was asked of it.
    pub transport: String,
}

/// One outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    place: Place,
    #[serde(flatten)]
    workload: Workload,
    #[serde(flatten)]
    choice: Choice,
    milliseconds: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    format: String,
    outcomes: Vec<Entry>,
}

fn parse(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let contents: Contents = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if contents.format != FORMAT {
        return Err(format!(
            "its format is \"{}\", not \"{FORMAT}\"",
            contents.format.chars().take(80).collect::<String>()
        ));
    }
    Ok(contents.outcomes)
}

fn read(path: &Path) -> Result<Vec<Entry>, String> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes"));
    }
    parse(&bytes)
}

/// What is known for `place`. An error says why the file is no use and must be left as it is.
pub(crate) fn load(path: &Path, place: &Place) -> Result<Vec<Tuned>, String> {
    let entries = read(path).map_err(|problem| {
        let path = path.display();
        format!(
            "the outcomes of tuning in {path} cannot be read and are left as they are: {problem}; \
             hint: remove the file or name another one"
        )
    })?;
    let tuned = |entry: Entry| Tuned {
        workload: entry.workload,
        choice: entry.choice,
        seconds: entry.milliseconds.map(|milliseconds| milliseconds / 1e3),
        before: None,
        measured: 0,
    };
    Ok(entries.into_iter().filter(|entry| entry.place == *place).map(tuned).collect())
}

/// Adds an outcome, in the place of an older one of the same kind.
pub(crate) fn save(path: &Path, place: &Place, tuned: &Tuned) -> Result<(), String> {
    let write = || {
        let mut outcomes = read(path)?;
        outcomes.retain(|entry| entry.place != *place || entry.workload != tuned.workload);
        let milliseconds = tuned.seconds.map(|seconds| seconds * 1e3);
        outcomes.push(Entry { place: place.clone(), workload: tuned.workload, choice: tuned.choice, milliseconds });
        outcomes.drain(..outcomes.len().saturating_sub(MOST));
        let contents = Contents { format: FORMAT.into(), outcomes };
        let text = serde_json::to_string_pretty(&contents).map_err(|error| error.to_string())? + "\n";
        replace(path, text.as_bytes()).map_err(|error| error.to_string())
    };
    write().map_err(|problem| format!("the outcome of tuning cannot be saved in {}: {problem}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use sirtaki_comm::collective::Algorithm;

    use super::*;
    use crate::{fuse::Limits, message::Knobs};

    fn place(ranks: usize) -> Place {
        Place { version: "1".into(), ranks, hosts: 1, transport: "mesh".into() }
    }

    fn tuned(bytes: u64, fused: usize) -> Tuned {
        let limits = Limits { fused, large: 5 };
        let knobs = Knobs { algorithm: Some(Algorithm::Halving), piece: None };
        let workload = Workload { tensors: 2, bytes };
        Tuned { workload, choice: Choice { limits, knobs }, seconds: Some(0.5), before: None, measured: 0 }
    }

    #[test]
    fn outcomes_are_found_where_they_are_valid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuned.json");
        assert_eq!(load(&path, &place(2)), Ok(Vec::new()));
        for (ranks, bytes, fused) in [(2, 10, 1), (2, 20, 2), (4, 10, 3), (2, 10, 4)] {
            save(&path, &place(ranks), &tuned(bytes, fused)).unwrap();
        }
        assert_eq!(load(&path, &place(2)).unwrap(), [tuned(20, 2), tuned(10, 4)]);
        assert_eq!(load(&path, &place(4)).unwrap(), [tuned(10, 3)]);
        assert_eq!(load(&path, &Place { transport: "arena".into(), ..place(2) }), Ok(Vec::new()));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"algorithm\": \"halving\"") && text.contains("\"ranks\": 4"), "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn what_is_not_ours_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        for text in ["shopping: milk", "{}", "{\"format\": \"other\", \"outcomes\": []}", ""] {
            fs::write(&path, text).unwrap();
            let problem = load(&path, &place(2)).unwrap_err();
            assert!(problem.contains("notes.txt") && problem.contains("hint: "), "{problem}");
            assert!(save(&path, &place(2), &tuned(1, 1)).unwrap_err().contains("cannot be saved"));
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert!(load(folder.path(), &place(2)).is_err());
        assert!(save(&folder.path().join("none").join("x"), &place(2), &tuned(1, 1)).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }
    }
}
