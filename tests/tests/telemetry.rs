//! Timeline and profile of engines whose ranks are threads: what is in them is what was done.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::Value;
use sirtaki_engine::{
    Engine, Operation, Phase, Profiling, Settings, Ticket, TimelineForm,
    telemetry::{counts::CollectiveKind, recorder::Recorder},
};
use sirtaki_tests::{
    engines::{each, submit, sum},
    make,
    trace::Trace,
    wait::until,
};

const NAMES: [&str; 3] = ["weight", "bias", "a \"strange\" name \\ with ü"];

fn step(engine: &Engine) {
    let backward = engine.phase(Phase::Backward);
    let tickets: Vec<Ticket> = NAMES.iter().map(|name| sum(engine, name, vec![1.0_f32; 1000])).collect();
    drop(backward);
    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
}

fn with_timeline(path: &Path) -> Settings {
    Settings { timeline: Some(path.into()), ..Settings::default() }
}

#[test]
fn a_timeline_has_every_tensor_of_every_rank() {
    for (make, algorithm) in [(&make::arena as sirtaki_tests::team::Make<'_>, "flat"), (&make::tcp, "")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        each(make, 3, &with_timeline(&path), |engine| {
            let _ = submit(engine, "start", Operation::Broadcast { root: 1 }, vec![1_u8; 77]).wait().unwrap();
            (0..10).for_each(|_| step(engine));
            engine.barrier("end").unwrap();
        });
        let trace = Trace::read(&path);
        trace.check();
        for rank in 0..3 {
            let of_rank = |name: &str| trace.tensors().iter().filter(|s| s.rank == rank && s.name == name).count();
            assert!(NAMES.iter().all(|name| of_rank(name) == 10), "rank {rank}");
            assert_eq!((of_rank("start"), of_rank("end")), (1, 1), "rank {rank}");
            assert_eq!(trace.named("backward").iter().filter(|slice| slice.rank == rank).count(), 10);
        }
        assert!(!trace.named("vote").is_empty(), "the order was adopted");
        let reduced = trace.slices.iter().find(|slice| slice.name == "all_reduce" && slice.more["tensors"] == 3);
        let by = reduced.unwrap().more["algorithm"].as_str().unwrap().to_owned();
        assert!(by == algorithm || algorithm.is_empty() && ["ring", "doubling"].contains(&by.as_str()), "{by}");
        let arrived: Vec<&Value> =
            trace.slices.iter().map(|slice| &slice.more["arrived"]).filter(|a| a.is_array()).collect();
        assert!(arrived.len() >= 5 && arrived.iter().all(|times| times.as_array().unwrap().len() == 3), "{arrived:?}");
        assert_eq!((trace.about("dropped"), trace.about("clock_error_us")), (0.0, 0.0));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    }
}

#[test]
fn arrows_connect_the_ranks_of_a_collective_and_lanes_are_sorted_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    each(&make::arena, 3, &with_timeline(&path), |engine| {
        (0..5).for_each(|_| step(engine));
        engine.barrier("end").unwrap();
    });
    let trace = Trace::read(&path);
    let events = trace.all["traceEvents"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
    let (starts, ends) = (of("s"), of("f"));
    let collectives = trace.slices.iter().filter(|slice| slice.more["number"].is_u64());
    let on_rank_0: Vec<_> = collectives.clone().filter(|slice| slice.rank == 0).collect();
    assert_eq!((starts.len(), ends.len()), (2 * on_rank_0.len(), 2 * on_rank_0.len()), "from 0 to 1 and from 1 to 2");
    let time = |event: &Value| (event["ts"].as_f64().unwrap() * 1000.0).round() as i64;
    for start in starts {
        let end = ends.iter().find(|end| end["id"] == start["id"]).unwrap();
        assert_eq!(end["pid"].as_u64(), start["pid"].as_u64().map(|rank| rank + 1));
        assert!(time(start) <= time(end), "{start} {end}");
        for event in [start, end] {
            let inside = collectives.clone().any(|slice| {
                (event["pid"].as_u64(), event["tid"].as_u64()) == (Some(slice.rank), Some(slice.thread))
                    && (slice.begin..slice.end.max(slice.begin + 1)).contains(&time(event))
            });
            assert!(inside, "{event} is in no collective");
        }
    }
    let lanes = |rank: u64| {
        let named = trace.facts("thread_name").into_iter().filter(|fact| fact["pid"] == rank);
        named.map(|fact| (fact["args"]["name"].to_string(), fact["tid"].as_u64().unwrap())).collect::<BTreeMap<_, _>>()
    };
    assert!(lanes(0).contains_key("\"weight\"") && lanes(0) == lanes(1) && lanes(1) == lanes(2), "{:?}", lanes(0));
    assert!(trace.facts("thread_sort_index").iter().all(|fact| fact["args"]["sort_index"] == fact["tid"]));
}

#[test]
fn counters_show_memory_and_bytes_per_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    each(&make::arena, 2, &with_timeline(&path), |engine| {
        (0..5).for_each(|_| step(engine));
        engine.barrier("end").unwrap();
    });
    let trace = Trace::read(&path);
    let events = trace.all["traceEvents"].as_array().unwrap();
    for rank in 0..2 {
        let values = |name: &str, unit: &str| {
            let counters = events.iter().filter(|event| event["ph"] == "C" && event["pid"] == rank);
            counters.filter(|event| event["name"] == name).map(|event| event["args"][unit].as_u64().unwrap()).collect()
        };
        let (memory, rates): (Vec<u64>, Vec<u64>) = (values("memory", "bytes"), values("traffic", "bytes/s"));
        assert!(!memory.is_empty() && memory.iter().all(|&bytes| bytes > 1 << 20), "rank {rank}: {memory:?}");
        assert!(rates.iter().any(|&rate| rate >= 12_000 * 10) && rates.last() == Some(&0), "rank {rank}: {rates:?}");
    }
}

#[test]
fn what_ranks_record_before_rank_0_has_its_file_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("t.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (links, settings, mut ranks) = (make::settings(), with_timeline(&pipe), make::arena(2));
    let (second, first) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let text = thread::scope(|scope| {
        let start = |rank| Engine::start(rank, &links, settings.clone()).unwrap();
        // Rank 0 waits until somebody reads from its pipe.
        scope.spawn(move || start(first).barrier("end").unwrap());
        let engine = start(second);
        let (pid, descriptor) = engine.record_address();
        let record = Recorder::open(pid, descriptor).unwrap();
        for _ in 0..3 {
            let before = record.last_beat();
            until("rank 1 that hands in what it has recorded", || record.last_beat() > before);
        }
        let reader = scope.spawn(|| fs::read_to_string(&pipe).unwrap());
        engine.barrier("end").unwrap();
        drop(engine);
        reader.join().unwrap()
    });
    let all: Value = serde_json::from_str(&text).unwrap();
    let events = all["traceEvents"].as_array().unwrap();
    assert!(events.iter().any(|event| event["name"] == "memory" && event["pid"] == 1), "{text}");
}

#[test]
fn a_timeline_for_horovod_s_tools_has_its_events_and_layout() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let settings = Settings { timeline_form: TimelineForm::Horovod { cycles: true }, ..with_timeline(&path) };
    each(&make::arena, 2, &settings, |engine| {
        (0..3).for_each(|_| step(engine));
        engine.barrier("end").unwrap();
    });
    let all: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let events = all.as_array().unwrap();
    assert!(events[0]["args"]["start_time_since_epoch_in_micros"].as_u64().unwrap() > 1 << 50);
    let named = |event: &&Value| event["name"] == "process_name" && event["args"]["name"] == "weight";
    let tensor = &events.iter().find(named).unwrap()["pid"];
    let own = || events.iter().filter(|event| event["pid"] == *tensor);
    for name in ["NEGOTIATE_ALLREDUCE", "ALLREDUCE", "SIRTAKI_ALLREDUCE"] {
        assert_eq!(own().filter(|event| event["name"] == name && event["ph"] == "B").count(), 3, "{name}");
    }
    assert!(own().any(|event| event["name"] == "MEMCPY_IN_FUSION_BUFFER"), "small tensors share a buffer");
    let count = |kind: &str| own().filter(|event| event["ph"] == kind).count();
    assert_eq!(count("B"), count("E"));
    assert!(events.iter().any(|event| event["name"] == "CYCLE_START"));
}

#[test]
fn a_timeline_starts_and_stops_while_the_engine_works() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("1.json"), folder.path().join("2.json"));
    each(&make::arena, 2, &Settings::default(), |engine| {
        let phase = |name: &str, path: Option<&Path>| {
            path.iter().for_each(|path| engine.start_timeline(path).unwrap());
            engine.barrier(&format!("before {name}")).unwrap();
            until("all ranks have heard of it", || engine.is_traced() == path.is_some());
            engine.barrier(&format!("all know of {name}")).unwrap();
            drop(sum(engine, name, vec![1.0_f32; 10]).wait().unwrap());
            engine.barrier(&format!("after {name}")).unwrap();
            engine.stop_timeline();
            engine.barrier(&format!("stopped {name}")).unwrap();
        };
        phase("nothing", None);
        phase("one", Some(&first));
        phase("between", None);
        phase("two", Some(&second));
        let error = engine.start_timeline(Path::new("/nowhere/t.json"));
        match engine.group().rank() {
            0 => assert!(error.unwrap_err().to_string().contains("hint: "), "a folder that is not there"),
            _ => error.unwrap(),
        }
        step(engine);
    });
    for (path, name, other) in [(&first, "one", "two"), (&second, "two", "one")] {
        let trace = Trace::read(path);
        trace.check();
        let ranks: Vec<u64> = trace.named(name).iter().map(|slice| slice.rank).collect();
        assert!(ranks.len() == 2 && ranks.contains(&0) && ranks.contains(&1), "{name}: {ranks:?}");
        assert!(
            trace.named(other).is_empty() && trace.named("between").is_empty() && trace.named("nothing").is_empty()
        );
    }
}

#[test]
fn a_timeline_keeps_to_its_limit_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    let settings = Settings { timeline_limit: 100 << 10, ..with_timeline(&path) };
    each(&make::arena, 2, &settings, |engine| (0..300).for_each(|_| step(engine)));
    assert!(fs::metadata(&path).unwrap().len() <= 100 << 10);
    let trace = Trace::read(&path);
    trace.check();
    assert!(trace.about("dropped") > 100.0 && trace.tensors().len() > 50);
    assert_eq!(trace.facts("sirtaki")[0]["args"]["dropped"], trace.all["otherData"]["dropped"]);
}

#[test]
fn process_sets_are_part_of_the_timeline_and_the_profile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.json");
    each(&make::arena, 3, &with_timeline(&path), |engine| {
        let set = engine.process_set("pair", &[1, 2]).unwrap();
        if let Some(set) = &set {
            drop(sum(set, "inside", vec![1.0_f32; 8]).wait().unwrap());
            let rank = engine.group().rank();
            let profile = engine.profile();
            assert_eq!(profile.counts[rank].as_ref().unwrap().tensors(CollectiveKind::AllReduce), 1);
        }
        engine.barrier("end").unwrap();
    });
    let trace = Trace::read(&path);
    trace.check();
    assert_eq!(trace.named("inside").iter().map(|slice| slice.rank).max(), Some(2));
    assert_eq!(trace.named("inside").len(), 2);
}

#[test]
fn a_profile_counts_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.json");
    let said = Arc::new(Mutex::new(String::new()));
    let page = said.clone();
    let settings = Settings {
        profile: Some(Profiling::File(path.clone())),
        warn: Arc::new(move |text| page.lock().unwrap().push_str(text)),
        ..Settings::default()
    };
    each(&make::arena, 2, &settings, |engine| {
        for _ in 0..5 {
            let small = sum(engine, "small", vec![1.0_f32; 100]);
            let large = sum(engine, "large", vec![1.0_f32; 1 << 20]);
            small.wait().unwrap();
            large.wait().unwrap();
        }
        drop(submit(engine, "rows", Operation::AllGather, vec![1_i64; 3]).wait().unwrap());
        drop(engine.phase(Phase::Forward));
    });
    let profile: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for rank in 0..2 {
        let one = &profile["ranks"][rank];
        let operation = |name: &str| {
            let all = one["operations"].as_array().unwrap();
            all.iter().find(|operation| operation["operation"] == name).unwrap().clone()
        };
        let reduced = operation("all_reduce");
        assert_eq!((&reduced["tensors"], &reduced["tensor_bytes"]), (&10.into(), &(5 * (400 + (4 << 20))).into()));
        assert!(reduced["seconds"].as_f64().unwrap() > 0.0);
        let gathered = operation("all_gather");
        assert_eq!(
            (&gathered["tensors"], &gathered["tensor_bytes"], &gathered["collective_bytes"]),
            (&1.into(), &24.into(), &48.into())
        );
        assert_eq!((&one["phases"][0]["phase"], &one["phases"][0]["times"]), (&"forward".into(), &1.into()));
        let number = |name: &str| one[name].as_f64().unwrap();
        assert!(number("elapsed_seconds") > number("waited_seconds") && number("waited_seconds") > 0.0);
        assert!(number("cpu_seconds") > 0.0 && number("largest_memory_bytes") > 1e6);
        assert!(number("communication_seconds") <= 1.001 * number("elapsed_seconds"));
    }
    let all = &profile["operations"][0];
    assert_eq!((&all["operation"], &all["tensors"]), (&"all_reduce".into(), &20.into()));
    let sizes = all["sizes"].as_array().unwrap();
    let tensors = |bytes: u64| {
        sizes.iter().find(|size| size["from_bytes"] == bytes).map(|size| size["tensors"].as_u64().unwrap())
    };
    assert_eq!((tensors(256), tensors(4 << 20)), (Some(10), Some(10)), "{sizes:?}");
    assert!(profile["copied_bytes_per_second"].as_f64().unwrap() > 1e8);
    compare_with_golden(&said.lock().unwrap());
}

/// Numbers depend on the machine: every run of digits, points and dashes that stands alone counts as the same.
fn compare_with_golden(page: &str) {
    let tolerant = |text: &str| -> Vec<Vec<String>> {
        let number = |word: &str| {
            word.chars().any(|c| c.is_ascii_digit()) && word.chars().all(|c| c.is_ascii_digit() || ".%-".contains(c))
        };
        let word = |word: &str| if number(word) || word == "-" { "#".to_owned() } else { word.to_owned() };
        let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>();
        // Whether there are votes, and whether somebody is late, depends on the machine, too.
        let steady = |words: &Vec<String>| words.first().is_none_or(|first| first != "vote" && first != "straggler:");
        text.lines().map(line).filter(steady).collect()
    };
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/profile.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, page).unwrap();
    }
    let golden = fs::read_to_string(path).unwrap_or_default();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let anonymous = |text: &str| text.replace(&host, "localhost");
    assert_eq!(tolerant(&anonymous(page)), tolerant(&anonymous(&golden)), "\n{page}");
}

#[test]
fn a_world_of_one_is_seen_too() {
    let folder = tempfile::tempdir().unwrap();
    let (timeline, profile) = (folder.path().join("t.json"), folder.path().join("p.json"));
    let settings = Settings { profile: Some(Profiling::File(profile.clone())), ..with_timeline(&timeline) };
    each(&make::arena, 1, &settings, |engine| (0..3).for_each(|_| step(engine)));
    let trace = Trace::read(&timeline);
    trace.check();
    assert_eq!(trace.named("weight").len(), 3);
    let profile: Value = serde_json::from_slice(&fs::read(profile).unwrap()).unwrap();
    assert_eq!(profile["operations"][0]["tensors"], 9);
}
