//! Run folders made up by code: what a training run would have recorded, so that reports can be tested without one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

/// A run to make up.
#[derive(Debug, Clone)]
pub struct MadeUp {
    /// The name of the folder.
    pub name: String,
    /// How many.
    pub workers: usize,
    /// Images per step of all workers together.
    pub batch: usize,
    /// The seed of random numbers.
    pub seed: u64,
    /// Why it failed, if it did.
    pub failed: Option<String>,
}

impl MadeUp {
    /// A run that goes well.
    pub fn new(workers: usize, batch: usize, seed: u64) -> Self {
        Self { name: format!("lenet-{workers}-{batch}-{seed}"), workers, batch, seed, failed: None }
    }

    /// Images per second: almost proportional to the number of workers, and slightly different for every seed.
    pub fn rate(&self) -> f64 {
        let workers = self.workers as f64;
        let lost = 10.0 * workers / self.batch as f64;
        5000.0 * workers / (1.0 + lost * (workers - 1.0)) * (1.0 + 0.02 * (self.seed % 5) as f64)
    }

    /// Test accuracy after this many epochs.
    pub fn accuracy(&self, epoch: f64) -> f64 {
        0.99 - 0.05 / (epoch * epoch) - 0.0004 * (self.batch as f64 / 128.0) + 0.0002 * (self.seed % 5) as f64
    }

    /// Writes it into a folder of its own in this one.
    pub fn write(&self, runs: &Path) -> PathBuf {
        let folder = runs.join(&self.name);
        fs::create_dir_all(&folder).expect("a folder can be made");
        let put = |file: &str, text: String| fs::write(folder.join(file), text).expect("a file can be written");
        put("run.json", format!("{:#}\n", self.description()));
        put("steps.jsonl", self.steps());
        put("profile.json", format!("{:#}\n", self.profile()));
        folder
    }

    fn seconds(&self) -> f64 {
        0.4 + 4.0 * 60_000.0 / self.rate()
    }

    fn description(&self) -> Value {
        json!({
            "format": "sirtaki run, version 1",
            "name": self.name,
            "started": 1_794_736_324.5 + self.seed as f64,
            "ended": { "seconds": self.seconds() + 0.3, "failed": self.failed },
            "command": ["sirtaki", "train", "-n", self.workers.to_string()],
            "version": "0.1.0",
            "ranks": self.workers,
            "hosts": vec!["node1"; self.workers],
            "machine": { "processor": "Example 9000 8-Core", "cores": 8, "memory_bytes": 34_359_738_368_u64 },
            "environment": { "OMP_NUM_THREADS": "1", "SIRTAKI_RUN_FOLDER": self.name },
            "settings": {
                "model": "lenet",
                "batch_per_worker": (self.batch / self.workers).to_string(),
                "global_batch": self.batch.to_string(),
                "optimizer": "sgd",
                "lr": "0.02",
                "seed": self.seed.to_string(),
                "precision": "f32",
                "epochs": "4",
                "target_accuracy": "0.985",
            },
        })
    }

    fn steps(&self) -> String {
        let (all, mut text) = (4 * 60_000 / self.batch, String::new());
        for step in (1..=all).filter(|step| step % 10 == 0 || step * self.batch % 60_000 < self.batch) {
            let samples = (step * self.batch) as f64;
            let epoch = samples / 60_000.0;
            let noise = ((step * 7 + self.seed as usize * 13) % 11) as f64 / 110.0;
            let mut row = json!({
                "seconds": 0.4 + samples / self.rate(),
                "step": step,
                "steps": all,
                "epoch": epoch,
                "epochs": 4,
                "samples": samples,
                "loss": 0.03 + (0.1 + noise) / (0.1 + 3.0 * epoch),
                "accuracy": 0.992 - 0.05 / (0.3 + epoch) - noise / 20.0,
            });
            if step * self.batch % 60_000 < self.batch {
                row["test_accuracy"] = json!(self.accuracy(epoch.round()));
                row["test_loss"] = json!(0.035 + 0.06 / epoch.round());
            }
            text.push_str(&format!("{row}\n"));
        }
        text
    }

    fn profile(&self) -> Value {
        let (elapsed, steps) = (self.seconds(), 4 * 60_000 / self.batch);
        let rank = |rank: usize| {
            let late = if rank == 1 { 0.6 } else { 0.05 };
            let phase = |name: &str, share: f64| json!({ "phase": name, "times": steps, "seconds": share * elapsed });
            json!({
                "rank": rank, "host": "node1", "known": true,
                "elapsed_seconds": elapsed, "cpu_seconds": 0.97 * elapsed,
                "communication_seconds": 0.14 * elapsed,
                "hidden_seconds": 0.08 * elapsed, "exposed_seconds": 0.06 * elapsed, "waited_seconds": 0.05 * elapsed,
                "largest_memory_bytes": 96_000_000 + 3_000_000 * rank,
                "operations": [],
                "phases": [phase("input", 0.04), phase("forward", 0.3), phase("backward", 0.42), phase("optimizer", 0.09)],
                "lateness": {
                    "events": steps, "mean_seconds": late / steps as f64, "most_seconds": 0.02,
                    "distribution": [
                        { "from_seconds": 0.000_001, "events": steps / 2 },
                        { "from_seconds": 0.000_064, "events": steps / 3 },
                        { "from_seconds": 0.004_096, "events": if rank == 1 { 90 } else { 4 } },
                    ],
                    "by_phase": { "input": late, "forward": 0.01, "backward": 0.03, "optimizer": 0.0, "network": 0.02 },
                },
            })
        };
        let size = |bytes: u64, tensors: usize, collectives: usize| json!({ "from_bytes": bytes, "tensors": tensors, "collectives": collectives, "seconds": 0.1 });
        json!({
            "format": "sirtaki profile, version 1",
            "ranks": (0..self.workers).map(rank).collect::<Vec<_>>(),
            "operations": [{
                "operation": "all_reduce", "tensors": 8 * steps * self.workers, "tensor_bytes": 1,
                "collectives": 2 * steps * self.workers, "collective_bytes": 180_000 * steps * self.workers,
                "seconds": 0.1 * elapsed, "longest": { "rank": 0, "seconds": 1.0 }, "copy_seconds": 0.2,
                "bus_bytes_per_second": 2.1e9,
                "sizes": [
                    size(64, 4 * steps * self.workers, 0),
                    size(4096, 2 * steps * self.workers, steps * self.workers),
                    size(65_536, 2 * steps * self.workers, steps * self.workers),
                ],
            }],
            "copied_bytes_per_second": 9.0e9,
            "straggler": if self.workers > 1 { json!({ "rank": 1, "host": "node1", "phase": "input", "seconds": 0.6, "share": 0.1, "sentence": "Rank 1 on node1 was late by 0.6 s in input." }) } else { Value::Null },
        })
    }
}
