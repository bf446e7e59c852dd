//! How good and bad folders are read.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::*;

const GOOD: &str = r#"{"format": "sirtaki run, version 1", "started": 5.0, "ended": {"seconds": 9.5, "failed": null},
    "ranks": 2, "hosts": ["a", "a"], "settings": {"seed": "1", "epochs": 3}, "environment": {"OMP_NUM_THREADS": "1"}}"#;

fn folder(files: &[(&str, &str)]) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("a run");
    fs::create_dir(&run).unwrap();
    files.iter().for_each(|(name, text)| fs::write(run.join(name), text).unwrap());
    (place, run)
}

#[test]
fn a_run_is_read_as_far_as_it_goes() {
    let steps =
        "{\"seconds\":1.5,\"step\":1,\"loss\":0.5}\n{\"seconds\":0.5,\"step\":0}\nrubbish\n{\"seconds\":2.0,\"st";
    let (_place, path) =
        folder(&[(RUN, GOOD), (STEPS, steps), (PROFILE, "{\"ranks\": [{\"elapsed_seconds\": -4.0}]}")]);
    let run = read(&path).unwrap();
    assert_eq!(
        (run.name.as_str(), run.state.clone(), run.ranks, run.seconds),
        ("a run", RunState::Finished, 2, Some(9.5))
    );
    assert_eq!(run.settings["epochs"], "3");
    assert_eq!(run.steps.iter().map(|step| step.step).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(run.problems, ["1 damaged lines of steps.jsonl were left out"]);
    assert_eq!(run.profile.unwrap().ranks[0].elapsed_seconds, 0.0);
}

#[test]
fn how_a_run_ended_is_told_by_whoever_knows() {
    let (_place, path) = folder(&[(RUN, &GOOD.replace("null", "\"no memory\""))]);
    assert_eq!(read(&path).unwrap().state, RunState::Failed("no memory".into()));
    let running = GOOD.replace("\"ended\"", "\"not_ended\"");
    let (_place, path) = folder(&[(RUN, &running)]);
    assert_eq!(read(&path).unwrap().state, RunState::Unfinished);
    let killed = running.replacen('{', "{\"exit\": {\"code\": 137, \"how\": \"rank 1 was killed\"},", 1);
    let (_place, path) = folder(&[(RUN, &killed)]);
    assert_eq!(read(&path).unwrap().state, RunState::Failed("rank 1 was killed".into()));
    let plan = r#"{"ranks": 4, "settings": {"seed": "7"}, "ended": {"seconds": 0.2, "failed": "no such file"}}"#;
    let (_place, path) = folder(&[(PLAN, plan)]);
    let planned = read(&path).unwrap();
    assert_eq!((planned.ranks, planned.settings["seed"].as_str()), (4, "7"));
    assert_eq!(planned.state, RunState::Failed("no such file".into()));
}

#[test]
fn what_is_damaged_says_what_and_where() {
    let why = |files: &[(&str, &str)]| {
        let (_place, path) = folder(files);
        read(&path).unwrap_err().why
    };
    assert!(why(&[(RUN, "{\"format\":")]).starts_with("run.json is damaged: EOF"));
    assert!(why(&[(RUN, "[1]")]).starts_with("run.json is damaged"));
    assert!(why(&[(RUN, "{\"format\": \"other\"}")]).contains("`other`"));
    let (_place, path) = folder(&[(RUN, GOOD), (PROFILE, "{")]);
    assert!(read(&path).unwrap().problems[0].starts_with("profile.json is damaged"));
    fs::remove_file(path.join(PROFILE)).unwrap();
    fs::create_dir(path.join(PROFILE)).unwrap();
    assert_eq!(read(&path).unwrap().problems[0], "profile.json: not a file");
    fs::File::create(path.join(STEPS)).unwrap().set_len(files::LARGE + 1).unwrap();
    assert_eq!(read(&path).unwrap().problems[0], "steps.jsonl has 64 MiB, more than the 64 MiB that are read");
}

#[test]
fn folders_are_found_where_they_were_meant_and_once() {
    let (place, path) = folder(&[(RUN, GOOD)]);
    let inside = find(&[place.path().to_owned(), path.clone()]).unwrap();
    assert_eq!(inside, std::slice::from_ref(&path));
    let message = |path: PathBuf| find(&[path]).unwrap_err().to_string();
    assert!(message(place.path().join("absent")).contains("there is no "));
    assert!(message(path.join(RUN)).contains("is not a folder"));
    fs::create_dir(place.path().join("empty")).unwrap();
    assert!(message(place.path().join("empty")).contains("is not a run"));
}
