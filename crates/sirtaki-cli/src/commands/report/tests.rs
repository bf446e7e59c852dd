//! Grouping, scaling, and how the page treats names that contain markup.

use super::{
    compare::{self, ScalingKind},
    document, figures,
    findings::Findings,
    json, markdown, page,
    read::{GpuProfile, Profile, RankProfile, RecordedRun, RecordedStep, RunState, Unreadable},
};

fn run(ranks: usize, batch: usize, seed: usize, rate: f64) -> RecordedRun {
    let row = |seconds: f64, test_accuracy| RecordedStep {
        seconds: Some(seconds),
        samples: Some(seconds * rate),
        loss: Some(1.0 / (1.0 + seconds)),
        test_accuracy,
        ..RecordedStep::default()
    };
    let settings = [
        ("model", "lenet".to_owned()),
        ("global_batch", batch.to_string()),
        ("batch_per_worker", (batch / ranks).to_string()),
        ("seed", seed.to_string()),
        ("target_accuracy", "0.9".to_owned()),
    ];
    RecordedRun {
        name: format!("{ranks}-{batch}-{seed}"),
        state: RunState::Finished,
        ranks,
        settings: settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        steps: vec![row(1.0, None), row(2.0, Some(0.8)), row(3.0, Some(0.95))],
        ..RecordedRun::default()
    }
}

fn scaling_runs() -> Vec<RecordedRun> {
    let mut runs = Vec::new();
    for seed in [1, 2] {
        let more = 10.0 * seed as f64;
        runs.extend([run(1, 128, seed, 90.0 + more), run(2, 128, seed, 150.0 + more), run(2, 256, seed, 180.0 + more)]);
    }
    runs
}

#[test]
fn runs_that_differ_in_their_seed_alone_are_one_group() {
    let groups = compare::groups(&scaling_runs(), None);
    let shape: Vec<(&str, usize, usize)> =
        groups.iter().map(|group| (group.letter.as_str(), group.ranks, group.members.len())).collect();
    assert_eq!(shape, [("A", 1, 2), ("B", 2, 2), ("C", 2, 2)]);
    let mut other = run(1, 128, 3, 100.0);
    other.environment.insert("SIRTAKI_ALGORITHM".into(), "ring".into());
    other.environment.insert("SIRTAKI_TIMELINE".into(), "trace.json".into());
    let mut shown = run(1, 128, 4, 100.0);
    shown.environment.insert("SIRTAKI_TIMELINE".into(), "other.json".into());
    let groups = compare::groups(&[run(1, 128, 1, 100.0), other, shown], None);
    assert_eq!(groups.iter().map(|group| group.members.clone()).collect::<Vec<_>>(), [vec![1], vec![0, 2]]);
}

#[test]
fn strong_and_weak_scaling_are_told_apart_and_share_their_baseline() {
    let groups = compare::groups(&scaling_runs(), None);
    let scalings = compare::scalings(&groups);
    assert_eq!(
        scalings.iter().map(|scaling| scaling.kind).collect::<Vec<_>>(),
        [ScalingKind::Strong, ScalingKind::Weak]
    );
    for (scaling, expected) in scalings.iter().zip([165.0 / 105.0, 195.0 / 105.0]) {
        let [base, point] = scaling.points.as_slice() else { panic!("{scaling:?}") };
        assert_eq!((base.workers, base.speedup.mean, base.efficiency.mean), (1, 1.0, 1.0));
        assert!((point.speedup.mean - expected).abs() < 1e-9 && (point.efficiency.mean - expected / 2.0).abs() < 1e-9);
        assert!(scaling.baseline(&groups).starts_with("1 worker (A)"));
    }
    let mut other = scaling_runs();
    other
        .iter_mut()
        .filter(|run| run.ranks == 2)
        .for_each(|run| drop(run.settings.insert("model".into(), "cnn".into())));
    assert!(compare::scalings(&compare::groups(&other, None)).is_empty(), "another model is another job");
}

#[test]
fn a_baseline_of_two_workers_has_a_speed_up_of_two() {
    let runs = [run(2, 128, 1, 100.0), run(4, 128, 1, 150.0)];
    let scalings = compare::scalings(&compare::groups(&runs, None));
    let points = &scalings[0].points;
    assert_eq!((points[0].speedup.mean, points[1].speedup.mean, points[1].efficiency.mean), (2.0, 3.0, 0.75));
    let notes = document::write(&Findings::new(runs.to_vec(), Vec::new(), None), None).notes;
    assert!(notes.iter().any(|note| note.contains("what one worker does is not known")), "{notes:?}");
}

#[test]
fn parts_of_a_training_are_in_no_scaling() {
    let with = |mut run: RecordedRun, name: &str| {
        run.settings.insert(name.into(), "500".into());
        run
    };
    let findings = |other: RecordedRun| Findings::new(vec![run(1, 128, 1, 100.0), other], Vec::new(), None);
    let notes = |findings: &Findings| document::write(findings, None).notes.join("\n");
    let whole = findings(run(2, 128, 1, 150.0));
    assert!(!whole.scalings.is_empty() && !notes(&whole).contains("not compared as scaling"));
    let limited = findings(with(run(2, 128, 1, 150.0), "max_steps"));
    assert!(limited.scalings.is_empty() && limited.groups[1].reached.is_some(), "it reached its goal before");
    let note = "1 run (B) stopped after a number of steps that was set. Such runs did not do the whole work on one \
                number of workers and are not compared as scaling.";
    assert!(notes(&limited).contains(note), "{}", notes(&limited));
    let continued = findings(with(run(2, 128, 1, 150.0), "resumed_step"));
    assert!(continued.scalings.is_empty() && continued.groups[1].reached.is_none());
    assert!(notes(&continued).contains("1 run (B) went on from a checkpoint."), "{}", notes(&continued));
    let changed = findings(RecordedRun { rounds: vec!["one".into(), "two".into()], ..run(2, 128, 1, 150.0) });
    assert!(changed.scalings.is_empty() && notes(&changed).contains("changed workers"), "{}", notes(&changed));
    let planned = [1, 2].map(|ranks| RecordedRun { planned: true, ..with(run(ranks, 128, 1, 100.0), "max_steps") });
    assert!(!Findings::new(planned.to_vec(), Vec::new(), None).scalings.is_empty(), "all in the same way");
}

#[test]
fn a_legend_has_a_few_words() {
    let words = |runs: &[RecordedRun]| {
        let legend = Findings::new(runs.to_vec(), Vec::new(), None).legend();
        legend.into_iter().map(|(_, name, words)| format!("{name}: {words}")).collect::<Vec<_>>()
    };
    let runs = scaling_runs();
    assert_eq!(words(&runs[..1]), Vec::<String>::new());
    assert_eq!(words(&[run(1, 128, 1, 90.0), run(1, 128, 7, 90.0)]), ["seed 1: ", "seed 7: "]);
    let expected =
        ["A: 1 worker, batch 128, 2 runs", "B: 2 workers, batch 256, 2 runs", "C: 2 workers, batch 128, 2 runs"];
    assert_eq!(words(&runs), expected);
    let mut other = run(1, 128, 1, 90.0);
    for name in ["a", "b", "c", "d"] {
        other.settings.insert(name.into(), "a value of many letters and more".into());
    }
    other.environment.insert("SIRTAKI_ALGORITHM".into(), "ring".into());
    assert_eq!(
        words(&[run(1, 128, 1, 90.0), other])[0],
        "A: 1 worker, algorithm ring, a a value of many lette…, 3 more"
    );
}

#[test]
fn charts_have_their_data_beside_them() {
    let findings = Findings::new(scaling_runs(), Vec::new(), None);
    let sections = figures::draw(&findings);
    let data = |title: &str| -> serde_json::Value {
        let figure = sections.iter().flat_map(|section| &section.figures).find(|figure| figure.title == title).unwrap();
        serde_json::from_str(figure.data.as_ref().unwrap()).unwrap()
    };
    let loss = data("Loss over time");
    assert_eq!(loss["series"].as_array().unwrap().len(), 6, "training alone, as no test has a loss");
    let first = &loss["series"][0];
    assert_eq!(
        (&first["full"], &first["key"], &first["noisy"]),
        (&"A seed 1 training".into(), &0.into(), &true.into())
    );
    assert_eq!(first["points"][2], serde_json::json!([3.0, 0.25]));
    assert_eq!(data("Speed-up")["series"][0]["key"], serde_json::Value::Null, "a scaling is no entry of the legend");
    let page = page::write(&findings, &document::write(&findings, None), &sections);
    assert!(page.contains("<li data-key=\"2\">") && page.contains("<g data-key=\"2\">"));
}

#[test]
fn the_axis_of_accuracy_begins_with_the_first_test() {
    let mut one = run(1, 128, 1, 100.0);
    one.steps.iter_mut().zip([0.1, 0.7, 0.9]).for_each(|(step, accuracy)| step.accuracy = Some(accuracy));
    let sections = figures::draw(&Findings::new(vec![one], Vec::new(), None));
    let figure = sections.iter().flat_map(|section| &section.figures).find(|one| one.title == "Accuracy over time");
    let data: serde_json::Value = serde_json::from_str(figure.unwrap().data.as_ref().unwrap()).unwrap();
    let values: Vec<&serde_json::Value> =
        data["series"].as_array().unwrap().iter().flat_map(|one| one["points"].as_array().unwrap()).collect();
    assert_eq!(values.len(), 3, "one point of training and two tests: {data}");
    assert!(figure.unwrap().svg.contains(">80</text>") && !figure.unwrap().svg.contains(">70</text>"));
}

#[test]
fn a_busy_machine_is_mentioned_beside_a_low_efficiency() {
    let with_load = |mut run: RecordedRun, load| {
        run.hosts = vec!["a".into(); run.ranks];
        RecordedRun { load, ..run }
    };
    let notes = |speed: f64, load: Option<f64>| {
        let runs = vec![with_load(run(1, 128, 1, 100.0), Some(9.0)), with_load(run(2, 128, 1, speed), load)];
        document::write(&Findings::new(runs, Vec::new(), None), None).notes
    };
    let said =
        |notes: Vec<String>| notes.iter().filter(|note| note.contains("busy (load")).cloned().collect::<Vec<_>>();
    let expected = "In strong scaling with 2 workers, other programs kept the machine busy (load 5.0), which lowers the \
                    efficiency of 60 %.";
    assert_eq!(said(notes(120.0, Some(5.0))), [expected]);
    assert!(said(notes(190.0, Some(5.0))).is_empty(), "nothing to explain");
    assert!(said(notes(120.0, Some(2.1))).is_empty(), "it is the job's own work");
    assert!(said(notes(120.0, None)).is_empty(), "not known");
}

#[test]
fn what_did_not_finish_is_counted_and_in_no_mean() {
    let mut runs = scaling_runs();
    runs[0].state = RunState::Failed("out of memory".into());
    runs[3].state = RunState::Unfinished;
    let lost = Unreadable { name: "lost".into(), why: "run.json is damaged".into() };
    let findings = Findings::new(runs, vec![lost], None);
    assert_eq!(findings.census(), "7 runs: 4 finished, 1 failed, 1 unfinished, 1 unreadable");
    assert!(findings.groups[0].throughput.is_none() && findings.scalings.is_empty());
    let text = markdown::write(&document::write(&findings, None));
    for part in
        ["failed: out of memory", "| unfinished |", "unreadable: run.json is damaged", "3 of 7 runs did not finish"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// What a rank with a GPU counted whose tensors travelled this way.
fn on_gpus(path: &str) -> Profile {
    let gpu = GpuProfile {
        collective_seconds: 4.0,
        hidden_seconds: 3.0,
        largest_memory_bytes: Some(3.0 * 1024_f64.powi(3)),
        ..GpuProfile::default()
    };
    let ranks = vec![RankProfile { gpu: Some(gpu), ..RankProfile::default() }];
    Profile { ranks, gpu_path: Some(path.into()), ..Profile::default() }
}

#[test]
fn gpus_have_a_table_where_there_were_any() {
    let written = |profile: Option<Profile>| {
        let findings = Findings::new(vec![RecordedRun { profile, ..run(1, 128, 1, 100.0) }], Vec::new(), None);
        let document = document::write(&findings, None);
        let data: serde_json::Value = serde_json::from_str(&json::write(&findings, &document)).unwrap();
        (markdown::write(&document), data["runs"][0]["largest_gpu_memory_bytes"].clone())
    };
    let (text, memory) = written(Some(on_gpus("by NCCL 2.28.9")));
    assert!(text.contains("GPUs") && text.contains("tensors travelled by NCCL 2.28.9"), "{text}");
    assert!(text.contains("75 %") && memory == 3.0 * 1024_f64.powi(3), "{memory} {text}");
    let (text, memory) = written(Some(Profile::default()));
    assert!(!text.contains("GPUs") && memory.is_null(), "{text}");
}

#[test]
fn names_from_files_stay_names() {
    let mut evil = run(1, 128, 1, 100.0);
    let bad = "<script>alert(1)</script>\"'><img src=http://a.example/x>";
    evil.name = bad.into();
    evil.settings.insert(bad.into(), bad.into());
    evil.settings.insert("model".into(), bad.into());
    evil.command = vec![bad.into()];
    evil.hosts = vec![bad.into()];
    evil.version = bad.into();
    evil.state = RunState::Failed(bad.into());
    evil.profile = Some(on_gpus(bad));
    let other = run(2, 128, 1, 150.0);
    for runs in [vec![evil.clone()], vec![evil, other]] {
        let findings = Findings::new(runs, vec![Unreadable { name: bad.into(), why: bad.into() }], None);
        let document = document::write(&findings, Some(bad));
        let page = page::write(&findings, &document, &figures::draw(&findings));
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>alert") && !page.contains("<img"));
        let data = page.matches("<script type=\"application/json\">").count();
        assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (data + 1, data + 1));
        assert!(!markdown::write(&document).contains('<'));
        let data: serde_json::Value = serde_json::from_str(&json::write(&findings, &document)).unwrap();
        assert_eq!(data["unreadable"][0]["name"], bad);
    }
}

#[test]
fn a_run_that_says_next_to_nothing_has_a_page_too() {
    let empty = RecordedRun { name: "empty".into(), ..RecordedRun::default() };
    let findings = Findings::new(vec![empty], Vec::new(), None);
    let document = document::write(&findings, None);
    let page = page::write(&findings, &document, &figures::draw(&findings));
    assert!(document.sentence.contains("recorded neither speed nor accuracy"), "{}", document.sentence);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}
