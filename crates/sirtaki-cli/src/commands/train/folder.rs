//! Where the checkpoints of a run are, if nothing was said: each run has a folder of its own below `runs`, so that no run
//! ever touches another's.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::{
    launch::runs::{self, RUNS},
    printer::Advice,
};

/// The folder for a run of this model, new or to be continued, as an absolute path.
pub(super) fn choose(wanted: Option<&Path>, model: &str, resume: bool) -> Result<PathBuf> {
    let folder = match (wanted, resume) {
        (Some(folder), true) => folder.to_owned(),
        (Some(folder), false) => unused(folder)?,
        (None, true) => newest(Path::new(RUNS), model)?,
        (None, false) => runs::new(model),
    };
    Ok(std::path::absolute(folder)?)
}

/// A folder that holds no checkpoints yet.
fn unused(folder: &Path) -> Result<PathBuf> {
    if checkpoints(folder) {
        let problem = format!("{} holds the checkpoints of another run", folder.display());
        return Err(Advice::new(problem, "add --resume to go on with it, or name another --checkpoint-dir").into());
    }
    Ok(folder.to_owned())
}

/// The newest run of this model.
fn newest(runs: &Path, model: &str) -> Result<PathBuf> {
    let prefix = format!("{model}-");
    let mut found: Vec<PathBuf> = fs::read_dir(runs).map_or(Vec::new(), |entries| {
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| checkpoints(path)).collect()
    });
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
    found.sort();
    found.pop().ok_or_else(|| {
        let problem = format!("there is no run of {model} in {} to go on with", runs.display());
        Advice::new(problem, "name the folder of its checkpoints with --checkpoint-dir, or leave --resume out").into()
    })
}

fn checkpoints(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint-")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_keep_out_of_each_other_s_way() {
        let runs = tempfile::tempdir().unwrap();
        let make = |name: &str| fs::create_dir_all(runs.path().join(name).join("checkpoint-000001")).unwrap();
        assert!(newest(runs.path(), "lenet").unwrap_err().to_string().contains("no run of lenet"));
        for name in ["lenet-20260101-000000", "lenet-20260102-000000", "cnn-20260103-000000"] {
            make(name);
        }
        fs::create_dir(runs.path().join("lenet-20260104-000000")).unwrap();
        assert!(newest(runs.path(), "lenet").unwrap().ends_with("lenet-20260102-000000"));
        assert!(unused(&runs.path().join("cnn-20260103-000000")).is_err());
        assert!(unused(&runs.path().join("new")).is_ok());
    }
}
