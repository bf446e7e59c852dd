use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    time::Duration,
};

use proptest::prelude::*;

use super::{Company, Identity, Ledger, LedgerOptions};
use crate::VolumeError;

fn identity(facts: &[(&str, &str)]) -> Identity {
    Identity(facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>())
}

fn run() -> Identity {
    identity(&[("model", "a1"), ("input", "in.zarr"), ("core", "64 × 64 × 64")])
}

fn open(path: &Path, worker: &str, company: Company) -> Result<Ledger, VolumeError> {
    let (path, worker, patience) = (path.to_owned(), worker.to_owned(), Duration::from_secs(60));
    Ledger::open(&LedgerOptions { path, worker, company, patience }, &run())
}

#[test]
fn a_run_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let mut first = open(&path, "one", Company::Alone).unwrap();
    assert_eq!(first.claim(&[0, 1, 2], 2, 100, 60).unwrap(), [0, 1]);
    assert!(first.finish(0, 7).unwrap());
    assert!(!first.finish(0, 7).unwrap());
    // As after a kill: the lease of tile 1 is still in the file, and its owner is gone.
    drop(first);
    let mut second = open(&path, "two", Company::Alone).unwrap();
    assert_eq!(second.done().keys().copied().collect::<Vec<_>>(), [0]);
    assert_eq!((second.done()[&0].sum, second.done()[&0].by.as_str()), (7, "one"));
    assert_eq!(second.claim(&[0, 1, 2], 9, 101, 60).unwrap(), [1, 2]);
    second.forget(0).unwrap();
    assert_eq!(second.claim(&[0, 1, 2], 9, 101, 60).unwrap(), [0]);
}

#[test]
fn tiles_of_a_worker_that_is_gone_are_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let [mut gone, mut starter] = ["gone", "starter"].map(|name| open(&path, name, Company::Shared).unwrap());
    assert_eq!(gone.claim(&[0, 1, 2], 2, 100, 60).unwrap(), [0, 1]);
    gone.finish(0, 7).unwrap();
    assert_eq!(starter.claim(&[0, 1, 2], 9, 100, 60).unwrap(), [2]);
    assert_eq!((starter.give_back_for("gone").unwrap(), starter.give_back_for("gone").unwrap()), (1, 0));
    assert_eq!(starter.claim(&[0, 1, 2], 9, 100, 60).unwrap(), [1]);
}

#[test]
fn an_order_is_not_mistaken_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut ledger = open(&folder.path().join("ledger"), "one", Company::Alone).unwrap();
    for tile in [0, 1] {
        assert_eq!(ledger.claim(&[0, 1], 1, 100, 60).unwrap(), [tile]);
        ledger.finish(tile, 7).unwrap();
    }
    assert!(ledger.claim(&[0, 1], 1, 100, 60).unwrap().is_empty());
    assert_eq!(ledger.claim(&[9], 1, 100, 60).unwrap(), [9]);
    assert_eq!(ledger.claim(&[8, 1], 1, 100, 60).unwrap(), [8]);
}

#[test]
fn another_run_is_refused_with_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    drop(open(&path, "one", Company::Alone).unwrap());
    let other = identity(&[("model", "b2"), ("input", "in.zarr"), ("halo", "4")]);
    let options = LedgerOptions {
        path: path.clone(),
        worker: "two".to_owned(),
        company: Company::Alone,
        patience: Duration::from_secs(60),
    };
    let problem = Ledger::open(&options, &other).unwrap_err();
    let said = problem.to_string();
    assert!(said.contains("model: `a1` there, `b2` here"), "{said}");
    assert!(said.contains("core: `64 × 64 × 64` there, not said here"), "{said}");
    assert!(said.contains("halo: not said there, `4` here") && !said.contains("input"), "{said}");
    assert!(problem.hint().unwrap().contains("delete"));
}

#[test]
fn one_alone_and_others_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let alone = open(&path, "one", Company::Alone).unwrap();
    let problem = open(&path, "two", Company::Alone).unwrap_err();
    assert!(problem.hint().unwrap().contains("--join"), "{problem}");
    drop(alone);
    let _shared = open(&path, "three", Company::Shared).unwrap();
    let _too = open(&path, "four", Company::Shared).unwrap();
    assert!(open(&path, "five", Company::Alone).is_err());
}

#[test]
fn a_lease_that_ran_out_goes_to_somebody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let mut one = open(&path, "one", Company::Shared).unwrap();
    let mut two = open(&path, "two", Company::Shared).unwrap();
    let order = [3, 4, 5];
    assert_eq!(one.claim(&order, 2, 1000, 60).unwrap(), [3, 4]);
    assert_eq!(two.claim(&order, 2, 1010, 60).unwrap(), [5]);
    assert!(one.renew(1050, 60).unwrap().is_empty());
    assert!(two.finish(5, 0).unwrap());
    assert!(two.claim(&order, 2, 1070, 60).unwrap().is_empty(), "renewed until 1110");
    assert_eq!(two.claim(&order, 1, 1110, 60).unwrap(), [3]);
    assert_eq!(one.renew(1111, 60).unwrap(), [3], "lost");
    // Both finish it; the second one changes nothing, unless it has other bits.
    assert!(two.finish(3, 9).unwrap());
    assert!(!one.finish(3, 9).unwrap());
    let problem = one.finish(3, 8).unwrap_err();
    assert!(problem.to_string().contains("by two and by one"), "{problem}");
    one.give_back(&[4]).unwrap();
    assert_eq!(two.claim(&order, 9, 1112, 60).unwrap(), [4]);
}

#[test]
fn half_a_line_is_cut_off_and_a_damaged_one_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let mut ledger = open(&path, "one", Company::Alone).unwrap();
    for tile in 0..4 {
        ledger.finish(tile, tile).unwrap();
    }
    drop(ledger);
    let mut bytes = fs::read(&path).unwrap();
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 20;
    bytes[second] ^= 1;
    let last = bytes.len() - 5;
    fs::write(&path, &bytes[..last]).unwrap();
    let mut ledger = open(&path, "two", Company::Alone).unwrap();
    assert_eq!(ledger.done().keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(ledger.damaged(), 1);
    ledger.finish(3, 3).unwrap();
    drop(ledger);
    let ledger = open(&path, "three", Company::Alone).unwrap();
    assert_eq!(ledger.done().keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_file_that_is_no_ledger_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    fs::write(&path, "something else\n").unwrap();
    let problem = open(&path, "one", Company::Alone).unwrap_err();
    assert!(problem.to_string().contains("first line is damaged"), "{problem}");
    assert_eq!(fs::read(&path).unwrap(), b"something else\n", "and left alone");
    let nowhere = open(&folder.path().join("no/ledger"), "one", Company::Alone).unwrap_err();
    assert!(matches!(nowhere, VolumeError::Io { .. }), "{nowhere}");
}

#[test]
fn threads_that_share_a_ledger_do_each_tile_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let order: Vec<u64> = (0..120).collect();
    let work = |name: &str| {
        let mut ledger = open(&path, name, Company::Shared).unwrap();
        let mut own = Vec::new();
        loop {
            let tiles = ledger.claim(&order, 3, 5000, 600).unwrap();
            if tiles.is_empty() {
                return own;
            }
            for tile in tiles {
                assert!(ledger.finish(tile, tile * 3).unwrap());
                own.push(tile);
            }
        }
    };
    let shares: Vec<Vec<u64>> = std::thread::scope(|threads| {
        let names = ["a", "b", "c", "d"];
        let started: Vec<_> = names.into_iter().map(|name| threads.spawn(move || work(name))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all: Vec<u64> = shares.concat();
    assert_eq!(all.len(), 120);
    assert_eq!(all.into_iter().collect::<HashSet<_>>(), order.iter().copied().collect());
    assert_eq!(open(&path, "e", Company::Alone).unwrap().done().len(), 120);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    /// Cut anywhere, as by a crash, and with anything after it: what was finished before the cut is known, nothing else
    /// is, and the run goes on.
    #[test]
    fn a_cut_anywhere_loses_only_what_is_behind_it(cut in 0.0_f64..1.0, junk in prop::collection::vec(any::<u8>(), 0..40)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let mut ledger = open(&path, "one", Company::Alone).unwrap();
        let header = fs::metadata(&path).unwrap().len();
        let mut ends = Vec::new();
        for tile in 0..6 {
            ledger.finish(tile, tile + 100).unwrap();
            ends.push(fs::metadata(&path).unwrap().len());
        }
        drop(ledger);
        let length = header + (cut * (ends[5] - header) as f64) as u64;
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        (&file).write_all(&junk).unwrap();
        drop(file);
        let mut ledger = open(&path, "two", Company::Alone).unwrap();
        let whole = ends.iter().filter(|end| **end <= length).count() as u64;
        prop_assert_eq!(ledger.done().keys().copied().collect::<Vec<_>>(), (0..whole).collect::<Vec<_>>());
        for tile in whole..6 {
            prop_assert!(ledger.finish(tile, tile + 100).unwrap());
        }
        drop(ledger);
        prop_assert_eq!(open(&path, "three", Company::Alone).unwrap().done().len(), 6);
    }
}
