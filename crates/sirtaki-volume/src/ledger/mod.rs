//! Which tiles are done: a file to which lines are appended, so that a run can go on after anything.
//!
//! - **Continuing is the default.** The first line says what the run is: model, input, plan, whatever its owner lists. A run
//!   that is something else is refused with the difference, because two of them would mix in one output.
//! - **A line counts when it is whole.** Each carries a checksum. Half a line at the end is cut off by the next writer;
//!   a damaged line anywhere is skipped, which at worst computes its tile again.
//! - **Several processes may share it**, on any hosts that share the file. They lease tiles for a while and renew the
//!   lease as long as they live. A tile whose lease ran out goes to somebody else; should the first one finish it all
//!   the same, both have written the same bits.
//!
//! Locks are those of the file system (`flock`), which the kernel releases when a process dies. One protects the
//! appending of lines. The other is held as long as a ledger is open: by one process for itself, or shared. Whoever gets
//! it for itself knows that nobody else is left, so leases of the dead do not delay anybody.
//!
//! Time comes in as an argument, in seconds since 1970; hosts whose clocks differ by less than a lease is long agree well
//! enough.

mod file;
mod record;
mod state;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{VolumeError, checksum};
use file::{Held, LedgerFile};
use record::{Header, Record};
pub use state::Done;
use state::State;

/// What a run is, in words of its owner: `model`, `input`, `tile`, … Runs that share a ledger agree in all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity(pub BTreeMap<String, String>);

impl Identity {
    /// A number that stands for all of it.
    pub fn hash(&self) -> u64 {
        let text: String = self.0.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
        checksum::of(text.as_bytes())
    }

    /// How another one differs, a line each.
    pub fn differences(&self, other: &Identity) -> Vec<String> {
        let names: std::collections::BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let differs = |name: &&String| self.0.get(*name) != other.0.get(*name);
        let shown = |value: Option<&String>| value.map_or("not said".to_owned(), |value| format!("`{value}`"));
        let line =
            |name: &String| format!("{name}: {} there, {} here", shown(self.0.get(name)), shown(other.0.get(name)));
        names.into_iter().filter(differs).map(line).collect()
    }
}

/// Who uses a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// One process, which hands out the tiles itself.
    Alone,
    /// Processes that do not know each other.
    Shared,
}

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    file: LedgerFile,
    state: State,
    worker: String,
    plan: u64,
}

/// How to open a ledger.
#[derive(Debug, Clone)]
pub struct LedgerOptions {
    /// The file.
    pub path: PathBuf,
    /// Who is writing, unlike all others: host and process number, say.
    pub worker: String,
    /// Whether others may use it at the same time.
    pub company: Company,
    /// How long to wait for a lock.
    pub patience: Duration,
}

impl Ledger {
    /// Opens a ledger to go on with it, or begins one.
    pub fn open(options: &LedgerOptions, identity: &Identity) -> Result<Self, VolumeError> {
        let (mut file, nobody_else) = LedgerFile::open(&options.path, options.company, options.patience)?;
        let plan = identity.hash();
        let mut state = State::default();
        {
            let mut held = file.hold()?;
            let header = Header { version: record::VERSION, plan: format!("{plan:016x}"), facts: identity.0.clone() };
            match held.read_new()?.split_first() {
                None => held.append(&[header.to_line()], true)?,
                Some((first, rest)) => {
                    check(&options.path, first, identity)?;
                    rest.iter().for_each(|line| state.read(line, plan));
                }
            }
            if nobody_else && !state.is_free() {
                held.append(&[Record::AllFree {}.to_line()], false)?;
                state.free_all();
            }
        }
        Ok(Self { file, state, worker: options.worker.clone(), plan })
    }

    /// Tiles that are done, with what was written for them.
    pub fn done(&self) -> &BTreeMap<u64, Done> {
        self.state.done()
    }

    /// Lines that were damaged and therefore skipped.
    pub fn damaged(&self) -> u64 {
        self.state.damaged()
    }

    /// Reads what others have written meanwhile.
    pub fn refresh(&mut self) -> Result<(), VolumeError> {
        let mut held = self.file.hold()?;
        read_new(&mut held, &mut self.state, self.plan)
    }

    /// Takes up to `count` tiles, the first of `order` that are neither done nor leased, until `now + seconds`.
    pub fn claim(&mut self, order: &[u64], count: usize, now: u64, seconds: u64) -> Result<Vec<u64>, VolumeError> {
        let mut held = self.file.hold()?;
        read_new(&mut held, &mut self.state, self.plan)?;
        let tiles = self.state.choose(order, count, now);
        if !tiles.is_empty() {
            let record =
                Record::Lease { lease: tiles.clone(), until: now.saturating_add(seconds), by: self.worker.clone() };
            held.append(&[record.to_line()], false)?;
            self.state.apply(record, self.plan);
        }
        Ok(tiles)
    }

    /// Keeps all tiles that this process has leased until `now + seconds`. Tiles that others have taken because the lease
    /// had run out are lost, and returned.
    pub fn renew(&mut self, now: u64, seconds: u64) -> Result<Vec<u64>, VolumeError> {
        let before = self.state.leased_by(&self.worker);
        let mut held = self.file.hold()?;
        read_new(&mut held, &mut self.state, self.plan)?;
        let own = self.state.leased_by(&self.worker);
        let lost =
            before.into_iter().filter(|tile| !own.contains(tile) && !self.state.done().contains_key(tile)).collect();
        if !own.is_empty() {
            let record = Record::Lease { lease: own, until: now.saturating_add(seconds), by: self.worker.clone() };
            held.append(&[record.to_line()], false)?;
            self.state.apply(record, self.plan);
        }
        Ok(lost)
    }

    /// Gives tiles back that this process will not compute.
    pub fn give_back(&mut self, tiles: &[u64]) -> Result<(), VolumeError> {
        self.write(Record::Free { free: tiles.to_vec(), by: self.worker.clone() }, false)
    }

    /// Gives back all tiles of another worker, which is known to be gone. How many they were.
    pub fn give_back_for(&mut self, worker: &str) -> Result<usize, VolumeError> {
        self.refresh()?;
        let tiles = self.state.leased_by(worker);
        if !tiles.is_empty() {
            self.write(Record::Free { free: tiles.clone(), by: worker.to_owned() }, false)?;
        }
        Ok(tiles.len())
    }

    /// Says that a tile is done, after its output is safely on disk. Whether it was not done before; a result with
    /// other bits than the one before is an error.
    pub fn finish(&mut self, tile: u64, sum: u64) -> Result<bool, VolumeError> {
        let mut held = self.file.hold()?;
        read_new(&mut held, &mut self.state, self.plan)?;
        if let Some(done) = self.state.done().get(&tile) {
            if done.sum == sum {
                return Ok(false);
            }
            return Err(VolumeError::refused(
                format!(
                    "tile {tile} was computed twice, by {} and by {}, with different results",
                    done.by, self.worker
                ),
                "the model does not give the same bits every time: one kind of processor and fixed tile shapes may help",
            ));
        }
        let plan = format!("{:016x}", self.plan);
        let record = Record::Done { done: tile, sum: format!("{sum:016x}"), plan, by: self.worker.clone() };
        held.append(&[record.to_line()], true)?;
        self.state.apply(record, self.plan);
        Ok(true)
    }

    /// Says that a tile is to be computed again, because its output is damaged.
    pub fn forget(&mut self, tile: u64) -> Result<(), VolumeError> {
        self.write(Record::Redo { redo: tile, by: self.worker.clone() }, true)
    }

    fn write(&mut self, record: Record, sync: bool) -> Result<(), VolumeError> {
        let mut held = self.file.hold()?;
        read_new(&mut held, &mut self.state, self.plan)?;
        held.append(&[record.to_line()], sync)?;
        self.state.apply(record, self.plan);
        Ok(())
    }
}

fn read_new(held: &mut Held<'_>, state: &mut State, plan: u64) -> Result<(), VolumeError> {
    held.read_new()?.iter().for_each(|line| state.read(line, plan));
    Ok(())
}

/// Refuses a ledger of another run.
fn check(path: &Path, first: &[u8], identity: &Identity) -> Result<(), VolumeError> {
    let again = "write to another place, or delete what is there to begin again";
    let Some(header) = Header::parse(first) else {
        return Err(VolumeError::format(path, "its first line is damaged: it does not say whose run this is", again));
    };
    if header.version != record::VERSION {
        let problem = format!("it was written by another version of Sirtaki (format {})", header.version);
        return Err(VolumeError::format(path, problem, again));
    }
    let differences = Identity(header.facts).differences(identity);
    match differences.is_empty() {
        true => Ok(()),
        false => {
            let problem = format!("it belongs to another run:\n  {}", differences.join("\n  "));
            Err(VolumeError::format(path, problem, again))
        }
    }
}

#[cfg(test)]
mod tests;
