//! What a study's file may ask for: limits, earlier studies, trials that go on, GPUs; and the page of a study that runs.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
};

use serde_json::{Value, json};
use sirtaki_tests::{launch::Launch, wait};

use crate::{PARABOLA, search, searched, study, trials};

#[test]
fn limits_are_kept_by_the_best() {
    let script = r#"awk -v x=$1 'BEGIN { printf "{\"loss\": %.17g, \"memory\": %.17g}\n", x, 4 - x }'"#;
    let more = "trials = 14\nconstraints = [\"memory <= 3\"]\nenqueue = [{ x = 0.5 }, { x = 1.5 }]";
    let place = study(script, more, "x = { float = [0, 4] }");
    let done = searched(place.path(), &["study.toml", "-n", "2"]);
    assert_eq!(done.code, 0, "{}", done.message());
    let best = searched(place.path(), &["best", "runs/study", "--json"]);
    let best: Value = serde_json::from_str(&best.out.join("\n")).unwrap();
    let x = best["parameters"]["x"].as_f64().unwrap();
    assert!((1.0..=1.5).contains(&x), "0.5 has less loss, and needs more memory: {best}");
    fs::write(place.path().join("trial.sh"), "echo '{\"loss\": 1}'").unwrap();
    let done = searched(place.path(), &["study.toml", "-n", "1", "--folder", "other"]);
    assert!(done.message().contains("it ended without a line such as {\"memory\": 0.5}"), "{}", done.message());
}

#[test]
fn an_earlier_study_is_known_from_the_start() {
    let place = study(PARABOLA, "trials = 5", "x = { float = [-5, 5] }");
    assert_eq!(searched(place.path(), &["study.toml", "-n", "1"]).code, 0);
    let text = fs::read_to_string(place.path().join("study.toml")).unwrap();
    let more = "trials = 4\nwarm_start = \"runs/study\"\nname = \"later\"";
    fs::write(place.path().join("later.toml"), text.replace("trials = 5", more)).unwrap();
    let done = searched(place.path(), &["later.toml", "-n", "1"]);
    assert_eq!((done.code, done.out[0].as_str()), (0, "study later: 9 finished"), "{}", done.message());
    assert!(done.message().contains("5 of 5 trials of study study fit and are known from the start"), "{done:?}");
    let absent = text.replace("trials = 5", "trials = 4\nwarm_start = \"absent\"\nname = \"third\"");
    fs::write(place.path().join("third.toml"), absent).unwrap();
    let told = searched(place.path(), &["third.toml"]).message();
    assert!(told.contains("there is no study in absent"), "{told}");
}

/// Each trial notes how far it came, and goes on from there. All but the first are stopped after one step; when there are six,
/// the second of them is among the best third.
#[test]
fn a_stopped_trial_goes_on_in_its_folder() {
    let script = r#"
at=$SIRTAKI_TRIAL_FOLDER/at; step=$(cat $at 2>/dev/null || echo 0)
while [ $step -lt 3 ]; do
  step=$((step + 1)); echo $step > $at; echo "{\"step\": $step, \"loss\": $1}"
  if [ $step = 1 ] && [ $1 != 0.1 ]; then exec sleep 1000; fi
done"#;
    let points: Vec<String> = [0.1, 0.2, 0.5, 0.6, 0.7, 0.8].iter().map(|x| format!("{{ x = {x} }}")).collect();
    let stop = "stop = { method = \"asha\", min = 1, max = 3, promote = true }";
    let more = format!("trials = 6\n{stop}\nenqueue = [{}]", points.join(", "));
    let place = study(script, &more, "x = { float = [0, 1] }");
    let done = searched(place.path(), &["study.toml", "-n", "1"]);
    let told = "study study: 2 finished, 5 stopped early";
    assert_eq!((done.code, done.out[0].as_str()), (0, told), "{}", done.message());
    let promoted = &trials(place.path())[6];
    assert_eq!((&promoted["continues"], &promoted["parameters"]["x"]), (&Value::from(1), &Value::from(0.2)));
    assert_eq!(promoted["reports"], json!([[1, 0.2], [2, 0.2], [3, 0.2]]), "the first is that of the one before");
    let log = fs::read_to_string(place.path().join("runs/study/0001/rank-0.log")).unwrap();
    let steps: Vec<&str> = log.lines().filter_map(|line| line.split([' ', ',']).nth(1)).collect();
    assert_eq!(steps, ["1", "2", "3"], "nothing is done twice: {log}");
    assert!(!place.path().join("runs/study/0006").exists());
}

#[test]
fn gpus_that_are_not_there_are_told() {
    let place = study(PARABOLA, "trials = 2\ngpus = 2", "x = { float = [0, 1] }");
    let run = |visible: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
        command.current_dir(place.path()).arg("search").args(arguments).env("CUDA_VISIBLE_DEVICES", visible);
        Launch::start(command).ends()
    };
    let done = run("0", &["study.toml"]);
    assert!(done.code == 1 && done.message().contains("a trial needs 2 GPUs, and this machine has 1"), "{done:?}");
    let done = run("0,1,2,3", &["study.toml", "-n", "3"]);
    assert!(done.code == 1 && done.message().contains("use -n 2, or fewer `gpus`"), "{done:?}");
    fs::write(place.path().join("trial.sh"), "echo \"on $CUDA_VISIBLE_DEVICES\"; echo '{\"loss\": 1}'").unwrap();
    let done = run("0,1,2,3", &["study.toml"]);
    assert_eq!(done.code, 0, "{}", done.message());
    for trial in 0..2 {
        let log = fs::read_to_string(place.path().join(format!("runs/study/{trial:04}/rank-0.log"))).unwrap();
        assert!(log.starts_with("on 0,1\n") || log.starts_with("on 2,3\n"), "{log}");
    }
}

/// What is at an address of this machine. A browser would load the page again and again.
fn get(url: &str) -> String {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer
}

#[test]
fn a_running_study_has_a_page() {
    let script = "echo '{\"step\": 1, \"loss\": 0.5}'; until [ -e go ]; do sleep 0.01; done; echo '{\"loss\": 0.25}'";
    let place = study(script, "trials = 2", "x = { float = [0, 1] }");
    let running = search(place.path(), &["study.toml", "-n", "2", "--dashboard"]);
    let said = running.says("dashboard: http://127.0.0.1:");
    let url = said.split_once("dashboard: ").unwrap().1.trim();
    wait::until("the page shows the trials", || get(url).contains("2 of 2 slots busy"));
    let page = get(url);
    assert!(page.contains("Study study"), "{page}");
    assert!(page.contains("have not ended") && !page.contains("<script") && !page.contains("<style"), "{page}");
    assert!(page.contains("http-equiv=\"refresh\"") && get(&format!("{url}page.css")).contains("path.line"), "{page}");
    fs::write(place.path().join("go"), "").unwrap();
    let done = running.ends();
    assert_eq!((done.code, done.out[0].as_str()), (0, "study study: 2 finished"), "{}", done.message());
}
