//! Records in the form of Horovod's timeline, for tools that were written for it: an array of events in which every
//! tensor is a process, as rank 0 saw it. Each tensor has `NEGOTIATE_ALLREDUCE`, with a mark for every rank that had
//! it, and then `ALLREDUCE`, with `QUEUE`, copies into and out of the fusion buffer and the operation itself inside.

use std::collections::HashMap;

use super::{
    counts::CollectiveKind,
    record::{FinishedBatch, Record, Traced},
    text::{Texts, micros},
    trace_events::process_name,
};

/// How many tensors get processes of their own; more are left out.
const TENSORS: usize = 1 << 16;
/// The process of marks that belong to no tensor.
const MARKS: usize = 0;

/// A tensor in the file.
#[derive(Debug, Clone, Copy)]
struct Known {
    process: usize,
    /// The end of its last event: the next one does not begin earlier.
    last: u64,
}

/// Makes events from records.
#[derive(Debug)]
pub(crate) struct HorovodEvents {
    /// The time that events count from.
    zero: u64,
    /// Whether a mark shows where a collective begins.
    cycles: bool,
    tensors: HashMap<String, Known>,
}

impl HorovodEvents {
    pub(crate) fn new(zero: u64, cycles: bool) -> Self {
        Self { zero, cycles, tensors: HashMap::new() }
    }

    /// The beginning of the file: the array, with one event in it.
    pub(crate) fn head(&self, since_epoch: u128) -> String {
        format!(
            "[\n{{\"ph\":\"M\",\"pid\":{MARKS},\"name\":\"sirtaki\",\
             \"args\":{{\"start_time_since_epoch_in_micros\":{since_epoch}}}}}"
        )
    }

    /// Adds the events of a record of rank 0.
    pub(crate) fn events(&mut self, texts: &mut Texts, record: &Record) {
        let Record::Batch(batch) = record else { return };
        if self.cycles {
            self.event(
                texts,
                &format!("\"ph\":\"i\",\"s\":\"g\",\"name\":\"CYCLE_START\",\"pid\":{MARKS}"),
                batch.times.began,
            );
        }
        for tensor in &batch.tensors {
            self.tensor(texts, batch, tensor);
        }
    }

    fn tensor(&mut self, texts: &mut Texts, batch: &FinishedBatch, tensor: &Traced) {
        let next = self.tensors.len() + 1;
        let known = match self.tensors.get(&tensor.name) {
            Some(known) => *known,
            None if next > TENSORS => return,
            None => {
                process_name(texts, next, &tensor.name);
                Known { process: next, last: 0 }
            }
        };
        let process = known.process;
        let ended = batch.times.ended.max(known.last);
        self.tensors.insert(tensor.name.clone(), Known { process, last: ended });
        let within = |time: u64| time.clamp(known.last, ended);
        let [submitted, agreed, began, entered, left] =
            [tensor.submitted, tensor.agreed, batch.times.began, batch.times.entered, batch.times.left].map(within);
        let (submitted, agreed) = (submitted.min(began), agreed.clamp(submitted.min(began), began));
        let what = name(batch.kind);
        self.begin(texts, process, &format!("NEGOTIATE_{what}"), submitted);
        for (rank, &time) in tensor.arrived.iter().enumerate().filter(|(_, time)| **time > 0) {
            let mark = format!("\"ph\":\"X\",\"dur\":0,\"name\":\"{rank}\",\"pid\":{process}");
            self.event(texts, &mark, time.clamp(submitted, agreed));
        }
        self.end(texts, process, agreed);
        self.begin(texts, process, what, agreed);
        self.inside(texts, process, "QUEUE", (agreed, began));
        self.inside(texts, process, "MEMCPY_IN_FUSION_BUFFER", (began, entered));
        self.inside(texts, process, &format!("SIRTAKI_{what}"), (entered, left));
        self.inside(texts, process, "MEMCPY_OUT_FUSION_BUFFER", (left, ended));
        self.end(texts, process, ended);
    }

    /// An event that took time, if it did.
    fn inside(&self, texts: &mut Texts, process: usize, name: &str, (from, to): (u64, u64)) {
        if to > from {
            self.begin(texts, process, name, from);
            self.end(texts, process, to);
        }
    }

    fn begin(&self, texts: &mut Texts, process: usize, name: &str, at: u64) {
        self.event(texts, &format!("\"ph\":\"B\",\"name\":\"{name}\",\"pid\":{process}"), at);
    }

    fn end(&self, texts: &mut Texts, process: usize, at: u64) {
        self.event(texts, &format!("\"ph\":\"E\",\"pid\":{process}"), at);
    }

    /// Adds an event at a time; the rest of it is JSON already.
    fn event(&self, texts: &mut Texts, rest: &str, at: u64) {
        let text = texts.open();
        text.push('{');
        text.push_str(rest);
        text.push_str(",\"tid\":0,\"ts\":");
        micros(text, at.saturating_sub(self.zero));
        text.push('}');
        texts.end();
    }
}

/// Horovod's name for an operation.
fn name(kind: CollectiveKind) -> &'static str {
    match kind {
        CollectiveKind::AllReduce => "ALLREDUCE",
        CollectiveKind::Adasum => "ADASUM",
        CollectiveKind::AllGather => "ALLGATHER",
        CollectiveKind::Broadcast => "BROADCAST",
        CollectiveKind::AllToAll => "ALLTOALL",
        CollectiveKind::ReduceScatter => "REDUCESCATTER",
        CollectiveKind::Barrier | CollectiveKind::Vote => "BARRIER",
        CollectiveKind::Send => "SEND",
        CollectiveKind::Receive => "RECEIVE",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::telemetry::record::Times;

    fn batch(names: &[&str], began: u64) -> Record {
        let tensor = |name: &&str| Traced {
            name: (*name).into(),
            bytes: 4,
            submitted: began - 900,
            agreed: began - 500,
            arrived: vec![began - 800, 0, began - 500],
        };
        let times = Times { began, entered: began + 100, left: began + 300, ended: began + 400 };
        let tensors = names.iter().map(tensor).collect();
        Record::Batch(FinishedBatch {
            number: 1,
            kind: CollectiveKind::AllReduce,
            algorithm: None,
            bytes: 8,
            times,
            tensors,
        })
    }

    fn events(writer: &mut HorovodEvents, record: &Record) -> Vec<Value> {
        let mut texts = Texts::default();
        writer.events(&mut texts, record);
        texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }

    fn names(events: &[Value], process: u64) -> Vec<String> {
        let own = events.iter().filter(|event| event["pid"] == process && event["ph"] != "M");
        own.map(|event| format!("{} {}", event["ph"].as_str().unwrap(), event["name"].as_str().unwrap_or("-")))
            .collect()
    }

    #[test]
    fn a_tensor_is_a_process_with_horovod_s_events_in_order() {
        let mut writer = HorovodEvents::new(0, true);
        let all = events(&mut writer, &batch(&["allreduce.a", "allreduce.b"], 10_000));
        let expected = [
            "B NEGOTIATE_ALLREDUCE",
            "X 0",
            "X 2",
            "E -",
            "B ALLREDUCE",
            "B QUEUE",
            "E -",
            "B MEMCPY_IN_FUSION_BUFFER",
            "E -",
            "B SIRTAKI_ALLREDUCE",
            "E -",
            "B MEMCPY_OUT_FUSION_BUFFER",
            "E -",
            "E -",
        ];
        assert_eq!(names(&all, 1), expected);
        assert_eq!(names(&all, 2), expected);
        assert_eq!(names(&all, 0), ["i CYCLE_START"]);
        let named: Vec<_> = all.iter().filter(|event| event["name"] == "process_name").collect();
        assert_eq!(named[1]["args"]["name"], "allreduce.b");
    }

    #[test]
    fn events_of_a_tensor_never_run_backwards() {
        let mut writer = HorovodEvents::new(0, false);
        let mut all = events(&mut writer, &batch(&["a"], 10_000));
        // Handed in again before its last event was over.
        all.extend(events(&mut writer, &batch(&["a"], 10_100)));
        let times: Vec<f64> =
            all.iter().filter(|event| event["pid"] == 1).filter_map(|event| event["ts"].as_f64()).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{times:?}");
        let open = |kind: &str| all.iter().filter(|event| event["ph"] == kind).count();
        assert_eq!(open("B"), open("E"));
    }
}
