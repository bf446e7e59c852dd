//! A study and its journal on disk, which agree after every change.
//!
//! A change takes the journal's lock, reads what others have written since, acts, appends the lines of it in one write, and
//! flushes them once. So one coordinator, several workers, or Optuna's own processes can share a journal, and whatever a
//! trial was told is still true after a crash.
//!
//! The file is opened and closed while the lock is held, every time: on network file systems that is what makes one host see
//! what another has written.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use sirtaki_engine::files;
use sirtaki_search::{
    SearchError,
    journal::read,
    study::{Archive, Definition, Study},
};

use super::{advice, lock::JournalLock};
use crate::printer::Advice;

/// More than any journal has.
const MOST: u64 = 4 << 30;

/// Which study is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedStudy {
    /// One that is not there yet.
    New,
    /// One that is there.
    Existing,
    /// Either.
    Any,
}

/// A study that has been opened.
pub struct Opened {
    /// The study.
    pub store: StudyStore,
    /// Whether it was there before.
    pub existed: bool,
    /// The torn end of a line, which was dropped.
    pub torn: Option<String>,
}

/// A study with its journal, or without one, in memory.
pub struct StudyStore {
    study: Study,
    journal: Option<JournalFile>,
}

struct JournalFile {
    path: PathBuf,
    /// How many bytes the study knows.
    length: u64,
    /// Whether some of what was written may not be on the disk yet.
    unflushed: bool,
    /// Why nothing more can be written.
    broken: Option<Advice>,
}

impl StudyStore {
    /// A study that ends with this process.
    pub fn in_memory(definition: Definition) -> Result<Self, Advice> {
        let study = Study::create(definition, Archive::default(), &worker()).map_err(advice)?;
        Ok(Self { study, journal: None })
    }

    /// The study of this definition's name in a journal. One that exists keeps its own definition.
    pub fn open(path: &Path, definition: Definition, wanted: WantedStudy) -> Result<Opened, Advice> {
        let mut journal = JournalFile { path: path.to_owned(), length: 0, unflushed: false, broken: None };
        drop(journal.open(wanted != WantedStudy::Existing)?);
        let lock = JournalLock::acquire(path)?;
        let mut file = journal.open(false)?;
        let (archive, torn) = journal.read_all(&mut file)?;
        let existed = archive.studies().any(|study| study.name == definition.name);
        if existed && wanted == WantedStudy::New {
            let message = format!("study `{}` is in {} already", definition.name, path.display());
            return Err(Advice::new(message, "add --resume to continue it, or give the new study another name"));
        }
        let study = match existed || wanted == WantedStudy::Existing {
            true => Study::open(archive, &definition.name, &worker()),
            false => Study::create(definition, archive, &worker()),
        };
        let mut store = Self { study: study.map_err(advice)?, journal: Some(journal) };
        store.append(&mut file, true)?;
        drop(file);
        drop(lock);
        Ok(Opened { store, existed, torn })
    }

    /// The study, to look at.
    pub fn study(&self) -> &Study {
        &self.study
    }

    /// Where its journal is.
    pub fn path(&self) -> Option<&Path> {
        self.journal.as_ref().map(|journal| journal.path.as_path())
    }

    /// Changes the study and its journal. What is `durable` survives a crash of the machine, the rest one of the process.
    pub fn change<T>(
        &mut self,
        durable: bool,
        act: impl FnOnce(&mut Study) -> Result<T, SearchError>,
    ) -> Result<T, Advice> {
        let Some(journal) = &mut self.journal else {
            let result = act(&mut self.study).map_err(advice);
            drop(self.study.take_lines());
            return result;
        };
        if let Some(broken) = &journal.broken {
            return Err(broken.clone());
        }
        let lock = JournalLock::acquire(&journal.path)?;
        let mut file = journal.open(false)?;
        journal.catch_up(&mut file, &mut self.study)?;
        let result = act(&mut self.study).map_err(advice);
        self.append(&mut file, durable)?;
        drop(file);
        drop(lock);
        result
    }

    /// Has everything on the disk that was written before and was not durable.
    pub fn flush(&mut self) -> Result<(), Advice> {
        self.journal.as_mut().map_or(Ok(()), JournalFile::flush)
    }

    /// Takes in what others have written.
    pub fn refresh(&mut self) -> Result<(), Advice> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let lock = JournalLock::acquire(&journal.path)?;
        journal.catch_up(&mut journal.open(false)?, &mut self.study)?;
        drop(lock);
        Ok(())
    }

    fn append(&mut self, file: &mut File, durable: bool) -> Result<(), Advice> {
        let lines = self.study.take_lines();
        match &mut self.journal {
            Some(journal) if !lines.is_empty() => journal.append(file, lines.as_bytes(), durable),
            _ => Ok(()),
        }
    }
}

impl JournalFile {
    fn open(&self, create: bool) -> Result<File, Advice> {
        let opened = files::options(&self.path)
            .and_then(|mut options| options.read(true).append(true).create(create).open(&self.path));
        opened.map_err(|error| unusable(&self.path, &error))
    }

    /// All studies; what is torn at the end goes.
    fn read_all(&mut self, file: &mut File) -> Result<(Archive, Option<String>), Advice> {
        let bytes = self.read_rest(file)?;
        let reading = read(&bytes).map_err(|error| self.damaged(error))?;
        self.cut(file, reading.length, bytes.len())?;
        self.length = reading.length as u64;
        Ok((Archive::new(reading.records), reading.torn))
    }

    fn catch_up(&mut self, file: &mut File, study: &mut Study) -> Result<(), Advice> {
        let bytes = self.read_rest(file)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let reading = read(&bytes).map_err(|error| self.damaged(error))?;
        self.cut(file, reading.length, bytes.len())?;
        self.length += reading.length as u64;
        reading.records.into_iter().for_each(|record| study.take_in(record));
        Ok(())
    }

    fn read_rest(&self, file: &mut File) -> Result<Vec<u8>, Advice> {
        let explain = |error: io::Error| unusable(&self.path, &error);
        let size = file.metadata().map_err(explain)?.len();
        if size < self.length {
            let message = format!("the journal {} became shorter while it was in use", self.path.display());
            return Err(Advice::new(message, "something else writes to it; restore a copy"));
        }
        let mut bytes = Vec::new();
        if size > self.length {
            file.seek(SeekFrom::Start(self.length)).map_err(explain)?;
            file.take(MOST).read_to_end(&mut bytes).map_err(explain)?;
        }
        Ok(bytes)
    }

    /// Everybody who appends holds the lock, so a line without its end has lost its writer.
    fn cut(&self, file: &File, whole: usize, found: usize) -> Result<(), Advice> {
        if whole == found {
            return Ok(());
        }
        file.set_len(self.length + whole as u64).map_err(|error| unusable(&self.path, &error))
    }

    fn append(&mut self, file: &mut File, lines: &[u8], durable: bool) -> Result<(), Advice> {
        let written = file.write_all(lines).and_then(|()| if durable { file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // Readers must not find half a line where others will go on writing.
            let _ = file.set_len(self.length);
            let broken = unusable(&self.path, &error);
            self.broken = Some(broken.clone());
            return Err(broken);
        }
        self.length += lines.len() as u64;
        self.unflushed = !durable;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Advice> {
        if std::mem::take(&mut self.unflushed) {
            let flushed = self.open(false)?.sync_data();
            if let Err(error) = flushed {
                let broken = unusable(&self.path, &error);
                self.broken = Some(broken.clone());
                return Err(broken);
            }
        }
        Ok(())
    }

    fn damaged(&self, error: SearchError) -> Advice {
        let told = advice(error);
        Advice::new(format!("{}: {}", self.path.display(), told.message), told.hint)
    }
}

/// A study as it is now, to look at; nothing is locked or changed. Without a name it is the only one, or the last.
pub fn look(path: &Path, name: Option<&str>) -> Result<Study, Advice> {
    let file = if path.is_dir() { path.join(super::JOURNAL) } else { path.to_owned() };
    let bytes = files::read(&file, MOST).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let hint = "name the folder of a study, such as runs/study, or a journal of Optuna";
            Advice::new(format!("there is no study in {}: {} is missing", path.display(), file.display()), hint)
        }
        _ => unusable(&file, &error),
    })?;
    let reading = read(&bytes).map_err(|error| {
        let told = advice(error);
        Advice::new(format!("{}: {}", file.display(), told.message), told.hint)
    })?;
    let archive = Archive::new(reading.records);
    let last = archive.studies().last().map(|study| study.name.clone());
    let name = name.map(str::to_owned).or(last).ok_or_else(|| {
        Advice::new(format!("the journal {} has no study", file.display()), "it is empty, or not a journal")
    })?;
    Study::open(archive, &name, &worker()).map_err(advice)
}

fn unusable(path: &Path, error: &io::Error) -> Advice {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space; --resume goes on",
        io::ErrorKind::NotFound => "is the path right?",
        _ => "the journal must be a file that can be read and written",
    };
    Advice::new(format!("the journal {} cannot be used: {error}", path.display()), hint)
}

/// What names this process in the journal, unlike any process of Optuna.
fn worker() -> String {
    let id: String = sirtaki_comm::secure::fresh_id()
        .map_or_else(|_| String::new(), |id| id[..4].iter().map(|byte| format!("{byte:02x}")).collect());
    format!("sirtaki-{}-{}-{id}", super::lock::host(), std::process::id())
}

/// Makes the folder of a study.
pub fn make_folder(folder: &Path) -> Result<(), Advice> {
    files::make_private(folder).and_then(|()| fs::read_dir(folder).map(drop)).map_err(|error| {
        let hint = "name a folder that can be made and written to with --folder";
        Advice::new(format!("a study cannot be kept in {}: {error}", folder.display()), hint)
    })
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
