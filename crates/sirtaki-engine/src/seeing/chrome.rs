//! Records as events of the Chrome trace format, which Perfetto and other viewers read.
//!
//! A rank is a process. Its lanes are threads: the phases of a training step, the collectives, and one lane per tensor,
//! where a slice with the tensor's name encloses its phases in order. Should two slices of a lane overlap, the second
//! gets another lane of the same name, so everything nests.

use std::{collections::HashMap, fmt::Write};

use sirtaki_comm::Group;

use super::{
    clock::Offset,
    record::{Batch, Record, Traced},
};

/// Lanes of a rank with names of their own; tensors beyond share the lane of the others.
const LANES: usize = 4096;
/// Characters of a name that are shown.
const NAME: usize = 200;
/// Ranks whose arrival is told, so that an event stays short.
const ARRIVALS: usize = 128;

/// Slices under one label that do not overlap.
#[derive(Debug)]
struct Lane {
    /// As JSON.
    label: String,
    /// Thread number and the end of its last slice.
    threads: Vec<(usize, u64)>,
}

#[derive(Debug, Default)]
struct Process {
    lanes: HashMap<String, Lane>,
    threads: usize,
}

/// Makes events of records.
#[derive(Debug)]
pub(crate) struct Chrome {
    group: Group,
    /// The time that events count from.
    zero: u64,
    processes: Vec<Option<Process>>,
}

/// What goes along with a slice.
struct Slice<'a> {
    rank: usize,
    thread: usize,
    /// As JSON.
    name: &'a str,
    begin: u64,
    end: u64,
    /// As JSON, without braces.
    more: String,
}

impl Chrome {
    pub(crate) fn new(group: Group, zero: u64) -> Self {
        let processes = group.members().iter().map(|_| None).collect();
        Self { group, zero, processes }
    }

    /// The beginning of the file: the array of events, with one in it.
    pub(crate) fn head(&self, dropped: u64, error: u64) -> String {
        let facts = format!(
            "\"format\":\"sirtaki timeline, version 1\",\"ranks\":{},\"dropped\":{dropped},\
             \"clock_error_us\":{},\"times\":\"microseconds since the start of the timeline on rank 0's clock\"",
            self.group.size(),
            micros(error),
        );
        format!(
            "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{{facts}}},\"traceEvents\":[\n\
             {{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"sirtaki\",\"args\":{{{facts}}}}}"
        )
    }

    /// What is said of a rank: who it is, and how well its clock is known.
    pub(crate) fn clock(&self, rank: usize, offset: Offset) -> String {
        format!(
            "{{\"ph\":\"M\",\"pid\":{rank},\"tid\":0,\"name\":\"clock\",\"args\":{{\"ahead_us\":{:.3},\"error_us\":{}}}}}",
            offset.ahead as f64 / 1e3,
            micros(offset.error),
        )
    }

    /// The events of a record of `rank`, with times of rank 0's clock.
    pub(crate) fn events(&mut self, rank: usize, record: &Record, offset: Offset) -> Vec<String> {
        let mut events = Vec::new();
        if self.processes[rank].is_none() {
            self.processes[rank] = Some(Process::default());
            let who = &self.group.members()[rank];
            let name = json(&format!("rank {} ({}, pid {})", who.world_rank, who.host, who.pid));
            events.push(format!(
                "{{\"ph\":\"M\",\"pid\":{rank},\"tid\":0,\"name\":\"process_name\",\"args\":{{\"name\":{name}}}}}"
            ));
            events.push(format!(
                "{{\"ph\":\"M\",\"pid\":{rank},\"tid\":0,\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{rank}}}}}"
            ));
        }
        let time = |time: u64| offset.apply(time);
        match record {
            Record::Phase(phase, begin, end) => {
                self.single(&mut events, rank, phase.name(), phase.name(), (time(*begin), time(*end)));
            }
            Record::Vote(begin, end) => {
                self.single(&mut events, rank, "collectives", "vote", (time(*begin), time(*end)));
            }
            Record::Failed(name, begin, end) => {
                let (begin, end) = (time(*begin), time(*end));
                let (thread, label) = self.lane(&mut events, rank, name, begin, end);
                events.push(self.slice(&Slice {
                    rank,
                    thread,
                    name: &label,
                    begin,
                    end,
                    more: "\"failed\":true".into(),
                }));
            }
            Record::Batch(batch) => self.batch(&mut events, rank, batch, offset),
        }
        events
    }

    fn single(&mut self, events: &mut Vec<String>, rank: usize, lane: &str, name: &str, (begin, end): (u64, u64)) {
        let (thread, _) = self.lane(events, rank, lane, begin, end);
        events.push(self.slice(&Slice { rank, thread, name: &json(name), begin, end, more: String::new() }));
    }

    fn batch(&mut self, events: &mut Vec<String>, rank: usize, batch: &Batch, offset: Offset) {
        let Batch { number, kind, algorithm, bytes, times, tensors } = batch;
        let [began, entered, left, ended] =
            [times.began, times.entered, times.left, times.ended].map(|time| offset.apply(time));
        let by = algorithm.map(|algorithm| format!(",\"algorithm\":\"{}\"", algorithm.name())).unwrap_or_default();
        let more = format!("\"number\":{number},\"bytes\":{bytes},\"tensors\":{}{by}", tensors.len());
        let (thread, _) = self.lane(events, rank, "collectives", began, ended);
        let name = json(kind.name());
        let inside = |name, begin, end, more| Slice { rank, thread, name, begin, end, more };
        events.push(self.slice(&inside(&name, began, ended, more)));
        for tensor in tensors {
            let submitted = offset.apply(tensor.submitted).min(began);
            let agreed = offset.apply(tensor.agreed).clamp(submitted, began);
            let (thread, label) = self.lane(events, rank, &tensor.name, submitted, ended);
            let inside = |name, begin, end, more| Slice { rank, thread, name, begin, end, more };
            let more = format!("\"bytes\":{},\"collective\":{number}", tensor.bytes);
            events.push(self.slice(&inside(&label, submitted, ended, more)));
            events.push(self.slice(&inside("\"agreement\"", submitted, agreed, self.arrivals(tensor))));
            events.push(self.slice(&inside("\"queue\"", agreed, began, String::new())));
            if entered > began {
                events.push(self.slice(&inside("\"copy in\"", began, entered, String::new())));
            }
            events.push(self.slice(&inside(&name, entered, left, format!("\"bytes\":{bytes}{by}"))));
            if ended > left {
                events.push(self.slice(&inside("\"copy out\"", left, ended, String::new())));
            }
        }
    }

    fn arrivals(&self, tensor: &Traced) -> String {
        if tensor.arrived.is_empty() || tensor.arrived.len() > ARRIVALS {
            return String::new();
        }
        // A rank that has joined took no part.
        let times: Vec<String> = tensor
            .arrived
            .iter()
            .map(|&time| if time == 0 { "null".into() } else { micros(time.saturating_sub(self.zero)) })
            .collect();
        format!("\"arrived\":[{}]", times.join(","))
    }

    /// The thread for a slice under this label, and the label as JSON.
    fn lane(&mut self, events: &mut Vec<String>, rank: usize, label: &str, begin: u64, end: u64) -> (usize, String) {
        let process = self.processes[rank].get_or_insert_default();
        let key =
            if process.lanes.len() < LANES || process.lanes.contains_key(label) { label } else { "other tensors" };
        let lane =
            process.lanes.entry(key.to_owned()).or_insert_with(|| Lane { label: json(key), threads: Vec::new() });
        let shown = if key == label { lane.label.clone() } else { json(label) };
        if let Some((thread, last)) = lane.threads.iter_mut().find(|(_, last)| *last <= begin) {
            *last = end;
            return (*thread, shown);
        }
        process.threads += 1;
        let thread = process.threads;
        lane.threads.push((thread, end));
        events.push(format!(
            "{{\"ph\":\"M\",\"pid\":{rank},\"tid\":{thread},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}",
            lane.label
        ));
        (thread, shown)
    }

    fn slice(&self, slice: &Slice<'_>) -> String {
        let Slice { rank, thread, name, begin, end, more } = slice;
        let begin = begin.saturating_sub(self.zero);
        let (ts, dur) = (micros(begin), micros(end.saturating_sub(self.zero).saturating_sub(begin)));
        let mut text =
            format!("{{\"ph\":\"X\",\"pid\":{rank},\"tid\":{thread},\"ts\":{ts},\"dur\":{dur},\"name\":{name}");
        if !more.is_empty() {
            let _ = write!(text, ",\"args\":{{{more}}}");
        }
        text.push('}');
        text
    }
}

/// Nanoseconds as microseconds.
fn micros(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1000, nanos % 1000)
}

/// A text as JSON, not too long.
fn json(text: &str) -> String {
    let short: String = text.chars().take(NAME).collect();
    serde_json::Value::from(short).to_string()
}
