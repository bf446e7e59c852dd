//! What a process of an elastic job and its launcher say to each other, in the job's store.
//!
//! Processes call the launcher under keys that begin with [`LISTENED`]: the host of the store passes them on and keeps
//! nothing. The launcher answers under keys of their own, and announces what concerns a whole round. What the ranks of a
//! round leave for each other is under its prefix, so that rounds never meet.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sirtaki_comm::{CommError, Rank, rendezvous::Store};

use crate::Settings;

/// The beginning of keys whose values the launcher hears.
pub const LISTENED: &str = "call/";
/// How long to wait for another rank before looking whether it will ever come.
const LOOK: Duration = Duration::from_millis(100);

/// What a process says to its launcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// It wants to be in the next round.
    Asks {
        /// Which process.
        member: u64,
        /// The round that it was in last; 0 for none.
        after: u64,
        /// Whether it has the state of the training.
        holds: bool,
        /// Whether it wants to leave instead.
        leaving: bool,
        /// The rank of that round that it waited for in vain.
        blames: Option<Rank>,
    },
    /// It has met all others of a round.
    Joined {
        /// Which process.
        member: u64,
        /// Which round.
        round: u64,
    },
    /// It was told that its time is over, and wants to hand over.
    Leaves {
        /// Which process.
        member: u64,
    },
}

/// What the launcher says to a process that wants to be in the next round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoundAnswer {
    /// It is in this one.
    Round {
        /// Its number, from one.
        number: u64,
        /// The rank of the process.
        rank: Rank,
        /// How many there are.
        size: usize,
        /// Why there is another round, in words for a timeline.
        why: String,
    },
    /// It may leave.
    Leave,
    /// The job ends.
    End {
        /// Why.
        reason: String,
    },
}

/// Where a process finds the answer to what it asked after this round.
pub fn answer_key(member: u64, after: u64) -> String {
    format!("answer/{member}/{after}")
}

/// What exists once the members of a round are wanted in another one.
pub fn change_key(round: u64) -> String {
    format!("{}change", round_prefix(round))
}

/// What exists once not all members of a round will come; its value says why.
pub fn void_key(round: u64) -> String {
    format!("{}void", round_prefix(round))
}

/// The beginning of all keys of a round.
pub fn round_prefix(round: u64) -> String {
    format!("round-{round}/")
}

/// The part of a store that belongs to one round.
pub(super) struct RoundStore {
    store: Arc<dyn Store>,
    prefix: String,
    /// The number of a round that the launcher announced, and may declare void.
    number: Option<u64>,
}

impl RoundStore {
    /// For ranks that have joined and left `round` times; the first time, the store itself.
    pub(super) fn again(store: &Arc<dyn Store>, round: usize) -> Arc<dyn Store> {
        match round {
            0 => store.clone(),
            round => Arc::new(RoundStore { store: store.clone(), prefix: round_prefix(round as u64), number: None }),
        }
    }

    /// For the members of a round of an elastic job.
    pub(super) fn of(store: &Arc<dyn Store>, number: u64) -> Self {
        Self { store: store.clone(), prefix: round_prefix(number), number: Some(number) }
    }

    /// Files that are written once per engine get the number of the round, from the second on.
    pub(super) fn name_files(&self, engine: &mut Settings) {
        let Some(number) = self.number.filter(|&number| number > 1) else { return };
        let named = |path: &Path| -> PathBuf {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let end = path.extension().map(|end| format!(".{}", end.to_string_lossy())).unwrap_or_default();
            path.with_file_name(format!("{stem}-round-{number}{end}"))
        };
        engine.timeline = engine.timeline.as_deref().map(named);
        engine.run_folder = engine.run_folder.as_deref().map(named);
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn check(&self) -> Result<(), CommError> {
        let Some(number) = self.number else { return Ok(()) };
        match self.store.wait(&void_key(number), Instant::now())? {
            Some(why) => Err(CommError::Stopped { reason: String::from_utf8_lossy(&why).into_owned() }),
            None => Ok(()),
        }
    }
}

impl Store for RoundStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError> {
        self.store.set(&self.key(key), value)
    }

    fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError> {
        let key = self.key(key);
        if self.number.is_none() {
            return self.store.wait(&key, deadline);
        }
        loop {
            let now = Instant::now();
            let value = self.store.wait(&key, deadline.min(now + LOOK))?;
            if value.is_some() || now >= deadline {
                return Ok(value);
            }
            self.check()?;
        }
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64, CommError> {
        self.store.add(&self.key(key), amount)
    }
}

#[cfg(test)]
mod tests {
    use sirtaki_comm::rendezvous::MemoryStore;

    use super::*;

    #[test]
    fn a_void_round_ends_the_wait_for_its_members() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let round = RoundStore::of(&store, 3);
        round.set("world/0", b"here").unwrap();
        let far = Instant::now() + Duration::from_secs(600);
        assert_eq!(round.wait("world/0", far).unwrap().as_deref(), Some(&b"here"[..]));
        assert_eq!(store.wait("round-3/world/0", far).unwrap().as_deref(), Some(&b"here"[..]));
        assert_eq!(round.wait("world/1", Instant::now()).unwrap(), None);
        store.set(&void_key(3), b"worker 2 was killed by SIGKILL").unwrap();
        let error = round.wait("world/1", far).unwrap_err();
        assert!(error.to_string().contains("worker 2 was killed"), "{error}");
    }

    #[test]
    fn files_of_later_rounds_have_names_of_their_own() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let named = |number| {
            let mut engine = Settings { timeline: Some("a/trace.json".into()), ..Settings::default() };
            RoundStore::of(&store, number).name_files(&mut engine);
            engine.timeline.map(|path| path.display().to_string())
        };
        assert_eq!([named(1), named(2)].map(Option::unwrap), ["a/trace.json", "a/trace-round-2.json"]);
    }
}
