use sirtaki_search::{
    journal::Time,
    space::Space,
    study::{Ending, State},
};

use super::*;

fn definition() -> Definition {
    let space: Space = "lr=log:1e-5..1,layers=int:1..6".parse().unwrap();
    Definition { seed: 3, trials: Some(30), ..Definition::new("s", space) }
}

fn open(path: &Path, wanted: WantedStudy) -> Result<Opened, Advice> {
    StudyStore::open(path, definition(), wanted)
}

fn one_trial(store: &mut StudyStore) -> u64 {
    let asked = store.change(true, |study| study.ask(Time(1))).unwrap().unwrap();
    let loss = asked.point.0[0].unwrap();
    store.change(true, |study| study.tell(asked.number, Ending::Finished(vec![loss]), Time(2))).unwrap();
    asked.number
}

#[test]
fn what_is_written_is_found_again() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal.log");
    let mut first = open(&path, WantedStudy::New).unwrap();
    assert!(!first.existed && first.torn.is_none());
    (0..5).for_each(|number| assert_eq!(one_trial(&mut first.store), number));
    let again = open(&path, WantedStudy::Existing).unwrap();
    assert!(again.existed);
    assert_eq!(again.store.study().archive(), first.store.study().archive());
    assert!(open(&path, WantedStudy::New).err().unwrap().message.contains("study `s` is in"));
    assert_eq!(look(place.path(), None).unwrap().trials().len(), 5);
    assert!(look(&place.path().join("absent"), None).err().unwrap().message.contains("there is no study"));
    let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["journal.log"]);
}

#[test]
fn several_writers_share_a_journal() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal.log");
    let numbers = std::thread::scope(|scope| {
        let work = || {
            let mut store = open(&path, WantedStudy::Any).unwrap().store;
            (0..6).map(|_| one_trial(&mut store)).collect::<Vec<_>>()
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect::<Vec<_>>()
    });
    let mut sorted = numbers;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..24).collect::<Vec<_>>(), "no number twice");
    let study = look(&path, Some("s")).unwrap();
    assert!(study.trials().iter().all(|trial| trial.state == State::Finished));
}

/// Wherever a write was cut off: what is whole counts, the rest goes, and the study goes on as from there.
#[test]
fn a_journal_cut_anywhere_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal.log");
    let mut store = open(&path, WantedStudy::New).unwrap().store;
    (0..3).for_each(|number| assert_eq!(one_trial(&mut store), number));
    let bytes = fs::read(&path).unwrap();
    let lines: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for cut in (0..bytes.len()).step_by(29) {
        let copy = place.path().join(format!("cut-{cut}"));
        fs::write(&copy, &bytes[..cut]).unwrap();
        let whole = lines.iter().copied().take_while(|end| *end <= cut).last().unwrap_or(0);
        let mut opened = open(&copy, WantedStudy::Any).unwrap();
        assert_eq!(opened.torn.is_some(), whole != cut, "{cut}");
        assert_eq!(fs::read(&copy).unwrap()[..whole], bytes[..whole]);
        let asked = opened.store.change(true, |study| study.ask(Time(9))).unwrap().unwrap();
        assert!(opened.store.study().definition().space.contains(&asked.point));
        assert!(read(&fs::read(&copy).unwrap()).unwrap().torn.is_none());
    }
}

#[test]
fn a_damaged_line_is_refused_by_its_number() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("journal.log");
    one_trial(&mut open(&path, WantedStudy::New).unwrap().store);
    let mut bytes = fs::read(&path).unwrap();
    bytes[2] = b'#';
    fs::write(&path, bytes).unwrap();
    let refused = open(&path, WantedStudy::Existing).err().unwrap();
    assert!(refused.message.contains("journal.log: line 1 of the journal"), "{}", refused.message);
    assert!(!refused.hint.is_empty());
}

#[test]
fn a_full_disk_ends_the_study_and_keeps_the_journal_whole() {
    let mut store = StudyStore::in_memory(definition()).unwrap();
    let mut file = fs::OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
    store.journal = Some(JournalFile { path: "full".into(), length: 0, unflushed: false, broken: None });
    let journal = store.journal.as_mut().unwrap();
    let refused = journal.append(&mut file, b"line\n", true).unwrap_err();
    assert!(refused.message.contains("No space left") && refused.hint.contains("--resume"), "{refused:?}");
    assert!(store.change(true, |study| study.ask(Time(1))).unwrap_err().message.contains("No space left"));
}
