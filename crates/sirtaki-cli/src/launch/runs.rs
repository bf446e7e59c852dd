//! Folders of runs: each run has its own below `runs`, named after the program and the time, so that no run ever
//! touches another's.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use sirtaki_engine::files;

use crate::printer::Advice;

/// Where they are by default.
pub const RUNS: &str = "runs";
/// The file that makes a folder one of a run.
const RUN: &str = "run.json";

/// The name of the folder for a new run of this program. The code that creates it ensures that no other run uses it.
pub fn name(program: &str) -> PathBuf {
    Path::new(RUNS).join(format!("{program}-{}", stamp(SystemTime::now())))
}

/// Where a run of this command is recorded, as an absolute path, and whether that has to be a new folder: `wish` is a
/// folder, a yes or a no.
pub fn choose(wish: &str, command: &[String]) -> Option<(PathBuf, bool)> {
    let (folder, is_new) = match sirtaki_engine::job::parse::switch(wish) {
        Some(false) => return None,
        Some(true) => (name(&name_of(command)), true),
        None => (PathBuf::from(wish), false),
    };
    Some((std::path::absolute(folder).ok()?, is_new))
}

/// Makes the folder of a run. If there is one of this name that is not to be used, because it holds a run or a new one
/// is wanted, the name gets a number.
pub fn reserve(wanted: &Path, is_new: bool) -> Result<PathBuf, Advice> {
    let is_free = || wanted.is_dir() && !wanted.join(RUN).exists();
    let made = if !is_new && is_free() {
        files::check(&wanted.join(RUN)).map(|()| wanted.to_owned())
    } else {
        files::new_folder(wanted)
    };
    made.map_err(|error| {
        let hint = "name a folder that can be made and written to";
        Advice::new(format!("the run cannot be recorded in {}: {error}", wanted.display()), hint)
    })
}

/// Adds to what a run's folder says how its processes were started and ended, which they cannot know themselves. A
/// folder that stayed empty, because the program records nothing, is removed.
pub fn note_ending(folder: &Path, code: u8, how: &str, rounds: &[String]) -> io::Result<()> {
    let file = folder.join(RUN);
    let text = fs::read(&file).inspect_err(|_| drop(fs::remove_dir(folder)))?;
    let mut about: Value = serde_json::from_slice(&text)?;
    about["exit"] = json!({ "code": code, "how": how });
    if !rounds.is_empty() {
        about["rounds"] = rounds.into();
    }
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    about["launch"] = without_values(words.collect()).into();
    files::write(&file, format!("{about:#}\n").as_bytes())
}

/// A command line of `sirtaki` without the values of `--env NAME=VALUE`, which may be secrets; what comes after `--` is
/// the program's own.
fn without_values(words: Vec<String>) -> Vec<String> {
    let (mut ours, mut value_next) = (true, false);
    let hide = |assignment: &str| match assignment.split_once('=') {
        Some((name, _)) => format!("{name}=…"),
        None => assignment.to_owned(),
    };
    let shown = |word: String| {
        ours &= word != "--";
        let is_value = std::mem::replace(&mut value_next, ours && word == "--env");
        match word.strip_prefix("--env=") {
            Some(assignment) if ours => format!("--env={}", hide(assignment)),
            _ if is_value => hide(&word),
            _ => word,
        }
    };
    words.into_iter().map(shown).collect()
}

/// What a command is called in the name of its runs: its script, or the program itself.
pub fn name_of(command: &[String]) -> String {
    let stem = |word: &String| Path::new(word).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let script = command.iter().find(|word| Path::new(word).extension().is_some_and(|extension| extension == "py"));
    let name = script.or(command.first()).and_then(stem).unwrap_or_default();
    let plain = |letter: char| if letter.is_alphanumeric() || "-_.".contains(letter) { letter } else { '-' };
    name.chars().map(plain).collect()
}

/// `20261115-095204`, in universal time.
fn stamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Year, month and day, this many days after the beginning of 1970.
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
    use std::{fs, time::Duration};

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
        let first = runs.path().join("first");
        assert_eq!(reserve(&first, true).unwrap(), first);
        assert!(reserve(&first, true).unwrap().ends_with("first-2"));
        assert_eq!(reserve(&first, false).unwrap(), first, "nothing was recorded there");
        fs::write(first.join(RUN), "").unwrap();
        assert!(reserve(&first, false).unwrap().ends_with("first-3"));
        fs::write(runs.path().join("file"), "").unwrap();
        let refused = reserve(&runs.path().join("file/x"), false).unwrap_err();
        assert!(refused.message.contains("file/x") && !refused.hint.is_empty());
    }

    #[test]
    fn the_end_of_a_run_is_added_and_empty_folders_go() {
        let runs = tempfile::tempdir().unwrap();
        let folder = reserve(&runs.path().join("first"), true).unwrap();
        fs::write(folder.join(RUN), "{\"name\": \"first\"}").unwrap();
        let rounds = ["round 1: 2 workers".to_owned()];
        note_ending(&folder, 1, "rank 1 ended with exit code 1", &rounds).unwrap();
        let about: Value = serde_json::from_slice(&fs::read(folder.join(RUN)).unwrap()).unwrap();
        assert_eq!((&about["name"], &about["exit"]["code"]), (&"first".into(), &1.into()));
        assert_eq!(about["rounds"], json!(rounds));
        let empty = reserve(&runs.path().join("second"), true).unwrap();
        assert!(note_ending(&empty, 0, "ended", &[]).is_err() && !empty.exists());
        assert_eq!(choose("off", &[]), None);
    }

    #[test]
    fn values_of_variables_are_not_written_down() {
        let line = "sirtaki run --env TOKEN=abc --env=KEY=a=b --env PATH -n 2 -- python --env A=1 --env=B=2";
        let shown = without_values(line.split(' ').map(str::to_owned).collect()).join(" ");
        let expected = "sirtaki run --env TOKEN=… --env=KEY=… --env PATH -n 2 -- python --env A=1 --env=B=2";
        assert_eq!(shown, expected);
    }

    #[test]
    fn runs_are_called_after_what_runs() {
        let name = |command: &str| name_of(&command.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(name("python -u scripts/train.py --lr 1"), "train");
        assert_eq!(name("./my,program a"), "my-program");
    }
}
