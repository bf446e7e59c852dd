//! Where the checkpoints of a run are, if nothing was said: each run has a folder of its own below `runs`, so that no run
//! ever touches another's.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;

use crate::printer::Advice;

const RUNS: &str = "runs";

/// The folder for a run of this model, new or to be continued, as an absolute path.
pub(super) fn choose(wanted: Option<&Path>, model: &str, resume: bool) -> Result<PathBuf> {
    let folder = match (wanted, resume) {
        (Some(folder), true) => folder.to_owned(),
        (Some(folder), false) => unused(folder)?,
        (None, true) => newest(Path::new(RUNS), model)?,
        (None, false) => free(Path::new(RUNS), &format!("{model}-{}", stamp(SystemTime::now()))),
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

/// The name, or with a number where others began in the same second.
fn free(runs: &Path, name: &str) -> PathBuf {
    let names = (1..).map(|number| if number == 1 { name.to_owned() } else { format!("{name}-{number}") });
    names.map(|name| runs.join(name)).find(|path| !path.exists()).unwrap_or_else(|| runs.join(name))
}

/// `20261115-095204`, in universal time.
fn stamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month and day, so many days after 1970 began.
fn date(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_read_as_a_calendar_says() {
        let stamp = |seconds| stamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_827_696), "20000229-123456");
        assert_eq!(stamp(1_794_736_324), "20261115-095204");
        assert_eq!(stamp(4_107_542_399), "21000228-235959");
    }

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
        assert!(free(runs.path(), "cnn-20260103-000000").ends_with("cnn-20260103-000000-2"));
        assert!(unused(&runs.path().join("cnn-20260103-000000")).is_err());
        assert!(unused(&runs.path().join("new")).is_ok());
    }
}
