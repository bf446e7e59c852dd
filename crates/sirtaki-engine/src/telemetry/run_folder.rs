//! The folder in which rank 0 keeps what a run was and how it went, for `sirtaki report`.
//!
//! A thread of its own writes, so that a slow disk holds up nothing else. `run.json` and `profile.json` are replaced as
//! a whole; `steps.jsonl` gets a line whenever the program reports its progress. Once it has [`ROWS`] lines, every
//! second one is dropped, and from then on only every second one is kept, and so on; lines with a test always stay.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sirtaki_comm::Group;

use super::{
    profile::Profile,
    progress::Progress,
    record::GpuSample,
    run_info::{About, End},
};
use crate::{Warn, files, machine};

/// Most lines of the course of a run.
const ROWS: usize = 20_000;
/// Reports that may wait; beyond that they are dropped and counted.
const ROOM: usize = 4096;
/// How long a line may stay in memory.
const FLUSH: Duration = Duration::from_secs(1);

/// A line of `steps.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    /// Since the start.
    seconds: f64,
    #[serde(flatten)]
    progress: Progress,
    /// Of the GPU of rank 0, where that is known: bytes of memory in use, and percent of the time in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_utilisation: Option<u32>,
}

enum Work {
    Row(Row),
    Settings(BTreeMap<String, String>),
    Profile(Box<Profile>),
    End(Option<String>, u64),
}

/// The thread, seen from outside.
#[derive(Debug)]
pub(crate) struct RunFolder {
    folder: PathBuf,
    begun: Instant,
    work: SyncSender<Work>,
    thread: JoinHandle<()>,
    dropped: u64,
}

impl RunFolder {
    /// Begins a run in this folder, or next to it if it already holds one.
    pub(crate) fn start(wanted: &Path, group: &Group, warn: Warn) -> io::Result<Self> {
        let folder = free(wanted)?;
        let about = About::new(&folder, group);
        let rows = Rows::create(folder.join("steps.jsonl"))?;
        let mut writer = Writer { folder: folder.clone(), about, rows, warn };
        writer.write_about()?;
        let (work, orders) = sync_channel(ROOM);
        let thread = thread::Builder::new().name("sirtaki-run_folder".into()).spawn(move || writer.write(&orders))?;
        Ok(Self { folder, begun: Instant::now(), work, thread, dropped: 0 })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The program has come this far.
    pub(crate) fn progress(&mut self, progress: &Progress, gpu: Option<GpuSample>) {
        let row = Row {
            seconds: self.begun.elapsed().as_secs_f64(),
            progress: *progress,
            gpu_memory_bytes: gpu.map(|gpu| gpu.memory),
            gpu_utilisation: gpu.and_then(|gpu| gpu.busy),
        };
        self.dropped += u64::from(self.work.try_send(Work::Row(row)).is_err());
    }

    /// More settings of the program.
    pub(crate) fn settings(&mut self, settings: BTreeMap<String, String>) {
        self.dropped += u64::from(self.work.try_send(Work::Settings(settings)).is_err());
    }

    /// The numbers counted so far.
    pub(crate) fn profile(&mut self, profile: Profile) {
        // The next one contains it all again.
        let _ = self.work.try_send(Work::Profile(Box::new(profile)));
    }

    /// The run is over, for this reason if it failed. Returns when everything is on disk.
    pub(crate) fn end(self, profile: Profile, failed: Option<String>) {
        let _ = self.work.send(Work::Profile(Box::new(profile)));
        let _ = self.work.send(Work::End(failed, self.dropped));
        let _ = self.thread.join();
    }
}

/// The folder, or the first with a number after its name that holds no run.
fn free(wanted: &Path) -> io::Result<PathBuf> {
    let name = wanted.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy().into_owned();
    for number in 1_u32.. {
        let folder = if number == 1 { wanted.to_owned() } else { wanted.with_file_name(format!("{name}-{number}")) };
        files::make_private(&folder)?;
        // Made here and now, so that two processes that look at once do not both find it free.
        match files::create_new(&folder.join("run.json")) {
            Ok(_) => return Ok(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

struct Writer {
    folder: PathBuf,
    about: About,
    rows: Rows,
    warn: Warn,
}

impl Writer {
    fn write(mut self, orders: &Receiver<Work>) {
        let (begun, load) = (Instant::now(), machine::load());
        loop {
            let work = orders.recv_timeout(FLUSH);
            let last = matches!(work, Ok(Work::End(..)) | Err(RecvTimeoutError::Disconnected));
            let done = match work {
                Ok(Work::Row(row)) => self.rows.add(&row),
                Ok(Work::Settings(settings)) => {
                    self.about.settings.extend(settings);
                    self.write_about()
                }
                Ok(Work::Profile(profile)) => {
                    files::write(&self.folder.join("profile.json"), profile.to_json().as_bytes())
                }
                Ok(Work::End(failed, dropped)) => {
                    let seconds = begun.elapsed().as_secs_f64();
                    let load = load
                        .zip(machine::load())
                        .and_then(|(before, after)| machine::load_during(before, after, seconds));
                    self.about.ended = Some(End { seconds, failed, dropped, load });
                    self.rows.flush().and_then(|()| self.write_about())
                }
                Err(_) => self.rows.flush(),
            };
            if let Err(error) = done {
                let folder = self.folder.display();
                return (self.warn)(&format!(
                    "the run is not recorded in {folder} any more: {error}; hint: look for space on the disk"
                ));
            }
            if last {
                return;
            }
        }
    }

    fn write_about(&mut self) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.about)? + "\n";
        files::write(&self.folder.join("run.json"), text.as_bytes())
    }
}

/// The course of a run.
struct Rows {
    path: PathBuf,
    file: BufWriter<File>,
    lines: usize,
    /// One in this many is kept.
    stride: u64,
    seen: u64,
    /// When lines were last passed to the system.
    flushed: Instant,
}

impl Rows {
    fn create(path: PathBuf) -> io::Result<Self> {
        let file = BufWriter::new(files::create(&path)?);
        Ok(Self { path, file, lines: 0, stride: 1, seen: 0, flushed: Instant::now() })
    }

    fn add(&mut self, row: &Row) -> io::Result<()> {
        self.seen += 1;
        if !row.progress.is_test() && !self.seen.is_multiple_of(self.stride) {
            return Ok(());
        }
        serde_json::to_writer(&mut self.file, row)?;
        self.file.write_all(b"\n")?;
        self.lines += 1;
        if self.lines >= ROWS {
            self.thin_out()?;
        }
        if self.flushed.elapsed() >= FLUSH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.file.flush()
    }

    fn thin_out(&mut self) -> io::Result<()> {
        self.flush()?;
        let mut kept = Vec::new();
        let mut lines = 0;
        for (number, line) in BufReader::new(File::open(&self.path)?).lines().enumerate() {
            let line = line?;
            let is_test = || serde_json::from_str::<Row>(&line).is_ok_and(|row| row.progress.is_test());
            if number % 2 == 1 || is_test() {
                kept.extend_from_slice(line.as_bytes());
                kept.push(b'\n');
                lines += 1;
            }
        }
        files::write(&self.path, &kept)?;
        self.file = BufWriter::new(OpenOptions::new().append(true).open(&self.path)?);
        (self.lines, self.stride) = (lines, self.stride * 2);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, sync::Arc};

    use serde_json::Value;

    use super::*;

    fn read(path: PathBuf) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    fn rows(folder: &Path) -> Vec<Row> {
        let text = fs::read_to_string(folder.join("steps.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_run_is_written_down_and_another_one_beside_it() {
        let runs = tempfile::tempdir().unwrap();
        let wanted = runs.path().join("deep").join("first");
        let profile = || Profile::new(vec!["a".into()], vec![None]);
        for (name, failed) in [("first", None), ("first-2", Some("rank 1 died".to_owned()))] {
            let mut run_folder = RunFolder::start(&wanted, &Group::local(0, 2), Arc::new(|_| ())).unwrap();
            assert!(run_folder.folder().ends_with(name));
            let folder = run_folder.folder().to_owned();
            assert!(read(folder.join("run.json")).get("ended").is_none());
            let gpu = Some(GpuSample { memory: 7, total: 9, busy: Some(3) });
            run_folder.settings([("lr".to_owned(), "0.1".to_owned())].into());
            run_folder.progress(&Progress { step: 1, loss: Some(0.5), ..Progress::default() }, gpu);
            run_folder.end(profile(), failed.clone());
            let about = read(folder.join("run.json"));
            assert_eq!((&about["name"], &about["settings"]["lr"]), (&name.into(), &"0.1".into()));
            assert_eq!(about["ended"]["failed"], Value::from(failed));
            let row = &rows(&folder)[0];
            assert_eq!((row.progress.loss, row.gpu_memory_bytes, row.gpu_utilisation), (Some(0.5), Some(7), Some(3)));
            assert!(read(folder.join("profile.json"))["ranks"].is_array());
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        }
    }

    #[test]
    fn a_run_is_private_unless_its_folder_was_made_for_others() {
        let runs = tempfile::tempdir().unwrap();
        let mode = |folder: &Path| fs::metadata(folder).unwrap().permissions().mode() & 0o777;
        let shared = runs.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o750)).unwrap();
        for (wanted, expected, of_files) in [(runs.path().join("deep/first"), 0o700, 0o600), (shared, 0o750, 0o640)] {
            let folder = RunFolder::start(&wanted, &Group::local(0, 1), Arc::new(|_| ())).unwrap();
            assert_eq!(mode(folder.folder()), expected, "{}", wanted.display());
            folder.end(Profile::new(vec!["a".into()], vec![None]), None);
            let files = fs::read_dir(&wanted).unwrap().map(|entry| entry.unwrap().path());
            let modes: Vec<(PathBuf, u32)> = files.map(|file| (file.clone(), mode(&file))).collect();
            assert!(modes.len() == 3 && modes.iter().all(|(_, mode)| mode | 0o040 & expected == of_files), "{modes:?}");
        }
        assert_eq!(mode(&runs.path().join("deep")), 0o700);
    }

    #[test]
    fn a_long_run_keeps_every_other_line_and_all_tests() {
        let folder = tempfile::tempdir().unwrap();
        let mut rows_file = Rows::create(folder.path().join("steps.jsonl")).unwrap();
        for step in 0..3 * ROWS as u64 {
            let test_accuracy = (step == 1000).then_some(0.5);
            let progress = Progress { step, test_accuracy, ..Progress::default() };
            rows_file.add(&Row { seconds: 0.0, progress, gpu_memory_bytes: None, gpu_utilisation: None }).unwrap();
        }
        rows_file.flush().unwrap();
        let rows = rows(folder.path());
        assert!(rows.len() < ROWS && rows.len() > ROWS / 3, "{}", rows.len());
        assert!(rows.iter().any(|row| row.progress.test_accuracy == Some(0.5)));
        assert!(rows.last().unwrap().progress.step > 3 * ROWS as u64 - 10);
    }

    #[test]
    fn a_file_is_not_taken_for_a_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(RunFolder::start(file.path(), &Group::local(0, 1), Arc::new(|_| ())).is_err());
    }
}
