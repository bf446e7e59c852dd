//! The folder that all processes of a job share, from the job's beginning to its end.
//!
//! It lies beside the output and has the job as it was decided, the ledger, and what workers say of themselves. Whoever comes
//! first begins the job; everybody else, in the same moment or after a crash, finds it there. A job that was begun keeps
//! its tiles, whatever memory and workers there are the next time.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use sirtaki_volume::{
    VolumeError,
    format::{self, Coarsen, Existing},
    ledger::{Company, Ledger, LedgerOptions},
};

use crate::{InferError, Job, error::refused, sink::Sink, work::WorkerReport};

/// How long to wait for a lock on the ledger.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long workers whose launcher was killed may take to end.
const ENDING: Duration = Duration::from_secs(30);
/// How often to look whether they have.
const LOOK: Duration = Duration::from_millis(20);
/// A number that no tile has: whoever leases it completes the output.
pub(crate) const FINISH: u64 = u64::MAX;
/// How long completing may take until somebody else tries, in seconds.
const FINISHING: u64 = 3600;

const JOB: &str = "job.json";
const BEGUN: &str = "begun";
const COMPLETE: &str = "complete";

/// The folder of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    folder: PathBuf,
    output: PathBuf,
}

/// A job that was begun by this process or another.
#[derive(Debug)]
pub struct Begun {
    /// The job.
    pub job: Job,
    /// Its ledger.
    pub ledger: Ledger,
    /// Shows others that this process looks after workers.
    _presence: File,
}

impl Place {
    /// That of the job with this output.
    pub fn of(output: &Path) -> Result<Self, InferError> {
        let Some(name) = output.file_name() else {
            return Err(
                VolumeError::format(output, "this is not the name of a file", "name one, as in `out.zarr`").into()
            );
        };
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".job");
        Ok(Self { folder: output.with_file_name(hidden), output: output.to_owned() })
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The output that is made.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The job that was begun here, if there is one.
    pub fn job(&self) -> Result<Option<Job>, InferError> {
        let path = self.folder.join(JOB);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(VolumeError::Io { path, error }.into()),
        };
        let damaged = |error: serde_json::Error| {
            let hint = format!("delete `{}` to begin again", self.folder.display());
            VolumeError::format(&path, format!("no job of this version of Sirtaki: {error}"), hint)
        };
        Ok(Some(serde_json::from_str(&text).map_err(damaged)?))
    }

    /// Whether the output is complete: another process was faster, or nothing was left but to clean up.
    pub fn is_complete(&self) -> Result<bool, InferError> {
        let there = self.output.try_exists().map_err(VolumeError::io(&self.output))?;
        Ok(there && !self.folder.join(JOB).exists() && !format::is_begun(&self.output)?)
    }

    /// Begins this job, or continues the one that is here if it is the same. Unless it wants to `join` them, other processes
    /// at work are a reason to refuse.
    pub fn begin(&self, job: &Job, worker: &str, join: bool) -> Result<Begun, InferError> {
        fs::create_dir_all(&self.folder).map_err(VolumeError::io(&self.folder))?;
        let gate = self.folder.join("gate");
        let lock = File::create(&gate).and_then(|file| file.lock().map(|()| file)).map_err(VolumeError::io(&gate))?;
        let job = match self.job()? {
            Some(begun) => self.same(begun, job)?,
            None => {
                self.refuse_existing(job)?;
                self.write(JOB, &serde_json::to_string_pretty(job).unwrap_or_default())?;
                job.clone()
            }
        };
        if !self.folder.join(BEGUN).exists() {
            // What a process that died here has left of the output is made anew.
            if let Err(error) = format::create(&self.output, &job.layout, Existing::Replace) {
                let _ = fs::remove_dir_all(&self.folder);
                return Err(error.into());
            }
            self.write(BEGUN, "")?;
        }
        let presence = self.presence(&job, worker, join)?;
        let ledger = self.ledger(&job, worker)?;
        drop(lock);
        Ok(Begun { job, ledger, _presence: presence })
    }

    /// Shows others that somebody looks after workers here. Unless it wants to join them, nobody else may.
    fn presence(&self, job: &Job, worker: &str, join: bool) -> Result<File, InferError> {
        let path = self.folder.join("starters");
        let file = File::create(&path).map_err(VolumeError::io(&path))?;
        if !join {
            match file.try_lock() {
                Ok(()) => self.wait_alone(job, worker)?,
                Err(TryLockError::WouldBlock) => {
                    return Err(refused(
                        format!("{}: another command works on this output", self.output.display()),
                        "wait for it; or let all of them share the work with --join",
                    ));
                }
                Err(TryLockError::Error(error)) => return Err(VolumeError::Io { path, error }.into()),
            }
        }
        file.lock_shared().map_err(VolumeError::io(&path))?;
        Ok(file)
    }

    /// Waits until workers have ended whose starter was killed.
    fn wait_alone(&self, job: &Job, worker: &str) -> Result<(), InferError> {
        let deadline = Instant::now() + ENDING;
        loop {
            match self.open(job, worker, Company::Alone) {
                Err(_) if Instant::now() < deadline => thread::sleep(LOOK),
                other => return other.map(drop),
            }
        }
    }

    /// An output that is there, or was begun by somebody else, stays.
    fn refuse_existing(&self, job: &Job) -> Result<(), InferError> {
        let there = self.output.try_exists().map_err(VolumeError::io(&self.output))?;
        if there && !job.settings.replace {
            let _ = fs::remove_dir_all(&self.folder);
            let hint = "choose another name, or replace it when the new one is complete: --replace";
            return Err(VolumeError::format(&self.output, "this is there already", hint).into());
        }
        Ok(())
    }

    /// The job that was begun, if the one that is asked for differs in nothing but what the user left open.
    fn same(&self, begun: Job, asked: &Job) -> Result<Job, InferError> {
        let mut asked = asked.clone();
        if asked.settings.tile.is_none() {
            asked.spec.core = begun.spec.core.clone();
        }
        let differences = begun.identity().differences(&asked.identity());
        match differences.is_empty() {
            true => Ok(begun),
            false => Err(VolumeError::format(
                &self.output,
                format!("another job was begun and not completed:\n  {}", differences.join("\n  ")),
                format!("write to another place, or delete `{}` to begin again", self.folder.display()),
            )
            .into()),
        }
    }

    /// Opens the ledger of a job that was begun.
    pub fn ledger(&self, job: &Job, worker: &str) -> Result<Ledger, InferError> {
        self.open(job, worker, Company::Shared)
    }

    fn open(&self, job: &Job, worker: &str, company: Company) -> Result<Ledger, InferError> {
        let path = self.folder.join("ledger");
        let options = LedgerOptions { path, worker: worker.to_owned(), company, patience: PATIENCE };
        Ok(Ledger::open(&options, &job.identity())?)
    }

    /// Completes the output, once all tiles are done, unless another process does it. Whether this one did.
    pub fn finish(&self, job: &Job, ledger: &mut Ledger, now: u64) -> Result<bool, InferError> {
        if ledger.claim(&[FINISH], 1, now, FINISHING)?.is_empty() {
            return Ok(false);
        }
        if format::is_begun(&self.output)? {
            let sink = Sink::open(job)?;
            let levels = job.layout.zarr.map_or(1, |style| style.levels);
            let how = if job.settings.content.is_number() { Coarsen::First } else { Coarsen::Mean };
            if levels > 1 {
                sink.volume().add_levels(levels, how)?;
            }
            self.write(COMPLETE, "")?;
            sink.volume().finish()?;
        } else if !self.folder.join(COMPLETE).exists() {
            let hint = format!("delete `{}` to begin again", self.folder.display());
            return Err(refused(format!("{}: the unfinished output is gone", self.output.display()), hint));
        }
        // Without it, nobody takes what is left for a job.
        let path = self.folder.join(JOB);
        fs::remove_file(&path).map_err(VolumeError::io(&path))?;
        fs::remove_dir_all(&self.folder).map_err(VolumeError::io(&self.folder))?;
        Ok(true)
    }

    /// Keeps what a worker says of itself.
    pub fn tell(&self, report: &WorkerReport) -> Result<(), InferError> {
        let name: String = report.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        self.write(&format!("worker-{name}.json"), &serde_json::to_string(report).unwrap_or_default())
    }

    /// What all workers have said of themselves.
    pub fn told(&self) -> Vec<WorkerReport> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let ours = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("worker-"));
        let mut paths: Vec<PathBuf> = entries.filter(ours).collect();
        paths.sort();
        paths.iter().filter_map(|path| serde_json::from_str(&fs::read_to_string(path).ok()?).ok()).collect()
    }

    /// Writes a whole file, or nothing.
    fn write(&self, name: &str, text: &str) -> Result<(), InferError> {
        let (path, new) = (self.folder.join(name), self.folder.join(format!("{name}.{}", std::process::id())));
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(VolumeError::io(&path))?;
        Ok(())
    }
}
