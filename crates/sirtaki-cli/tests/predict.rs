//! `sirtaki predict` on the networks in docs/predict: what was published about them, and the examples of docs/predict.md.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command as typed in the repository's folder.
fn sirtaki(line: &str) -> Output {
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("sirtaki"), "{line}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki"));
    command.args(words).current_dir(root()).env_clear().env("COLUMNS", "100").output().unwrap()
}

/// Horovod's cluster: 4 GPUs a server, 25 Gbit/s with RDMA, one ring over all GPUs, and its buffer of 64 MB.
const HOROVOD: &str = "--per-host 4 --bandwidth 25Gbit --latency 5us --algorithm ring --fusion 64M --fusion-large 64M";

fn efficiency(model: &str, workers: usize) -> f64 {
    let line = format!("sirtaki predict --model docs/predict/{model}.json --workers {workers} {HOROVOD} --json");
    let output = sirtaki(&line);
    assert!(output.status.success(), "{output:?}");
    let forecast: Value = serde_json::from_slice(&output.stdout).unwrap();
    forecast["rows"][0]["efficiency"].as_f64().unwrap() * 100.0
}

#[test]
fn the_published_efficiencies_of_512_gpus_come_out_within_ten_points() {
    // Horovod's own figures for 128 servers of 4 Pascal GPUs each.
    for (model, published) in [("resnet101", 90.0), ("vgg16", 68.0)] {
        let predicted = efficiency(model, 512);
        assert!((predicted - published).abs() < 10.0, "{model}: {predicted:.1} % instead of {published} %");
    }
}

#[test]
fn the_described_networks_have_the_published_sizes() {
    for (model, parameters) in [("resnet101", 44_549_160), ("vgg16", 138_357_544)] {
        let text = std::fs::read(root().join(format!("docs/predict/{model}.json"))).unwrap();
        let model: Value = serde_json::from_slice(&text).unwrap();
        let bytes: u64 =
            model["tensors"].as_array().unwrap().iter().map(|tensor| tensor["bytes"].as_u64().unwrap()).sum();
        assert_eq!(bytes, 4 * parameters);
    }
}

#[test]
fn the_page_shows_what_the_command_prints() {
    let page = std::fs::read_to_string(root().join("docs/predict.md")).unwrap();
    let mut shown = 0;
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let (line, expected) = block.split_once('\n').unwrap();
        if cfg!(not(feature = "train")) && line.contains("--micro-batches") {
            continue;
        }
        let output = sirtaki(line.strip_prefix("$ ").unwrap());
        assert!(output.status.success(), "{line}: {output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{line}");
        shown += 1;
    }
    assert!(shown > 0);
}

#[test]
fn the_page_s_example_describes_a_network() {
    let page = std::fs::read_to_string(root().join("docs/predict.md")).unwrap();
    let model = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), model).unwrap();
    let output = sirtaki(&format!("sirtaki predict --workers 1,8 --json --model {}", file.path().display()));
    assert!(output.status.success(), "{output:?}");
    let forecast: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&forecast["tensors"], &forecast["bytes"]), (&2.into(), &5_000_000.into()));
    assert!(forecast["rows"][1]["straggler_seconds"].as_f64().unwrap() > 0.0, "{forecast}");
}

/// The rows of a prediction for a described network.
fn rows(model: &str, options: &str) -> Vec<Value> {
    let output = sirtaki(&format!("sirtaki predict --model docs/predict/{model}.json {options} --json"));
    assert!(output.status.success(), "{output:?}");
    let forecast: Value = serde_json::from_slice(&output.stdout).unwrap();
    forecast["rows"].as_array().unwrap().clone()
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row}"))
}

#[test]
fn steps_that_vary_by_three_percent_explain_resnet_101() {
    let rows = rows("resnet101", &format!("--workers 512 {HOROVOD} --noise 3%"));
    let efficiency = 100.0 * number(&rows[0], "efficiency");
    assert!((efficiency - 90.0).abs() < 1.0, "{efficiency}");
}

#[test]
fn strategies_are_compared_for_every_number_of_workers() {
    let rows = rows("vgg16", "--workers 4,16 --per-host 4 --noise 3% --strategy all --servers 2");
    let names: Vec<&str> = rows.iter().map(|row| row["strategy"].as_str().unwrap()).collect();
    let all =
        ["data", "sharded", "central", "server, delay 0", "server, delay 4", "server, delay none", "local, every 8"];
    assert_eq!(names, [all, all].concat());
    let of = |at: usize, field| number(&rows[7 + at], field);
    assert_eq!(of(0, "sent_bytes"), of(1, "sent_bytes"), "sharded state moves as much");
    assert!(of(2, "memory_bytes") < of(1, "memory_bytes") && of(1, "memory_bytes") < of(0, "memory_bytes"));
    assert!(of(6, "step_seconds") < of(0, "step_seconds"), "a slow network gains by local SGD");
    assert!(of(4, "step_seconds") <= of(3, "step_seconds") && of(5, "step_seconds") <= of(4, "step_seconds"));
    // Each of 16 workers sends 528 MiB through two servers' links.
    assert!(of(3, "communication_seconds") > 2.0 * 8.0 * 138_357_544.0 * 4.0 / 1.25e9);
}

#[test]
fn averaging_in_every_step_is_data_parallelism() {
    let of = |strategy: &str| rows("vgg16", &format!("--workers 1..32 --noise 2% {strategy}"));
    for (data, local) in of("").iter().zip(of("--strategy local --every 1")) {
        assert_eq!(number(data, "step_seconds"), number(&local, "step_seconds"));
    }
}

#[test]
fn failures_leave_less_of_more_workers_and_elastic_ones_more() {
    let of = |options: &str| -> Vec<f64> {
        let rows = rows("resnet101", &format!("--workers 8,64,512,4096 --mtbf 1000h {options}"));
        rows.iter().map(|row| number(&row["failures"], "goodput")).collect()
    };
    let (fixed, best, elastic) = (of("--checkpoint-every 10m"), of(""), of("--recovery 0.5s"));
    for list in [&fixed, &best, &elastic] {
        assert!(list.windows(2).all(|pair| pair[1] < pair[0]), "{list:?}");
        assert!(list.iter().all(|share| (0.0..=1.0).contains(share)), "{list:?}");
    }
    for at in 0..4 {
        assert!(fixed[at] < best[at] && best[at] < elastic[at], "{fixed:?} {best:?} {elastic:?}");
    }
}

#[test]
fn comparisons_fit_a_terminal_of_80_columns() {
    let base = "sirtaki predict --model docs/predict/vgg16.json --workers 8..4096 --strategy all";
    for options in ["--every 16", "--mtbf 1000h", "--mtbf 1000h --recovery 1s"] {
        let output = sirtaki(&format!("{base} {options}"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().count() > 70, "{text}");
        let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}

#[test]
fn the_page_says_that_it_is_simulated_and_has_everything_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("predict.html");
    let options = "--workers 1..100000 --per-host 8 --noise 3% --mtbf 1000h --strategy data,local --output";
    let line = format!("sirtaki predict --model docs/predict/resnet101.json {options} {}", file.display());
    let output = sirtaki(&line);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("predict.html: the same with plots"));
    let page = std::fs::read_to_string(file).unwrap();
    for part in [
        "<h1>Simulated with sirtaki predict: ResNet-101</h1>",
        "Efficiency (simulated)",
        "Goodput (simulated)",
        "Nothing was recorded",
        "100,000 workers",
        "local, every 8",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let shown = page.split("<script>").next().unwrap();
    assert!(!shown.contains("NaN") && !shown.contains("inf\"") && !shown.contains(" src="));
}

/// Steps of two ranks on one host: gradients of 4 MB after 40, 60, 80 and 100 ms, later on one of them, reduced in 3 ms.
fn timeline(steps: usize) -> String {
    let mut events = Vec::new();
    let mut event = |rank: usize, name: &str, (begin, end): (f64, f64), arguments: Value| {
        let (ts, dur) = (1e3 * begin, 1e3 * (end - begin));
        events.push(serde_json::json!({"ph": "X", "tid": 1, "pid": rank, "ts": ts, "dur": dur, "name": name, "args": arguments}));
    };
    let mut begin = 0.0;
    for step in 0..steps {
        let slower = |rank: usize| 1.0 + 0.01 * ((step + rank) % 5) as f64;
        let ready = begin + 100.0 * slower(0).max(slower(1));
        for rank in 0..2 {
            let whole = serde_json::json!({"number": step, "tensors": 4, "bytes": 16_000_000, "algorithm": "flat"});
            event(rank, "all_reduce", (ready, ready + 3.0), whole);
            for tensor in 0..4 {
                let handed = begin + (40.0 + 20.0 * tensor as f64) * slower(rank);
                let one = serde_json::json!({"bytes": 4_000_000, "collective": step});
                event(rank, &format!("gradient {tensor}"), (handed, ready + 3.0), one);
            }
            let inside = serde_json::json!({"bytes": 16_000_000, "algorithm": "flat"});
            event(rank, "all_reduce", (ready + 0.5, ready + 2.5), inside);
        }
        begin = ready + 3.0;
    }
    let about = serde_json::json!({"format": "sirtaki timeline, version 1", "ranks": 2, "dropped": 0});
    serde_json::json!({"otherData": about, "traceEvents": events}).to_string()
}

#[test]
fn a_record_stands_beside_what_is_predicted_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, page) = (folder.path().join("trace.json"), folder.path().join("predict.html"));
    std::fs::write(&trace, timeline(30)).unwrap();
    let line = format!("sirtaki predict {} --workers 2,64 --json --output {}", trace.display(), page.display());
    let output = sirtaki(&line);
    assert!(output.status.success(), "{output:?}");
    let forecast: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = &forecast["calibration"];
    let (recorded, predicted) = (number(found, "recorded_step_seconds"), number(found, "predicted_step_seconds"));
    // 100 ms, up to 4 % longer on the slower rank, and 3 ms.
    assert!(found["workers"] == 2 && (0.103..0.107).contains(&recorded), "{found}");
    assert!((predicted / recorded - 1.0).abs() < 0.03, "{found}");
    assert!(std::fs::read_to_string(page).unwrap().contains("Recorded beside predicted"));
    // More workers than recorded steps: noise can go beyond what was seen.
    let noise = number(&forecast, "variation");
    let line = format!("sirtaki predict {} --workers 4096 --json --noise {noise}", trace.display());
    let with: Value = serde_json::from_slice(&sirtaki(&line).stdout).unwrap();
    let line = format!("sirtaki predict {} --workers 4096 --json", trace.display());
    let without: Value = serde_json::from_slice(&sirtaki(&line).stdout).unwrap();
    let waits = |forecast: &Value| number(&forecast["rows"][0], "straggler_seconds");
    assert!(waits(&with) > waits(&without), "{} and {}", waits(&with), waits(&without));
    assert!(without["notes"].to_string().contains("58 steps were recorded"), "{}", without["notes"]);
}
