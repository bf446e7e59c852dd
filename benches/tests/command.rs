//! What is observed of commands. In a separate process, because everything below it counts as left behind.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{process::Command, time::Duration};

use sirtaki_bench::command::watch;
use sirtaki_launch::tree;

const PATIENCE: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Vec<Command> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    vec![command]
}

#[test]
fn commands_are_watched_to_their_end_and_beyond() {
    tree::adopt_orphans().unwrap();
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_start-peer"));
        command.arg("nothing");
        command
    };
    let seen = watch(&mut [program(), program()], PATIENCE).unwrap().unwrap();
    assert!(seen.first.is_some_and(|first| 0.0 < first && first <= seen.whole), "{seen:?}");
    assert_eq!(seen.left, 0);

    let seen = watch(&mut shell("sleep 1000 &"), PATIENCE).unwrap().unwrap();
    assert_eq!((seen.first, seen.left), (None, 1));
    assert!(tree::descendants().is_empty(), "what was left behind is gone");

    assert_eq!(watch(&mut shell("sleep 1000"), Duration::from_millis(100)).unwrap(), None);
    assert!(tree::descendants().is_empty(), "what did not end is gone");

    let problem = watch(&mut shell("echo no luck >&2; exit 3"), PATIENCE).unwrap_err().to_string();
    assert!(problem.contains("no luck") && problem.contains('3'), "{problem}");
}
