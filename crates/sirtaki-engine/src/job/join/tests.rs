//! Groups that meet in a store which others can read, and what they leave there.

use std::{sync::Mutex, thread};

use sirtaki_comm::rendezvous::MemoryStore;

use super::*;
use crate::job::variables as v;

/// A store that remembers everything that was put into it, as an eavesdropper does.
#[derive(Default)]
struct Overheard {
    store: MemoryStore,
    said: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Store for Overheard {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError> {
        self.said.lock().unwrap().push((key.into(), value.to_vec()));
        self.store.set(key, value)
    }

    fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError> {
        self.store.wait(key, deadline)
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64, CommError> {
        self.store.add(key, amount)
    }
}

/// Joins `size` ranks, which are threads, in an overheard store; returns their worlds and what was heard.
fn meet(size: usize, world: Option<&Secret>, get: Lookup<'_>) -> (Vec<World>, Vec<Vec<u8>>) {
    let store: Arc<Overheard> = Arc::default();
    let jobs: Vec<Job> = (0..size).map(|_| Job::discover(get).unwrap()).collect();
    let worlds = thread::scope(|threads| {
        let join = |(rank, job): (Rank, Job)| {
            let store = store.clone();
            threads.spawn(move || job.meet(store, Position { rank, size }, world).unwrap())
        };
        let ranks: Vec<_> = jobs.into_iter().enumerate().map(join).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let said = store.said.lock().unwrap().iter().map(|(_, value)| value.clone()).collect();
    (worlds, said)
}

fn leave(worlds: Vec<World>) {
    thread::scope(|threads| worlds.into_iter().for_each(|world| drop(threads.spawn(move || drop(world)))));
}

/// The secrets that an eavesdropper who has heard this can know.
fn secrets(said: &[Vec<u8>]) -> Vec<Secret> {
    said.iter().filter_map(|value| Secret::from_hex(std::str::from_utf8(value).ok()?).ok()).collect()
}

#[test]
fn groups_have_secrets_of_their_own_that_nobody_overhears() {
    let world = Secret::random().unwrap();
    let mut known = vec![world.clone()];
    for _ in 0..2 {
        let (group, said) = meet(2, Some(&world), &|_| None);
        assert_eq!(group[0].secret(), group[1].secret());
        assert!(!known.contains(group[0].secret()), "two groups have the same secret");
        assert_eq!(secrets(&said), []);
        known.push(group[0].secret().clone());
        leave(group);
    }
}

#[test]
fn the_secret_of_the_place_is_one_to_derive_from() {
    let digits = "0f".repeat(32);
    let variables = [(v::RANK, "0"), (v::SIZE, "2"), (v::STORE, "tcp://127.0.0.1:1"), (v::SECRET, digits.as_str())];
    let get = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned());
    let (group, said) = meet(2, None, &get);
    assert_eq!(group[0].secret(), group[1].secret());
    assert_ne!(group[0].secret().to_hex().as_str(), digits);
    assert_eq!(secrets(&said), []);
    leave(group);
}

#[test]
fn processes_that_nobody_started_together_meet_in_private() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().to_str().unwrap();
    let (worlds, said) = meet(3, None, &|name| (name == "XDG_CACHE_HOME").then(|| folder.into()));
    assert_eq!(secrets(&said), []);
    assert!(worlds.iter().all(|world| world.secret() == worlds[0].secret()));
    for (rank, world) in worlds.iter().enumerate() {
        assert_eq!((world.rank(), world.size(), world.local()), (rank, 3, Position { rank, size: 3 }));
    }
    leave(worlds);
}

#[test]
fn a_first_rank_that_does_not_come_is_named() {
    let mut job = Job::discover(&|_| None).unwrap();
    job.communication.start_timeout = Duration::from_millis(20);
    let failed = job.meet(Arc::new(MemoryStore::new()), Position { rank: 1, size: 2 }, None).unwrap_err();
    assert!(failed.to_string().contains("rank 0"), "{failed}");
}

#[test]
fn encryption_that_mpi_cannot_give_is_refused_between_hosts() {
    assert!(refuse_tls(false, 2).is_ok() && refuse_tls(true, 1).is_ok());
    let error = refuse_tls(true, 2).unwrap_err();
    assert!(error.to_string().contains("SIRTAKI_TLS is on, but MPI carries the data between the 2 hosts"), "{error}");
    assert!(error.hint().unwrap().contains("sirtaki run --tls"));
}
