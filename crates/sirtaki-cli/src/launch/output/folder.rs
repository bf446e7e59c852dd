//! One file per rank with everything it wrote, byte for byte, both streams as they came.
//!
//! Files are written at once and not buffered, so that they can be followed while the job runs. A folder that already has
//! such files is refused: logs of an earlier job are neither overwritten nor mixed with new ones, and two jobs that
//! share a folder by mistake notice it.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use sirtaki_engine::files;
use sirtaki_launch::roles::{Cast, Role};

use crate::printer::Advice;

/// The open files of all ranks.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    cast: Cast,
    files: Vec<Option<File>>,
}

impl Folder {
    /// Creates the folder if it is missing, and a file for each of these processes in it.
    pub(super) fn create(path: &Path, cast: Cast) -> Result<Self> {
        files::make_private(path).with_context(|| format!("cannot make the folder {}", path.display()))?;
        refuse_logs(path)?;
        let mut folder = Self { path: path.to_owned(), cast, files: Vec::new() };
        for process in 0..cast.processes() {
            let name = path.join(file_name(process, &cast));
            match files::create_new(&name) {
                Ok(file) => folder.files.push(Some(file)),
                Err(error) => {
                    (0..process).for_each(|ours| drop(fs::remove_file(path.join(file_name(ours, &cast)))));
                    return Err(explain(&name, error));
                }
            }
        }
        Ok(folder)
    }

    /// Adds what a rank wrote. An error is returned once per rank; what the rank writes afterwards is lost.
    pub(super) fn write(&mut self, rank: usize, bytes: &[u8]) -> Result<(), String> {
        let Some(file) = &mut self.files[rank] else { return Ok(()) };
        file.write_all(bytes).map_err(|error| {
            self.files[rank] = None;
            let name = self.path.join(file_name(rank, &self.cast));
            format!("warning: cannot write {}: {error}; it ends here", name.display())
        })
    }

    /// The contents of the folder, in words.
    pub(super) fn describe(&self) -> String {
        let name = |process| file_name(process, &self.cast);
        match self.files.len() {
            0 | 1 => format!("{}", self.path.join(name(0)).display()),
            ranks => format!("{} to {}", self.path.join(name(0)).display(), name(ranks - 1)),
        }
    }
}

/// The file of a process: `rank-03.log` in a job of up to a hundred ranks, or `server-0.log`.
pub fn file_name(process: usize, cast: &Cast) -> String {
    let width = cast.ranks.saturating_sub(1).to_string().len();
    match cast.role(process) {
        Role::Worker | Role::Trial => format!("rank-{process:0width$}.log"),
        role => format!("{role}-{}.log", cast.number(process)),
    }
}

fn refuse_logs(path: &Path) -> Result<()> {
    let entries = fs::read_dir(path).with_context(|| format!("cannot read the folder {}", path.display()))?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let mut logs: Vec<String> = names.filter(|name| name.starts_with("rank-") && name.ends_with(".log")).collect();
    logs.sort();
    let Some(first) = logs.first() else { return Ok(()) };
    let more = if logs.len() > 1 { format!(" and {} more", logs.len() - 1) } else { String::new() };
    let message = format!("the output folder {} has files of another job: {first}{more}", path.display());
    let free = (2..).map(|number| format!("{}-{number}", path.display())).find(|name| !Path::new(name).exists());
    let hint =
        format!("choose another folder, such as --output {}, or move those files away", free.unwrap_or_default());
    Err(Advice::new(message, hint).into())
}

fn explain(name: &Path, error: io::Error) -> anyhow::Error {
    let message = format!("cannot make {}: {error}", name.display());
    let hint = match error.kind() {
        ErrorKind::AlreadyExists => "another job uses the same folder; choose another with --output",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space, or choose another folder with --output",
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            "every rank needs an open file; raise the limit with `ulimit -n`"
        }
        _ => "choose a folder that you may write to with --output",
    };
    Advice::new(message, hint).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::hint;

    #[test]
    fn every_rank_has_a_file_with_its_bytes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        let mut folder = Folder::create(&path, Cast::of_ranks(11)).unwrap();
        folder.write(3, b"\xff\r1").unwrap();
        folder.write(3, b"2\n").unwrap();
        assert_eq!(fs::read(path.join("rank-03.log")).unwrap(), b"\xff\r12\n");
        assert_eq!(fs::read(path.join("rank-10.log")).unwrap(), b"");
        assert!(folder.describe().ends_with("a/b/rank-00.log to rank-10.log"));
    }

    #[test]
    fn logs_of_another_job_are_never_touched() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("logs");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
        drop(Folder::create(&path, Cast::of_ranks(2)).unwrap());
        let error = Folder::create(&path, Cast::of_ranks(2)).unwrap_err();
        assert!(error.to_string().ends_with("has files of another job: rank-0.log and 1 more"), "{error}");
        assert!(hint(&error).unwrap().contains("logs-2,"), "{:?}", hint(&error));
    }

    #[test]
    fn a_full_disk_is_reported_once() {
        let file = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut folder = Folder { path: "logs".into(), cast: Cast::of_ranks(1), files: vec![Some(file)] };
        let told = folder.write(0, b"x").unwrap_err();
        assert_eq!(told, "warning: cannot write logs/rank-0.log: No space left on device (os error 28); it ends here");
        assert_eq!(folder.write(0, b"x"), Ok(()));
    }
}
