//! Meetings of ranks that are threads, among the remains of earlier ones.

use std::{fs::File, os::unix::fs::symlink};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

fn all_meet(cache: &Path, key: &str, size: usize) -> Vec<Result<Hall, JobError>> {
    thread::scope(|scope| {
        let ranks: Vec<_> =
            (0..size).map(|rank| scope.spawn(move || meet(cache, key, Position { rank, size }, PATIENCE))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn entries(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache.join("sirtaki/jobs")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// What a killed rank 0 leaves behind: a note, and a folder in which others have called and been admitted.
fn remains(cache: &Path, key: &str) -> PathBuf {
    let jobs = prepare(cache).unwrap();
    let name = hex(&fresh_id().unwrap());
    let store = FileStore::new(&jobs, &name).unwrap();
    store.set(&call_key(1), b"long gone").unwrap();
    store.set(ADMITTED, b"long gone").unwrap();
    let board = FileStore::open(cache.join("sirtaki"), "jobs").unwrap();
    board.set(key, format!("{name} {}", Secret::random().unwrap().to_hex().as_str()).as_bytes()).unwrap();
    jobs.join(name)
}

#[test]
fn ranks_meet_in_private_and_leave_nothing() {
    let cache = tempfile::tempdir().unwrap();
    let halls: Vec<Hall> = all_meet(cache.path(), "a", 4).into_iter().map(Result::unwrap).collect();
    assert!(halls.iter().all(|hall| hall.secret() == halls[0].secret()));
    halls[3].store().set("from 3", b"hello").unwrap();
    let heard = halls[0].store().wait("from 3", Instant::now()).unwrap();
    assert_eq!(heard.as_deref(), Some(b"hello".as_slice()));
    for entry in entries(cache.path()) {
        let mode = fs::metadata(&entry).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if entry.is_dir() { 0o700 } else { 0o600 }, "{}", entry.display());
    }
    drop(halls);
    assert_eq!(entries(cache.path()), Vec::<PathBuf>::new());
}

#[test]
fn leftovers_of_a_job_with_the_same_key_are_ignored_and_removed() {
    for round in 0..20 {
        let cache = tempfile::tempdir().unwrap();
        let old = remains(cache.path(), "a");
        thread::scope(|scope| {
            let (cache, alone) = (cache.path(), Position { rank: 1, size: 2 });
            let rank_1 = scope.spawn(move || meet(cache, "a", alone, PATIENCE).unwrap());
            // The old note is there for a while before rank 0 comes.
            thread::sleep(Duration::from_millis(round));
            let rank_0 = meet(cache, "a", Position { rank: 0, size: 2 }, PATIENCE).unwrap();
            assert!(rank_1.join().unwrap().secret() == rank_0.secret());
        });
        assert!(!old.exists());
        assert_eq!(entries(cache.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn old_leftovers_of_other_jobs_are_removed_and_new_ones_stay() {
    let cache = tempfile::tempdir().unwrap();
    let (old, new) = (remains(cache.path(), "old"), remains(cache.path(), "new"));
    let note = |key: &str| cache.path().join("sirtaki/jobs").join(format!("{key}.value"));
    for path in [&old, &note("old")] {
        File::open(path).unwrap().set_modified(SystemTime::now() - 2 * STALE).unwrap();
    }
    drop(all_meet(cache.path(), "a", 2));
    assert!(!old.exists() && !note("old").exists());
    assert!(new.exists() && note("new").exists());
}

#[test]
fn a_missing_rank_is_named_and_nothing_is_left() {
    let cache = tempfile::tempdir().unwrap();
    let short = Duration::from_millis(200);
    for (rank, missing) in [(0, 1), (1, 0)] {
        let error = meet(cache.path(), "a", Position { rank, size: 2 }, short).err().unwrap();
        assert!(error.to_string().contains(&format!("rank {missing} of 2 did not come there within")), "{error}");
        assert!(error.hint().unwrap().contains("XDG_CACHE_HOME"));
        assert_eq!(entries(cache.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_folder_that_is_not_ours_alone_is_refused() {
    let refused = |cache: &Path, words: &str| {
        for rank in [0, 1] {
            let error = meet(cache, "a", Position { rank, size: 2 }, PATIENCE).err().unwrap();
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.hint().is_some());
        }
    };
    let cache = tempfile::tempdir().unwrap();
    let jobs = prepare(cache.path()).unwrap();
    fs::set_permissions(&jobs, fs::Permissions::from_mode(0o750)).unwrap();
    refused(cache.path(), "others have access to it (mode 750 instead of 700)");
    fs::remove_dir(&jobs).unwrap();
    symlink("/tmp", &jobs).unwrap();
    refused(cache.path(), "it is not a folder");
    fs::remove_file(&jobs).unwrap();
    File::create(&jobs).unwrap();
    refused(cache.path(), "it cannot be made");
    if rustix::process::geteuid().is_root() {
        fs::remove_file(&jobs).unwrap();
        prepare(cache.path()).unwrap();
        std::os::unix::fs::chown(&jobs, Some(12345), None).unwrap();
        refused(cache.path(), "it belongs to user 12345, and we are user 0");
    }
}

#[test]
fn a_folder_below_one_that_others_may_change_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let (open, cache) = (top.path().join("open"), top.path().join("open/cache"));
    fs::create_dir_all(&cache).unwrap();
    let link = top.path().join("link");
    symlink(&cache, &link).unwrap();
    let mode = |mode| fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
    for (bits, shown) in [(0o777, "777"), (0o770, "770"), (0o702, "702")] {
        mode(bits);
        for cache in [&cache, &link] {
            let error = meet(cache, "a", Position { rank: 0, size: 1 }, PATIENCE).err().unwrap();
            let expected = format!("since {} is open to others (mode {shown})", open.display());
            assert!(error.to_string().contains(&expected), "{error}");
            assert!(error.hint().unwrap().contains("chmod go-w"));
        }
    }
    // In a folder such as /tmp, only owners may replace their own files.
    for bits in [0o1777, 0o755] {
        mode(bits);
        meet(&link, "a", Position { rank: 0, size: 1 }, PATIENCE).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&open, Some(12345), None).unwrap();
        let error = meet(&cache, "a", Position { rank: 0, size: 1 }, PATIENCE).err().unwrap();
        assert!(error.to_string().contains("belongs to user 12345"), "{error}");
    }
}

#[test]
fn keys_tell_jobs_and_parents_apart() {
    let key = |key: &str, by_parent| file_key(key, by_parent).unwrap();
    assert_eq!(key("a", true), key("a", true));
    assert_ne!(key("a", true), key("a", false));
    assert_ne!(key("a", false), key("b", false));
    assert_eq!(key("a", false).len(), 32);
    let parent = parent().unwrap();
    let parts: Vec<&str> = parent.split('/').collect();
    assert!(parts.iter().all(|part| !part.is_empty()), "{parent}");
    assert!(parts[6].parse::<u64>().is_ok_and(|start| start > 0), "{parent}");
}
