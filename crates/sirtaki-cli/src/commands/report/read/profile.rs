//! `profile.json`, as far as a report needs it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What all ranks have counted.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Profile {
    /// Each of them.
    pub(crate) ranks: Vec<RankProfile>,
    /// All together, by operation.
    pub(crate) operations: Vec<Operation>,
    /// The rank that kept the others waiting, if there is one.
    pub(crate) straggler: Option<Straggler>,
    /// How tensors of GPUs travelled and why, if there were any.
    pub(crate) gpu_path: Option<String>,
}

/// What one rank has counted.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct RankProfile {
    /// Which one.
    pub(crate) rank: usize,
    /// Where it ran.
    pub(crate) host: String,
    /// From joining to the end.
    pub(crate) elapsed_seconds: f64,
    /// Of processors.
    pub(crate) cpu_seconds: f64,
    /// In collectives and the copies around them.
    pub(crate) communication_seconds: f64,
    /// Of communication while the program did not wait for it.
    pub(crate) hidden_seconds: f64,
    /// Of communication while the program waited.
    pub(crate) exposed_seconds: f64,
    /// Waiting for other ranks.
    pub(crate) waited_seconds: f64,
    /// The most it ever had.
    pub(crate) largest_memory_bytes: f64,
    /// Parts of training.
    pub(crate) phases: Vec<PhaseTime>,
    /// How late it was.
    pub(crate) lateness: Option<Lateness>,
    /// Its GPU.
    pub(crate) gpu: Option<GpuProfile>,
}

/// What is known of a rank's GPU.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct GpuProfile {
    /// Of the GPU, in collectives.
    pub(crate) collective_seconds: f64,
    /// Of those, while the program's stream had other work.
    pub(crate) hidden_seconds: f64,
    /// The most that was in use.
    pub(crate) largest_memory_bytes: Option<f64>,
    /// Of how many.
    pub(crate) memory_bytes: Option<f64>,
    /// Of the time.
    pub(crate) utilisation_percent: Option<f64>,
}

/// Time in one part of training.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PhaseTime {
    /// Its name.
    pub(crate) phase: String,
    /// All of it.
    pub(crate) seconds: f64,
}

/// How late a rank was, compared with the first one.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Lateness {
    /// Arrivals.
    pub(crate) events: u64,
    /// Those that others waited for.
    pub(crate) late_events: Option<u64>,
    /// On average.
    pub(crate) mean_seconds: f64,
    /// At worst.
    pub(crate) most_seconds: f64,
    /// How often each amount occurred, by powers of four.
    pub(crate) distribution: Vec<LateClass>,
    /// Seconds by what the rank did meanwhile.
    pub(crate) by_phase: BTreeMap<String, f64>,
}

/// One class of lateness.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct LateClass {
    /// At least this much.
    pub(crate) from_seconds: f64,
    /// How often.
    pub(crate) events: f64,
}

/// The rank that kept the others waiting.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Straggler {
    /// A sentence about it.
    pub(crate) sentence: String,
}

/// One operation on all ranks together.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Operation {
    /// Its name.
    pub(crate) operation: String,
    /// Tensors.
    pub(crate) tensors: f64,
    /// Collectives that carried them.
    pub(crate) collectives: f64,
    /// Their bytes.
    pub(crate) collective_bytes: f64,
    /// Seconds in them, of all ranks.
    pub(crate) seconds: f64,
    /// As nccl-tests count.
    pub(crate) bus_bytes_per_second: Option<f64>,
    /// By size.
    pub(crate) sizes: Vec<Size>,
}

/// One class of sizes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Size {
    /// At least this many bytes.
    pub(crate) from_bytes: f64,
    /// Of this size.
    pub(crate) tensors: f64,
    /// Of this size.
    pub(crate) collectives: f64,
}

impl Profile {
    /// The same without numbers that no clock or counter could produce.
    pub(super) fn checked(mut self) -> Self {
        let fix = |value: &mut f64| *value = if *value > 0.0 && *value < 1e18 { *value } else { 0.0 };
        for rank in &mut self.ranks {
            fix(&mut rank.elapsed_seconds);
            fix(&mut rank.cpu_seconds);
            fix(&mut rank.communication_seconds);
            fix(&mut rank.waited_seconds);
            fix(&mut rank.hidden_seconds);
            fix(&mut rank.exposed_seconds);
            fix(&mut rank.largest_memory_bytes);
            if let Some(gpu) = &mut rank.gpu {
                fix(&mut gpu.collective_seconds);
                fix(&mut gpu.hidden_seconds);
                let optional = [&mut gpu.largest_memory_bytes, &mut gpu.memory_bytes, &mut gpu.utilisation_percent];
                optional.into_iter().flatten().for_each(fix);
            }
            rank.phases.iter_mut().for_each(|phase| fix(&mut phase.seconds));
            if let Some(late) = &mut rank.lateness {
                fix(&mut late.mean_seconds);
                fix(&mut late.most_seconds);
                late.by_phase.values_mut().for_each(fix);
                for class in &mut late.distribution {
                    fix(&mut class.from_seconds);
                    fix(&mut class.events);
                }
            }
        }
        for operation in &mut self.operations {
            fix(&mut operation.tensors);
            fix(&mut operation.collectives);
            fix(&mut operation.collective_bytes);
            fix(&mut operation.seconds);
            for size in &mut operation.sizes {
                fix(&mut size.from_bytes);
                fix(&mut size.tensors);
                fix(&mut size.collectives);
            }
        }
        self
    }
}
