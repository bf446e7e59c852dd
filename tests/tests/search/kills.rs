//! Whatever is killed, the study goes on as if nothing had happened.

use std::{fs, path::Path};

use rustix::process::Signal;
use sirtaki_tests::wait;

use crate::{PARABOLA, search, searched, study, trials};

/// Every third trial loses its agent when it runs for the first time.
#[test]
fn trials_that_are_lost_run_again() {
    let script = r#"
if [ $((SIRTAKI_TRIAL % 3)) = 0 ] && [ ! -e $SIRTAKI_TRIAL_FOLDER/first ]; then
  touch $SIRTAKI_TRIAL_FOLDER/first; kill -9 $PPID; exec sleep 1000
fi
echo "{\"loss\": $1}""#;
    let place = study(script, "trials = 48", "x = { float = [0, 1] }");
    let done = searched(place.path(), &["study.toml", "-n", "16"]);
    assert_eq!((done.code, done.out[0].as_str()), (0, "study study: 48 finished"), "{}", done.message());
    for (number, trial) in trials(place.path()).iter().enumerate() {
        assert_eq!(trial["attempts"], if number % 3 == 0 { 2 } else { 1 }, "{trial}");
        assert_eq!(trial["values"]["loss"], trial["parameters"]["x"], "{trial}");
    }
}

/// As many slots as a small cluster has; three of ten trials lose their agent at a moment of their own.
#[test]
#[ignore = "takes minutes: cargo xtask test search-kills"]
fn sixty_four_workers_of_which_a_third_is_killed() {
    let script = r#"
moment() { awk -v seed=$1 'BEGIN { srand(seed); print rand() / 2 }'; }
if [ $((SIRTAKI_TRIAL % 10)) -lt 3 ] && [ ! -e $SIRTAKI_TRIAL_FOLDER/first ]; then
  touch $SIRTAKI_TRIAL_FOLDER/first; sleep $(moment $SIRTAKI_TRIAL); kill -9 $PPID; exec sleep 1000
fi
sleep $(moment $((SIRTAKI_TRIAL + 1000))); echo "{\"loss\": $1}""#;
    let place = study(script, "trials = 200", "x = { float = [0, 1] }");
    let done = searched(place.path(), &["study.toml", "-n", "64"]);
    assert_eq!((done.code, done.out[0].as_str()), (0, "study study: 200 finished"), "{}", done.message());
    for (number, trial) in trials(place.path()).iter().enumerate() {
        assert_eq!(trial["attempts"], if number % 10 < 3 { 2 } else { 1 }, "{trial}");
        assert_eq!(trial["values"]["loss"], trial["parameters"]["x"], "{trial}");
    }
}

#[test]
fn a_killed_coordinator_leaves_nothing_and_loses_nothing() {
    killed_at(20, 8);
}

#[test]
#[ignore = "takes minutes: cargo xtask test search-kills"]
fn a_coordinator_that_is_killed_at_200_places_of_the_journal() {
    killed_at(200, 60);
}

/// Whenever the coordinator is killed, its trials end, and the study goes on as if nothing had happened.
fn killed_at(offsets: u64, count: u64) {
    let more = format!("trials = {count}\nsampler = \"tpe\"");
    let space = "x = { float = [-5, 5] }\ny = { log = [1e-3, 1] }";
    let whole = study(PARABOLA, &more, space);
    assert_eq!(searched(whole.path(), &["study.toml", "-n", "1"]).code, 0);
    let points = |place: &Path| trials(place).iter().map(|trial| trial["parameters"].clone()).collect::<Vec<_>>();
    let expected = points(whole.path());
    let length = fs::metadata(whole.path().join("runs/study/journal.log")).unwrap().len();
    let place = study(PARABOLA, &more, space);
    let size = || fs::metadata(place.path().join("runs/study/journal.log")).map_or(0, |file| file.len());
    let mut kills = 0;
    for part in 1..=offsets {
        let mut running = search(place.path(), &["study.toml", "-n", "1", "--resume"]);
        wait::until("the journal grows", || size() >= length * part / (offsets + 4) || running.has_ended());
        if !running.has_ended() {
            running.signal(Signal::KILL);
            kills += 1;
        }
        running.ends_eventually();
    }
    assert!(kills > offsets / 2, "{kills}");
    let done = searched(place.path(), &["study.toml", "-n", "1", "--resume"]);
    let told = format!("study study: {count} finished");
    assert_eq!((done.code, done.out[0].as_str()), (0, told.as_str()), "{}", done.message());
    assert_eq!(points(place.path()), expected);
}
