//! `sirtaki search` with real trials: what it finds, how trials end, and what is left when it is interrupted or killed.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

mod kills;
mod rules;

use std::{fs, path::Path, process::Command};

use rustix::process::Signal;
use serde_json::Value;
use sirtaki_tests::{
    browser,
    launch::{Finished, Launch},
    wait,
};
use tempfile::TempDir;

/// A folder with a study of `trial.sh`.
pub(crate) fn study(script: &str, more: &str, space: &str) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("trial.sh"), script).unwrap();
    let names: Vec<String> = space.lines().map(|line| format!("\"{{{}}}\"", line.split(' ').next().unwrap())).collect();
    let text = format!(
        "command = [\"sh\", \"trial.sh\", {}]\nobjective = \"minimize loss\"\n{more}\n[space]\n{space}\n",
        names.join(", ")
    );
    fs::write(place.path().join("study.toml"), text).unwrap();
    place
}

pub(crate) fn search(place: &Path, arguments: &[&str]) -> Launch {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.current_dir(place).arg("search").args(arguments);
    Launch::start(command)
}

pub(crate) fn searched(place: &Path, arguments: &[&str]) -> Finished {
    search(place, arguments).ends()
}

/// All trials as `export` has them.
pub(crate) fn trials(place: &Path) -> Vec<Value> {
    let done = searched(place, &["export", "runs/study"]);
    assert_eq!(done.code, 0, "{}", done.message());
    let data: Value = serde_json::from_str(&done.out.join("\n")).unwrap();
    data["trials"].as_array().unwrap().clone()
}

fn states(place: &Path) -> Vec<String> {
    trials(place).iter().map(|trial| trial["state"].as_str().unwrap().to_owned()).collect()
}

pub(crate) const PARABOLA: &str =
    "echo hello; awk -v x=$1 'BEGIN { printf \"{\\\"loss\\\": %.17g}\\n\", (x - 3) * (x - 3) }'";

#[test]
fn a_study_finds_the_best_and_keeps_everything() {
    let place = study(PARABOLA, "trials = 12\nenqueue = [{ x = 2.5 }]", "x = { float = [-5, 5] }");
    let done = searched(place.path(), &["study.toml", "-n", "2"]);
    assert_eq!(done.code, 0, "{}", done.message());
    assert_eq!(done.out[0], "study study: 12 finished");
    assert!(done.out[1].starts_with("trial ") && done.out[2].starts_with("  x = "), "{:?}", done.out);
    let all = trials(place.path());
    assert_eq!(all[0]["parameters"]["x"], 2.5, "what was enqueued comes first");
    for (number, trial) in all.iter().enumerate() {
        let x = trial["parameters"]["x"].as_f64().unwrap();
        let loss = trial["values"]["loss"].as_f64().unwrap();
        assert!((loss - (x - 3.0) * (x - 3.0)).abs() < 1e-9, "{trial}");
        let log = fs::read_to_string(place.path().join(format!("runs/study/{number:04}/rank-0.log"))).unwrap();
        assert!(log.starts_with("hello\n{\"loss\": "), "{log}");
    }
    let best = searched(place.path(), &["best", "runs/study", "--json"]);
    let best: Value = serde_json::from_str(&best.out.join("\n")).unwrap();
    let least = all.iter().map(|trial| trial["values"]["loss"].as_f64().unwrap()).fold(f64::INFINITY, f64::min);
    assert_eq!(best["values"]["loss"].as_f64().unwrap(), least);
    let csv = searched(place.path(), &["export", "runs/study", "--csv"]);
    assert_eq!((csv.out.len(), csv.out[0].as_str()), (13, "trial,state,seconds,loss,x"));
    let shown = searched(place.path(), &["show", "runs/study"]);
    assert_eq!(shown.out[1], "12 finished");
    let again = searched(place.path(), &["study.toml"]);
    assert!(again.code == 1 && again.message().contains("add --resume to continue it"), "{}", again.message());
}

#[test]
fn endings_are_told_apart() {
    let script = r#"
case $1 in
  good) echo '{"loss": 0.5}' ;;
  broken) echo "no data" >&2; exit 3 ;;
  killed) kill -9 $$ ;;
  silent) echo '{"accuracy": 0.5}' ;;
  diverged) echo '{"step": 1, "loss": NaN}'; exec sleep 1000 ;;
  flat) for step in 1 2 3 4; do echo "{\"step\": $step, \"loss\": 1}"; done; exec sleep 1000 ;;
esac"#;
    let kinds = "[\"good\", \"broken\", \"killed\", \"silent\", \"diverged\", \"flat\"]";
    let more = "sampler = \"grid\"\nstop = { method = \"patience\", steps = 2 }";
    let place = study(script, more, &format!("kind = {kinds}"));
    let done = searched(place.path(), &["study.toml", "-n", "1"]);
    assert_eq!(done.code, 0, "{}", done.message());
    let all = trials(place.path());
    assert_eq!(all.len(), 6);
    for trial in &all {
        let reason = trial["reason"].as_str().unwrap_or_default();
        let (state, why) = match trial["parameters"]["kind"].as_str().unwrap() {
            "good" => ("finished", ""),
            "broken" => ("failed", "rank 0 ended with exit code 3\n    no data"),
            "killed" => ("failed", "rank 0 was killed by SIGKILL"),
            "silent" => ("failed", "it ended without a line such as {\"loss\": 0.5} on standard output"),
            "diverged" => ("diverged", "its value was [NaN]"),
            _ => ("stopped early", ""),
        };
        assert_eq!((trial["state"].as_str().unwrap(), reason), (state, why));
    }
}

#[test]
fn a_trial_has_its_time() {
    let place = study("exec sleep 1000", "trials = 2\ntimeout = 0.2", "x = { float = [0, 1] }");
    let done = searched(place.path(), &["study.toml", "-n", "2"]);
    assert!(done.code == 1 && done.message().contains("no trial finished"), "{}", done.message());
    assert_eq!(states(place.path()), ["timed out", "timed out"]);
}

#[test]
fn a_command_that_always_fails_stops_the_study() {
    let place = study("echo no such data >&2; exit 3", "trials = 50", "x = { float = [0, 1] }");
    let done = searched(place.path(), &["study.toml", "-n", "2"]);
    assert_eq!(done.code, 1);
    let told = done.message();
    assert!(told.contains("the first 3 trials all failed") && told.contains("no such data"), "{told}");
    assert!(told.contains("hint: try the command by hand") && trials(place.path()).len() <= 4, "{told}");
}

#[test]
fn a_program_that_is_not_there_is_told_at_once() {
    let place = study("", "trials = 50", "x = { float = [0, 1] }");
    let text = fs::read_to_string(place.path().join("study.toml")).unwrap().replace("\"sh\"", "\"no-such-program\"");
    fs::write(place.path().join("study.toml"), text).unwrap();
    let done = searched(place.path(), &["study.toml", "-n", "2"]);
    assert!(done.code == 1 && done.message().contains("no-such-program"), "{}", done.message());
    assert!(states(place.path()).iter().all(|state| state == "waiting"), "nothing counts as tried");
}

#[test]
fn trials_have_their_ranks_and_know_where_they_are() {
    let script = r#"
echo "$SIRTAKI_RANK of $SIRTAKI_SIZE, trial $SIRTAKI_TRIAL of $SIRTAKI_STUDY, $SIRTAKI_OBJECTIVE, $SIRTAKI_PARAMETERS"
touch $SIRTAKI_TRIAL_FOLDER/mine
echo "{\"loss\": $SIRTAKI_RANK}""#;
    let place = study(script, "trials = 2\nranks = 2", "x = { int = [4, 4] }");
    let done = searched(place.path(), &["study.toml", "-n", "1"]);
    assert_eq!(done.code, 0, "{}", done.message());
    for trial in 0..2 {
        let folder = place.path().join(format!("runs/study/{trial:04}"));
        for rank in 0..2 {
            let log = fs::read_to_string(folder.join(format!("rank-{rank}.log"))).unwrap();
            let told = format!("{rank} of 2, trial {trial} of study, loss, {{\"x\":4}}\n");
            assert!(log.starts_with(&told), "{log}");
        }
        assert!(folder.join("mine").exists());
    }
}

/// Each slot has its own cores; on a machine with one core there is nothing to divide.
#[test]
fn slots_divide_the_cores() {
    let script = "grep Cpus_allowed_list /proc/self/status; touch $SIRTAKI_TRIAL_FOLDER/up
until [ -e runs/study/0000/up ] && [ -e runs/study/0001/up ]; do sleep 0.01; done; echo '{\"loss\": 1}'";
    let place = study(script, "trials = 2", "x = { float = [0, 1] }");
    let done = searched(place.path(), &["study.toml", "-n", "2"]);
    assert_eq!(done.code, 0, "{}", done.message());
    let cores = |trial: u32| {
        let log = fs::read_to_string(place.path().join(format!("runs/study/{trial:04}/rank-0.log"))).unwrap();
        log.lines().next().unwrap().to_owned()
    };
    let several = std::thread::available_parallelism().unwrap().get() > 1;
    assert_eq!(cores(0) != cores(1), several, "{} and {}", cores(0), cores(1));
}

#[test]
fn ctrl_c_ends_everything_and_the_study_goes_on_later() {
    let place = study("echo started; exec sleep 1000", "trials = 4", "x = { float = [0, 1] }");
    let running = search(place.path(), &["study.toml", "-n", "2"]);
    let started = |trial: u32| {
        fs::read_to_string(place.path().join(format!("runs/study/{trial:04}/rank-0.log")))
            .is_ok_and(|log| log.contains("started"))
    };
    wait::until("both trials run", || started(0) && started(1));
    let second = searched(place.path(), &["study.toml", "--resume"]);
    let told = format!("is being run by process {} on ", running.pid());
    assert!(second.code == 1 && second.message().contains(&told), "{}", second.message());
    running.signal(Signal::INT);
    let done = running.ends();
    assert_eq!(done.code, 130, "{}", done.message());
    assert!(done.message().contains("to continue: sirtaki search --resume study.toml -n 2"), "{}", done.message());
    assert_eq!(states(place.path()), ["waiting", "waiting"]);
    let before = trials(place.path());
    fs::write(place.path().join("trial.sh"), "echo \"{\\\"loss\\\": $1}\"").unwrap();
    let done = searched(place.path(), &["study.toml", "-n", "2", "--resume"]);
    assert_eq!(done.code, 0, "{}", done.message());
    let after = trials(place.path());
    assert_eq!(states(place.path()), ["finished"; 4]);
    assert!((0..2).all(|trial| before[trial]["parameters"] == after[trial]["parameters"]));
    assert_eq!(after[0]["attempts"], 2);
}

#[test]
fn the_time_limit_is_kept() {
    let place = study("exec sleep 1000", "", "x = { float = [0, 1] }");
    let done = searched(place.path(), &["study.toml", "-n", "1", "--time-limit", "1s"]);
    assert!(done.code == 0 && done.message().contains("the time limit is reached"), "{}", done.message());
    assert_eq!(states(place.path()), ["waiting"]);
    let endless = searched(place.path(), &["study.toml", "--resume"]);
    assert!(endless.message().contains("nothing says when the study ends"), "{}", endless.message());
}

#[test]
fn another_space_or_objective_is_refused() {
    let place = study(PARABOLA, "trials = 2", "x = { float = [0, 1] }");
    assert_eq!(searched(place.path(), &["study.toml", "-n", "1"]).code, 0);
    let text = fs::read_to_string(place.path().join("study.toml")).unwrap();
    let with = |from: &str, to: &str| {
        fs::write(place.path().join("study.toml"), text.replace(from, to)).unwrap();
        let done = searched(place.path(), &["study.toml", "--resume"]);
        assert_eq!(done.code, 1);
        done.message()
    };
    let told = with("[0, 1]", "[0, 2]");
    assert!(told.contains("`x` was x=float:0.0..1.0 and is x=float:0.0..2.0"), "{told}");
    let told = with("minimize", "maximize");
    assert!(told.contains("it was minimize loss and is maximize loss"), "{told}");
    fs::write(place.path().join("study.toml"), text.replace("trials = 2", "trials = 3")).unwrap();
    let done = searched(place.path(), &["study.toml", "--resume", "--seed", "9"]);
    assert!(done.code == 0 && done.out[0] == "study study: 3 finished", "{done:?}");
    let told = "warning: the study goes on with the `seed` it began with, 0, and not with 9";
    assert!(done.message().contains(told), "{}", done.message());
}

#[test]
fn mistakes_in_the_file_are_told_before_anything_runs() {
    let place = study(PARABOLA, "trials = 2\nrnaks = 2", "x = { float = [0, 1] }");
    let done = searched(place.path(), &["study.toml"]);
    assert!(
        done.code == 1 && done.message().contains("study.toml:4: unknown key `rnaks`; did you mean `ranks`?"),
        "{}",
        done.message()
    );
    assert!(!place.path().join("runs").exists());
    let done = searched(place.path(), &["absent.toml"]);
    assert!(done.message().contains("cannot read absent.toml"), "{}", done.message());
    let done = searched(place.path(), &["show", "absent"]);
    assert!(done.message().contains("there is no study in absent"), "{}", done.message());
}

/// The examples of the documentation, in their order, in one folder.
#[test]
fn the_examples_of_the_documentation_work() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/search.md")).unwrap();
    let place = tempfile::tempdir().unwrap();
    let blocks: Vec<&str> = page.split("\n```").skip(1).step_by(2).collect();
    let mut commands = 0;
    for block in blocks {
        let (kind, text) = block.split_once('\n').unwrap();
        let file = text.strip_prefix("# ").and_then(|line| line.split([':', '\n']).next());
        match (kind, file) {
            ("toml" | "sh", Some(file @ ("study.toml" | "trial.sh"))) => {
                fs::write(place.path().join(file), text).unwrap()
            }
            ("console", _) => {
                let mut out: Vec<String> = Vec::new();
                for line in text.lines() {
                    let Some(command) = line.strip_prefix("$ sirtaki search ") else {
                        assert!(out.iter().any(|said| said == line), "{line}: {out:?}");
                        continue;
                    };
                    let done = searched(place.path(), &command.split(' ').collect::<Vec<_>>());
                    assert_eq!(done.code, 0, "{command}: {}", done.message());
                    (out, commands) = (done.out, commands + 1);
                }
            }
            _ => {}
        }
    }
    assert!(commands >= 5, "the page has examples");
}

const PLOTS: [&str; 9] =
    ["History", "Values on the way", "Slots", "Importance", "All parameters at once", "x and y", "x", "y", "kind"];

#[test]
fn the_page_of_a_study_in_a_browser() {
    let script = r#"
[ $2 = broken ] && exit 1
for step in 1 2 3; do awk -v x=$1 -v y=$3 -v s=$step 'BEGIN { printf "{\"step\": %d, \"loss\": %.9g}\n", s, x * x + y + 1 / s }'; done"#;
    let more = "trials = 30\nseed = 4\nstop = { method = \"asha\", min = 1, max = 3 }\nenqueue = [{ x = 1, kind = \"<plain>\" }]";
    let place = study(
        script,
        more,
        "x = { float = [-2, 2] }\nkind = [\"<plain>\", \"fine\", \"broken\"]\ny = { log = [1e-3, 1] }",
    );
    let done = searched(place.path(), &["study.toml", "-n", "1"]);
    assert_eq!(done.code, 0, "{}", done.message());
    let done = searched(place.path(), &["report", "runs/study", "-o", "page.html"]);
    assert_eq!(done.code, 0, "{}", done.message());
    let page = place.path().join("page.html");
    for (dark, widths) in [(false, &[1280, 390][..]), (true, &[1280][..])] {
        for seen in browser::look(&page, widths, dark) {
            let titles: Vec<&str> = seen["titles"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            for plot in PLOTS.iter().chain(&["Study study", "All trials", "What was searched"]) {
                assert!(titles.contains(plot), "{plot}: {titles:?}");
            }
            assert_eq!((seen["plots"].as_u64(), seen["plots_in_words"].as_u64()), (Some(9), Some(9)), "{seen}");
            assert_eq!((&seen["too_wide"], seen["scripts"].as_u64()), (&Value::Bool(false), Some(1)), "{seen}");
            assert!(seen["sticking_out"].as_array().unwrap().is_empty(), "{seen}");
            assert!(seen["loaded"].as_array().unwrap().is_empty(), "{seen}");
            assert!(seen["result"].as_str().unwrap().starts_with("Best loss: "), "{seen}");
        }
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("★ ") && text.contains("&lt;plain&gt;") && text.matches("<tr>").count() > 14);
}
