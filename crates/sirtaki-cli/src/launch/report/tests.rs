use super::*;

fn failure(how: Ended, last_lines: &str) -> Failure {
    Failure {
        rank: 2,
        host: "node7".into(),
        pid: Some(4711),
        how,
        ran_for: Duration::from_millis(12_340),
        last_lines: last_lines.lines().map(Into::into).collect(),
        profile: Profile::new(Vec::new(), Vec::new()),
        others: Vec::new(),
        folder: None,
        cast: Cast::of_ranks(8),
        hosts: 2,
    }
}

fn plain(failure: &Failure) -> String {
    failure.report(|_, text| text.into())
}

fn signal(number: i32, out_of_memory: bool) -> Ended {
    Ended::Signal { number, out_of_memory }
}

#[test]
fn a_python_program() {
    let waiting = "waiting in \"conv1.grad\" for 3 s";
    let others = [(0, waiting), (1, waiting), (3, "running all_reduce of \"fc.bias\""), (4, waiting)];
    let mut failure = failure(
        Ended::Code(1),
        "epoch 3\nTraceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    step(batch)\n\
         ValueError: shapes (3, 4) and (5,) do not match",
    );
    failure.others = others.map(|(rank, doing)| (rank, doing.to_owned())).into();
    failure.folder = Some("logs".into());
    let expected = r#"error: rank 2 on node7 ended with exit code 1 after 12.3 s: ValueError: shapes (3, 4) and (5,) do not match
last lines of rank 2 (pid 4711):
  | epoch 3
  | Traceback (most recent call last):
  |   File "train.py", line 7, in <module>
  |     step(batch)
  | ValueError: shapes (3, 4) and (5,) do not match
the others meanwhile:
  ranks 0-1,4: waiting in "conv1.grad" for 3 s
  rank 3: running all_reduce of "fc.bias"
all of its output: logs/rank-2.log
hint: the traceback above shows where; the other ranks only followed"#;
    assert_eq!(plain(&failure), expected);
}

#[test]
fn a_rank_without_memory_and_without_words() {
    let mut failure = failure(signal(9, true), "");
    (failure.hosts, failure.pid) = (1, None);
    let expected = "error: rank 2 ran out of memory and was killed by SIGKILL after 12.3 s\n\
                    rank 2 wrote nothing\n\
                    hint: the host ran out of memory: try a smaller batch or model per rank, fewer ranks on this host, or \
                    a host with more memory";
    assert_eq!(plain(&failure), expected);
}

#[test]
fn a_lost_host() {
    let failure = failure(Ended::Lost("the connection to node7 broke".into()), "step 1\n\nstep 2");
    let expected = "error: rank 2 on node7 was lost after 12.3 s: the connection to node7 broke\n\
                    last lines of rank 2 (pid 4711):\n  | step 1\n  |\n  | step 2\n\
                    hint: check that the host is up and that `ssh` reaches it";
    assert_eq!(plain(&failure), expected);
}

#[test]
fn every_kind_of_end_has_a_hint_of_its_own() {
    let cases = [
        (Ended::Code(3), "", "its last lines may say why"),
        (Ended::Code(126), "", "chmod +x"),
        (Ended::Code(127), "sh: 1: trian: not found", "PATH"),
        (Ended::Code(139), "", "SIGSEGV killed"),
        (Ended::Stopped, "", "kill -STOP"),
        (Ended::Early, "", "`init`"),
        (Ended::NotStarted { reason: "no".into(), hint: "raise the limit".into() }, "", "raise the limit"),
        (signal(2, false), "", "asked it to end"),
        (signal(15, false), "", "time limit"),
        (signal(9, false), "", "dmesg"),
        (signal(11, false), "", "PYTHONFAULTHANDLER"),
        (signal(6, false), "", "gave up"),
        (Ended::Code(1), "  File \"a\", line 1\nMemoryError", "too little memory"),
        (Ended::Code(1), "  File \"a\", line 1\ntorch.OutOfMemoryError: CUDA out of memory.", "GPU"),
        (Ended::Code(1), "  File \"a\", line 1\nModuleNotFoundError: No module named 'x'", "environment"),
    ];
    for (how, lines, words) in cases {
        let report = plain(&failure(how, lines));
        let hint = report.lines().last().unwrap();
        assert!(hint.starts_with("hint: ") && hint.contains(words), "{hint}");
    }
}

#[test]
fn a_report_is_one_page() {
    let mut failure = failure(Ended::Code(1), &"a very long line ".repeat(50).trim().replace(" a", "\n a").repeat(20));
    failure.last_lines.push("x".repeat(100_000));
    failure.others = (0..1000).map(|rank| (rank, format!("waiting for \"{rank}\""))).collect();
    let report = plain(&failure);
    assert!(report.lines().count() <= 40 && report.lines().all(|line| line.chars().count() < 250), "{report}");
    assert!(report.contains("  … and 993 more ranks\n"));
}

#[test]
fn colours_only_repeat_what_words_say() {
    let failure = failure(Ended::Code(3), "x");
    let painted = failure.report(|style, text| format!("<{style:?}>{text}</>"));
    let bare = painted.replace("</>", "").replace("<Bold>", "").replace("<Bad>", "").replace("<Faint>", "");
    assert!(painted.starts_with("<Bad>error:</> <Bold>rank 2</> on node7"), "{painted}");
    assert_eq!(bare, plain(&failure));
}

#[test]
fn success_is_one_line() {
    assert_eq!(success(4, 2, Duration::from_millis(12_340)), "4 ranks on 2 hosts finished in 12.3 s");
    assert_eq!(success(1, 1, Duration::from_millis(350)), "1 rank on 1 host finished in 350 ms");
}
