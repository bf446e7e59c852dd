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
