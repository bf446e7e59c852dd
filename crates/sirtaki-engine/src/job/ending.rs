//! How a rank ended, as the launcher knows it and publishes it in the job's store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

use sirtaki_comm::{Rank, rendezvous::Store};

/// How long a query waits. A store on a host that is cut off would take much longer to fail.
const PATIENCE: Duration = Duration::from_millis(200);

/// The key under which the launcher publishes how a rank ended, in words such as "was killed by SIGKILL".
pub fn exit_key(rank: Rank) -> String {
    format!("exit/{rank}")
}

/// What the store knows of how ranks ended, as a function. An answer comes at once, or not this time.
pub fn ending(store: Arc<dyn Store>) -> Arc<dyn Fn(Rank) -> Option<String> + Send + Sync> {
    let known = Arc::new(Mutex::new(HashMap::<Rank, String>::new()));
    let asking = Arc::new(AtomicBool::new(false));
    Arc::new(move |rank| {
        let look = |known: &Mutex<HashMap<Rank, String>>| {
            known.lock().unwrap_or_else(PoisonError::into_inner).get(&rank).cloned()
        };
        if let Some(words) = look(&known) {
            return Some(words);
        }
        if asking.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (done, answer) = channel();
        let (store, kept, asked) = (store.clone(), known.clone(), asking.clone());
        let ask = move || {
            if let Ok(Some(words)) = store.wait(&exit_key(rank), Instant::now()) {
                let words = String::from_utf8_lossy(&words).into_owned();
                kept.lock().unwrap_or_else(PoisonError::into_inner).insert(rank, words);
            }
            asked.store(false, Ordering::Release);
            let _ = done.send(());
        };
        match thread::Builder::new().name("sirtaki-ending".into()).spawn(ask) {
            Ok(_) => drop(answer.recv_timeout(PATIENCE)),
            Err(_) => asking.store(false, Ordering::Release),
        }
        look(&known)
    })
}

#[cfg(test)]
mod tests {
    use sirtaki_comm::{CommError, rendezvous::MemoryStore};

    use super::*;

    #[test]
    fn what_the_launcher_says_is_heard() {
        let store = Arc::new(MemoryStore::new());
        let ending = ending(store.clone());
        assert_eq!(ending(3), None);
        store.set(&exit_key(3), b"was killed by SIGKILL").unwrap();
        assert!((0..100).any(|_| ending(3).as_deref() == Some("was killed by SIGKILL")));
        assert_eq!(ending(2), None);
    }

    /// A store that answers too late for the first question.
    struct Slow(MemoryStore);

    impl Store for Slow {
        fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError> {
            self.0.set(key, value)
        }

        fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError> {
            thread::sleep(Duration::from_secs(1));
            self.0.wait(key, deadline)
        }

        fn add(&self, key: &str, amount: i64) -> Result<i64, CommError> {
            self.0.add(key, amount)
        }
    }

    #[test]
    fn nobody_waits_for_a_slow_store_and_its_answer_counts_later() {
        let store = Arc::new(Slow(MemoryStore::new()));
        store.set(&exit_key(0), b"ended with exit code 3").unwrap();
        let ending = ending(store);
        assert_eq!(ending(0), None);
        let heard = (0..600).any(|_| {
            thread::sleep(Duration::from_millis(100));
            ending(0).is_some()
        });
        assert!(heard);
    }
}
