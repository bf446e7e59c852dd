//! What a profile says about GPUs: time of the devices in collectives, how much of it was hidden, memory and use.

use std::fmt;

use serde_json::{Value, json};
use sirtaki_comm::Rank;

use super::{
    counts::{CollectiveKind, Counts, Whole},
    profile::{Compared, Profile, bus_factor, seconds},
    profile_page::{RANKS, size},
};

/// One kind of operation on the devices of all ranks together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DeviceLine {
    pub(super) kind: CollectiveKind,
    pub(super) collectives: u64,
    pub(super) bytes: u64,
    /// Seconds of the devices.
    pub(super) time: Compared,
    /// Bytes per second that every rank's connection carried, as counted by nccl-tests.
    pub(super) bus: Option<f64>,
}

/// Seconds of a rank's device in collectives.
fn device_seconds(counts: &Counts) -> f64 {
    seconds(counts.whole(Whole::DeviceHidden) + counts.whole(Whole::DeviceExposed))
}

impl Profile {
    /// The operations that devices worked on.
    pub(super) fn device_operations(&self) -> Vec<DeviceLine> {
        let line = |&kind: &CollectiveKind| {
            let (collectives, bytes) = self.known().fold((0, 0), |sum, (_, counts)| {
                let (collectives, bytes, _) = counts.device(kind);
                (sum.0 + collectives, sum.1 + bytes)
            });
            let time = self.compare(|counts| seconds(counts.device(kind).2));
            let bus = bytes as f64 * bus_factor(kind, self.counts.len()) / time.total;
            DeviceLine { kind, collectives, bytes, time, bus: (bus.is_finite() && bus > 0.0).then_some(bus) }
        };
        CollectiveKind::ALL.iter().map(line).filter(|line| line.collectives > 0).collect()
    }

    /// How tensors travelled, and how much of that was hidden.
    pub(super) fn device_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = self.compare(|counts| seconds(counts.whole(Whole::DeviceHidden)));
        let exposed = self.compare(|counts| seconds(counts.whole(Whole::DeviceExposed)));
        let all = self.compare(device_seconds);
        if all.total > 0.0 {
            for (name, Compared { total, mean, most, rank }) in [
                ("collectives on GPUs [s]", all),
                ("  while others worked", hidden),
                ("  while others waited", exposed),
            ] {
                writeln!(f, "{name:<26} {total:>12.3} {mean:>12.3} {most:>12.3}  {rank}")?;
            }
            let share = 100.0 * hidden.total / all.total;
            writeln!(
                f,
                "overlap on GPUs: {share:.1} % of that time was hidden behind other work of the program's stream"
            )?;
        }
        match &self.device {
            Some(device) => writeln!(f, "tensors of GPUs travelled {device}"),
            None => Ok(()),
        }
    }

    /// Operations by device time.
    pub(super) fn device_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.device_operations();
        if lines.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:<15} {:>12} {:>10} {:>14} {:>10} {:>5} {:>9}",
            "on GPUs", "collectives", "average", "GPU time [s]", "largest", "rank", "bus GB/s"
        )?;
        for DeviceLine { kind, collectives, bytes, time, bus } in lines {
            writeln!(
                f,
                "{:<15} {collectives:>12} {:>10} {:>14.4} {:>10.4} {:>5} {:>9}",
                kind.name(),
                size(bytes / collectives.max(1)),
                time.total,
                time.most,
                time.rank,
                bus.map_or("-".into(), |bus| format!("{:.2}", bus / 1e9)),
            )?;
        }
        Ok(())
    }

    /// Memory and use of every rank's GPU.
    pub(super) fn gpus(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut known = self.known().filter_map(|(rank, counts)| Some((rank, counts.gpu()?))).take(RANKS).peekable();
        if known.peek().is_none() {
            return Ok(());
        }
        writeln!(f, "\n{:<6} {:>20} {:>10} {:>8}   (of the whole GPU)", "rank", "GPU memory, at most", "of", "in use")?;
        for (rank, gpu) in known {
            let busy = gpu.busy.map_or("-".into(), |busy| format!("{busy:.0} %"));
            writeln!(f, "{rank:<6} {:>20} {:>10} {busy:>8}", size(gpu.memory), size(gpu.total))?;
        }
        Ok(())
    }

    /// The same as data, for one rank; nothing if it had no GPU that anything is known of.
    pub(super) fn gpu_as_json(&self, rank: Rank) -> Value {
        let Some(counts) = &self.counts[rank] else { return Value::Null };
        let used = counts.gpu();
        if used.is_none() && device_seconds(counts) == 0.0 {
            return Value::Null;
        }
        json!({
            "collective_seconds": device_seconds(counts),
            "hidden_seconds": seconds(counts.whole(Whole::DeviceHidden)),
            "exposed_seconds": seconds(counts.whole(Whole::DeviceExposed)),
            "largest_memory_bytes": used.map(|used| used.memory),
            "memory_bytes": used.map(|used| used.total),
            "utilisation_percent": used.and_then(|used| used.busy),
        })
    }

    /// The same as data, for one kind of operation.
    pub(super) fn device_line_as_json(&self, kind: CollectiveKind) -> Value {
        let line = self.device_operations().into_iter().find(|line| line.kind == kind);
        line.map_or(Value::Null, |line| {
            json!({
                "collectives": line.collectives,
                "bytes": line.bytes,
                "seconds": line.time.total,
                "longest": { "rank": line.time.rank, "seconds": line.time.most },
                "bus_bytes_per_second": line.bus,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{record::DeviceSpan, recorder::Recorder};

    #[test]
    fn device_time_is_shown_beside_what_was_hidden() {
        let recorder = Recorder::create().unwrap();
        let none = Profile::new(vec!["a".into()], vec![Some(recorder.counts())]);
        let text = none.to_string();
        assert!(!text.contains("GPU"), "{text}");
        assert_eq!(none.gpu_as_json(0), Value::Null);
        let kind = CollectiveKind::AllReduce;
        let (began, second) = (5, 1_000_000_000);
        recorder.device(&DeviceSpan {
            number: 1,
            kind,
            bytes: 4 << 30,
            tensors: 3,
            began,
            ended: began + 4 * second,
            exposed: second,
        });
        recorder.set_whole(Whole::GpuMemory, 3 << 30);
        recorder.set_whole(Whole::GpuTotal, 8 << 30);
        let counts = recorder.counts();
        let profile = Profile {
            device: Some("by NCCL 2.28.9".into()),
            ..Profile::new(vec!["a".into(), "a".into()], vec![Some(counts.clone()), Some(counts)])
        };
        let text = profile.to_string();
        let share = "overlap on GPUs: 75.0 % of that time was hidden behind other work of the program's stream";
        assert!(text.contains(share) && text.contains("tensors of GPUs travelled by NCCL 2.28.9"), "{text}");
        let line = text.lines().find(|line| line.starts_with("all_reduce ")).unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>()[1..],
            ["2", "4", "GiB", "8.0000", "4.0000", "0", "1.07"]
        );
        assert!(text.contains("3 GiB      8 GiB        -"), "{text}");
        let data = profile.gpu_as_json(1);
        assert_eq!((&data["hidden_seconds"], &data["exposed_seconds"]), (&json!(3.0), &json!(1.0)));
        assert_eq!((&data["largest_memory_bytes"], &data["utilisation_percent"]), (&json!(3_u64 << 30), &Value::Null));
        assert_eq!(profile.device_line_as_json(kind)["seconds"], json!(8.0));
    }
}
