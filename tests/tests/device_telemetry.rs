//! What timeline, profile and recording say about collectives on devices, with the stand-in for the libraries of GPUs.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::Value;
use sirtaki_comm::{DType, Reduction, device::Stream};
use sirtaki_engine::{
    DeviceSettings, Engine, Operation, Profiling, Request, Settings, Tensor, TensorPlace, Way,
    telemetry::{Progress, counts::CollectiveKind},
};
use sirtaki_tests::{
    data::Data,
    engines::each,
    make,
    stand_in::{finish, gpu, library, upload},
    trace::{Slice, Trace},
    wait,
};

const STEPS: usize = 5;
const RANKS: usize = 2;

fn settings(way: Way, nvml: PathBuf) -> Settings {
    let (nccl, driver) = (Some(library()), Some(library()));
    let device = DeviceSettings { way: Some(way), nccl, driver, nvml: Some(nvml), ..Default::default() };
    Settings { device, ..Settings::default() }
}

/// Adds up a tensor over all ranks. The result is asked for when it is there, or right away.
fn all_reduce(engine: &Engine, stream: &Stream, late: bool) {
    let (memory, view) = upload(&Data::new(DType::F32, &[1.0; 1000]), stream);
    let request = Request::new("x", Operation::AllReduce(Reduction::SUM), view.dtype(), &[view.len()]);
    // SAFETY: the memory is the owner, and nobody else has it.
    let tensor = unsafe { Tensor::on_device(view, Arc::new(stream.record().unwrap()), Box::new(memory)) };
    let ticket = engine.submit(request.placed(TensorPlace::Device), tensor);
    let mut result = ticket.wait_one().unwrap().into_tensor().unwrap();
    if late {
        wait::until("the result", || result.ready().unwrap().is_past().unwrap());
    }
    result.await_on(stream).unwrap();
    finish(stream);
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What a run of all ranks left behind: its timeline, its profile, its first row and what was printed.
fn recorded(way: Way, nvml: PathBuf) -> (Trace, Value, Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let [timeline, profile, run] = ["t.json", "p.json", "run"].map(|name| folder.path().join(name));
    let printed = Arc::new(Mutex::new(String::new()));
    let to = printed.clone();
    let settings = Settings {
        timeline: Some(timeline.clone()),
        profile: Some(Profiling::File(profile.clone())),
        run_folder: Some(run.clone()),
        warn: Arc::new(move |text| to.lock().unwrap().push_str(text)),
        ..settings(way, nvml)
    };
    each(&make::arena, RANKS, &settings, |engine| {
        let stream = gpu(engine.group().rank() as u32).stream(false).unwrap();
        (0..STEPS).for_each(|_| all_reduce(engine, &stream, true));
        // Looks at the device, which otherwise happens once a second.
        let _ = engine.profile();
        engine.progress(&Progress { step: 1, ..Progress::default() });
        engine.barrier("end").unwrap();
    });
    let rows = fs::read_to_string(run.join("steps.jsonl")).unwrap();
    let row = serde_json::from_str(rows.lines().next().unwrap()).unwrap();
    let text = printed.lock().unwrap().clone();
    (Trace::read(&timeline), read(&profile), row, text)
}

#[test]
fn device_time_is_in_timeline_profile_and_report() {
    let (trace, profile, row, text) = recorded(Way::Nccl, library());
    trace.check();
    let on_device = |slice: &&Slice| slice.more["exposed_us"].is_number();
    for rank in 0..RANKS as u64 {
        let spans: Vec<&Slice> = trace.slices.iter().filter(on_device).filter(|slice| slice.rank == rank).collect();
        assert_eq!(spans.len(), STEPS, "rank {rank}");
        for span in spans {
            let same = |slice: &&Slice| slice.rank == rank && slice.more["number"] == span.more["number"];
            let batch = trace.slices.iter().filter(same).find(|slice| !on_device(slice)).unwrap();
            assert!(span.begin >= batch.begin && span.end >= span.begin, "{span:?} {batch:?}");
            assert_eq!((span.name.as_str(), &span.more["bytes"]), ("all_reduce", &Value::from(4000)));
            assert_eq!(span.more["exposed_us"], 0.0, "it was done before it was asked for");
        }
    }
    let lanes = trace.facts("thread_name");
    assert!(lanes.iter().any(|lane| lane["args"]["name"] == "collectives on the GPU"));

    let reduced = profile["operations"].as_array().unwrap().iter().find(|line| line["operation"] == "all_reduce");
    let on_gpus = &reduced.unwrap()["on_gpus"];
    assert_eq!(on_gpus["collectives"], RANKS * STEPS);
    assert!(on_gpus["seconds"].as_f64().unwrap() > 0.0, "{on_gpus}");
    assert!(profile["gpu_path"].as_str().unwrap().starts_with("by NCCL 2.28.9 ("), "{profile}");
    for rank in 0..RANKS {
        let gpu = &profile["ranks"][rank]["gpu"];
        let seconds = |name: &str| gpu[name].as_f64().unwrap();
        assert!(seconds("hidden_seconds") > 0.0 && seconds("exposed_seconds") == 0.0, "{gpu}");
        assert_eq!(
            (&gpu["largest_memory_bytes"], &gpu["memory_bytes"]),
            (&((3_u64 << 30) + rank as u64).into(), &(80_u64 << 30).into())
        );
        assert_eq!(gpu["utilisation_percent"], 42.0);
    }
    assert_eq!((&row["gpu_memory_bytes"], &row["gpu_utilisation"]), (&(3_u64 << 30).into(), &42.into()));
    let overlap = "overlap on GPUs: 100.0 % of that time was hidden behind other work";
    assert!(text.contains(overlap) && text.contains("connected by NVLink"), "{text}");
}

#[test]
fn staged_collectives_are_timed_too_and_without_a_management_library_nothing_is_missing_but_its_figures() {
    let (trace, profile, row, text) = recorded(Way::Staged, "/nowhere/libnvidia-ml.so.1".into());
    let spans = trace.slices.iter().filter(|slice| slice.more["exposed_us"].is_number()).count();
    assert_eq!(spans, RANKS * STEPS);
    let gpu = &profile["ranks"][0]["gpu"];
    assert!(gpu["collective_seconds"].as_f64().unwrap() > 0.0 && gpu["memory_bytes"].is_null(), "{gpu}");
    assert!(row.get("gpu_memory_bytes").is_none() && text.contains("through the host's memory"), "{row} {text}");
}

#[test]
fn nothing_is_timed_that_nobody_wants_to_know() {
    each(&make::arena, RANKS, &settings(Way::Nccl, library()), |engine| {
        let stream = gpu(engine.group().rank() as u32).stream(false).unwrap();
        all_reduce(engine, &stream, false);
        let counts = engine.profile().counts[engine.group().rank()].clone().unwrap();
        assert_eq!(counts.collectives(CollectiveKind::AllReduce), 1);
        assert_eq!((counts.device(CollectiveKind::AllReduce), counts.gpu()), ((0, 0, 0), None));
        engine.barrier("end").unwrap();
    });
}
