//! Records as events of the TraceEvents trace format, which Perfetto and other viewers read.
//!
//! A rank is a process. Its lanes are threads: the phases of a training step, the collectives, those on a GPU by its own clock, and one lane per tensor,
//! where a slice with the tensor's name encloses its phases in order. If two slices of a lane overlap, the second gets
//! another lane of the same name, so everything nests. Lanes of a name have the same number, and so the same position,
//! in all ranks.
//!
//! Arrows connect the ranks of a collective: from each rank, when it comes, to the next one, when it leaves. In this
//! direction time never runs backwards, because no rank leaves before all have come. Counters show bytes per second and
//! memory.

use std::{collections::HashMap, sync::Arc};

use sirtaki_comm::Group;

use super::{
    clock::Offset,
    record::{DeviceSpan, FinishedBatch, Record, Traced, TracedMessage},
    text::{Texts, micros, number},
};

/// How many lanes of a rank have names of their own; further tensors share a lane.
const LANES: usize = 4096;
/// Characters of a name that are shown.
const NAME: usize = 200;
/// How many ranks' arrivals are listed, so that an event stays short.
const ARRIVALS: usize = 128;
/// Lanes that come before those of tensors.
const FIRST: [&str; 6] = ["input", "forward", "backward", "optimizer", COLLECTIVES, DEVICE];
const COLLECTIVES: &str = "collectives";
const DEVICE: &str = "collectives on the GPU";
/// How many thread numbers belong to a lane; further threads come after all lanes.
const WIDTH: usize = 8;
/// Nanoseconds over which bytes per second are counted.
const WINDOW: u64 = 100_000_000;

/// Slices under one label that do not overlap.
#[derive(Debug)]
struct Lane {
    /// As JSON.
    label: Arc<str>,
    /// Its number, the same in all ranks.
    place: usize,
    threads: Vec<Thread>,
}

/// Slices one after another.
#[derive(Debug)]
struct Thread {
    opening: Opening,
    /// The end of the last one.
    last: u64,
}

/// How slices of a thread begin in the file.
#[derive(Debug, Clone)]
struct Opening {
    thread: usize,
    text: Arc<str>,
}

#[derive(Debug, Default)]
struct Process {
    lanes: HashMap<String, Lane>,
    /// How many threads are beyond the width of their lanes.
    beyond: usize,
    rate: Rate,
}

/// Bytes since the beginning of a window.
#[derive(Debug, Default)]
struct Rate {
    since: u64,
    bytes: u64,
}

/// Makes events from records.
#[derive(Debug)]
pub(crate) struct TraceEvents {
    group: Group,
    /// The time that events count from.
    zero: u64,
    processes: Vec<Option<Process>>,
    /// The position of every lane.
    places: HashMap<String, usize>,
}

impl TraceEvents {
    pub(crate) fn new(group: Group, zero: u64) -> Self {
        let processes = group.members().iter().map(|_| None).collect();
        let places = FIRST.iter().enumerate().map(|(place, lane)| ((*lane).to_owned(), place)).collect();
        Self { group, zero, processes, places }
    }

    /// The beginning of the file: the array of events, with one in it.
    pub(crate) fn head(&self, dropped: u64, error: u64) -> String {
        let facts = format!(
            "\"format\":\"sirtaki timeline, version 1\",\"ranks\":{},\"dropped\":{dropped},\
             \"clock_error_us\":{},\"times\":\"microseconds since the start of the timeline on rank 0's clock\"",
            self.group.size(),
            error as f64 / 1e3,
        );
        format!(
            "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{{facts}}},\"traceEvents\":[\n\
             {{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"sirtaki\",\"args\":{{{facts}}}}}"
        )
    }

    /// How well the clock of a rank is known.
    pub(crate) fn clock(&self, texts: &mut Texts, rank: usize, offset: Offset) {
        let (ahead, error) = (offset.ahead as f64 / 1e3, offset.error as f64 / 1e3);
        fact(texts, (rank, 0), "clock", &format!("\"ahead_us\":{ahead},\"error_us\":{error}"));
    }

    /// Adds the events of a record of `rank`, with times of rank 0's clock.
    pub(crate) fn events(&mut self, texts: &mut Texts, rank: usize, record: &Record, offset: Offset) {
        if self.processes[rank].is_none() {
            self.processes[rank] = Some(Process::default());
            let who = &self.group.members()[rank];
            process_name(texts, rank, &format!("rank {} ({}, pid {})", who.world_rank, who.host, who.pid));
        }
        let time = |begin: u64, end: u64| (offset.apply(begin), offset.apply(end));
        match record {
            Record::Phase(phase, begin, end) => {
                let times = time(*begin, *end);
                let (opening, label) = self.lane(texts, rank, phase.name(), times);
                self.slice(texts, &opening, &label, times, |_| ());
            }
            Record::Span(lane, name, begin, end) => {
                let times = time(*begin, *end);
                let (opening, _) = self.lane(texts, rank, lane, times);
                self.slice(texts, &opening, &json(name), times, |_| ());
            }
            Record::Vote(begin, end) => {
                let times = time(*begin, *end);
                let (opening, _) = self.lane(texts, rank, COLLECTIVES, times);
                self.slice(texts, &opening, "\"vote\"", times, |_| ());
            }
            Record::Failed(name, begin, end) => {
                let times = time(*begin, *end);
                let (opening, label) = self.lane(texts, rank, name, times);
                self.slice(texts, &opening, &label, times, |text| text.push_str("\"failed\":true"));
            }
            Record::Message(message) => self.message(texts, rank, message, offset),
            Record::Batch(batch) => self.batch(texts, rank, batch, offset),
            Record::Device(span) => {
                let times = time(span.began, span.ended);
                let (opening, _) = self.lane(texts, rank, DEVICE, times);
                self.slice(texts, &opening, &json(span.kind.name()), times, |text| {
                    let DeviceSpan { number, bytes, tensors, exposed, .. } = span;
                    let exposed = *exposed as f64 / 1e3;
                    text.push_str(&format!(
                        "\"number\":{number},\"tensors\":{tensors},\"bytes\":{bytes},\"exposed_us\":{exposed}"
                    ));
                });
            }
            Record::Gpu(at, sample) => {
                let at = offset.apply(*at);
                self.counter(texts, rank, ("GPU memory", "bytes"), at, sample.memory);
                let busy = sample.busy.into_iter();
                busy.for_each(|busy| self.counter(texts, rank, ("GPU utilisation", "percent"), at, u64::from(busy)));
            }
            Record::Memory(at, bytes) => self.counter(texts, rank, ("memory", "bytes"), offset.apply(*at), *bytes),
        }
    }

    /// Adds the value of a counter; viewers show its unit after its name.
    fn counter(&self, texts: &mut Texts, rank: usize, (name, unit): (&str, &str), at: u64, value: u64) {
        let text = texts.open();
        text.push_str(&format!("{{\"ph\":\"C\",\"pid\":{rank},\"tid\":0,\"name\":\"{name}\",\"ts\":"));
        micros(text, at.saturating_sub(self.zero));
        text.push_str(&format!(",\"args\":{{\"{unit}\":{value}}}}}"));
        texts.end();
    }

    /// Adds what is counted but not written yet.
    pub(crate) fn finish(&mut self, texts: &mut Texts) {
        for rank in 0..self.processes.len() {
            let since = self.processes[rank].as_ref().map(|process| process.rate.since);
            since.into_iter().for_each(|since| self.carried(texts, rank, since.saturating_add(WINDOW), 0));
        }
    }

    /// Counts what a collective carried; writes a window that is over, and that nothing followed it.
    fn carried(&mut self, texts: &mut Texts, rank: usize, at: u64, bytes: u64) {
        let rate = &mut self.processes[rank].get_or_insert_default().rate;
        let span = at.saturating_sub(rate.since);
        if span < WINDOW {
            rate.bytes = rate.bytes.saturating_add(bytes);
            return;
        }
        let over = std::mem::replace(rate, Rate { since: at, bytes });
        if over.bytes > 0 {
            let per_second = u128::from(over.bytes) * 1_000_000_000 / u128::from(WINDOW);
            let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
            self.counter(texts, rank, ("traffic", "bytes/s"), over.since, per_second);
            self.counter(texts, rank, ("traffic", "bytes/s"), over.since.saturating_add(WINDOW), 0);
        }
    }

    /// Arrows from and to the neighbours of a rank in a collective, whose slice is open at both times.
    fn arrows(&self, texts: &mut Texts, (rank, thread): (usize, usize), which: u64, (came, leaves): (u64, u64)) {
        let mut arrow = |kind: &str, from: usize, at: u64| {
            let id = which.wrapping_mul(self.group.size() as u64).wrapping_add(from as u64);
            let text = texts.open();
            text.push_str(&format!("{{{kind},\"cat\":\"collective\",\"name\":\"collective\",\"id\":{id},"));
            text.push_str(&format!("\"pid\":{rank},\"tid\":{thread},\"ts\":"));
            micros(text, at.saturating_sub(self.zero));
            text.push('}');
            texts.end();
        };
        if rank + 1 < self.group.size() {
            arrow("\"ph\":\"s\"", rank, came);
        }
        if rank > 0 {
            arrow("\"ph\":\"f\",\"bp\":\"e\"", rank - 1, leaves);
        }
    }

    fn batch(&mut self, texts: &mut Texts, rank: usize, batch: &FinishedBatch, offset: Offset) {
        let FinishedBatch { number: which, kind, algorithm, bytes, times, tensors } = batch;
        let [began, entered, left, ended] =
            [times.began, times.entered, times.left, times.ended].map(|time| offset.apply(time));
        let by = algorithm.map(|algorithm| format!(",\"algorithm\":\"{}\"", algorithm.name())).unwrap_or_default();
        let (name, by) = (json(kind.name()), format!("\"bytes\":{bytes}{by}"));
        let (opening, _) = self.lane(texts, rank, COLLECTIVES, (began, ended));
        self.slice(texts, &opening, &name, (began, ended), |text| {
            text.push_str(&format!("\"number\":{which},\"tensors\":{},{by}", tensors.len()));
        });
        // The end of a slice is no longer part of it.
        let leaves = left.min(ended.saturating_sub(1)).max(entered);
        self.arrows(texts, (rank, opening.thread), *which, (entered, leaves));
        self.carried(texts, rank, ended, *bytes);
        for tensor in tensors {
            let submitted = offset.apply(tensor.submitted).min(began);
            let agreed = offset.apply(tensor.agreed).clamp(submitted, began);
            let (opening, label) = self.lane(texts, rank, &tensor.name, (submitted, ended));
            self.slice(texts, &opening, &label, (submitted, ended), |text| {
                text.push_str("\"bytes\":");
                number(text, tensor.bytes);
                text.push_str(",\"collective\":");
                number(text, *which);
            });
            self.slice(texts, &opening, "\"agreement\"", (submitted, agreed), |text| self.arrivals(text, tensor));
            self.slice(texts, &opening, "\"queue\"", (agreed, began), |_| ());
            if entered > began {
                self.slice(texts, &opening, "\"copy in\"", (began, entered), |_| ());
            }
            self.slice(texts, &opening, &name, (entered, left), |text| text.push_str(&by));
            if ended > left {
                self.slice(texts, &opening, "\"copy out\"", (left, ended), |_| ());
            }
        }
    }

    /// A message: a slice in a lane per direction and rank, which begins with the wait for the other side.
    fn message(&mut self, texts: &mut Texts, rank: usize, message: &TracedMessage, offset: Offset) {
        let TracedMessage { label, sends, peer, bytes, tag, times } = message;
        let [submitted, began, ended] = [times.0, times.1, times.2].map(|time| offset.apply(time));
        // What other ranks say may be in any order.
        let ended = ended.max(submitted);
        let lane = format!("messages {} rank {peer}", if *sends { "to" } else { "from" });
        let (opening, _) = self.lane(texts, rank, &lane, (submitted, ended));
        self.slice(texts, &opening, &json(label), (submitted, ended), |text| {
            text.push_str(&format!("\"bytes\":{bytes},\"tag\":{tag}"));
        });
        self.slice(texts, &opening, "\"wait\"", (submitted, began.clamp(submitted, ended)), |_| ());
        self.carried(texts, rank, ended, *bytes);
    }

    fn arrivals(&self, text: &mut String, tensor: &Traced) {
        if tensor.arrived.is_empty() || tensor.arrived.len() > ARRIVALS {
            return;
        }
        text.push_str("\"arrived\":");
        for (at, &time) in tensor.arrived.iter().enumerate() {
            text.push(if at == 0 { '[' } else { ',' });
            match time {
                // A rank that has joined took no part.
                0 => text.push_str("null"),
                _ => micros(text, time.saturating_sub(self.zero)),
            }
        }
        text.push(']');
    }

    /// How a slice under this label begins, and the label, both as JSON.
    fn lane(&mut self, texts: &mut Texts, rank: usize, label: &str, (begin, end): (u64, u64)) -> (Opening, Arc<str>) {
        let process = self.processes[rank].get_or_insert_default();
        let room = process.lanes.len() < LANES;
        let key = if room || process.lanes.contains_key(label) { label } else { "other tensors" };
        let lane = match process.lanes.get_mut(key) {
            Some(lane) => lane,
            None => {
                let next = self.places.len();
                let place = *self.places.entry(key.to_owned()).or_insert(next);
                let lane = Lane { label: json(key).into(), place, threads: Vec::new() };
                process.lanes.entry(key.to_owned()).or_insert(lane)
            }
        };
        let shown = if key == label { lane.label.clone() } else { json(label).into() };
        if let Some(thread) = lane.threads.iter_mut().find(|thread| thread.last <= begin) {
            thread.last = end;
            return (thread.opening.clone(), shown);
        }
        let thread = match lane.threads.len() {
            at if at < WIDTH => 1 + lane.place * WIDTH + at,
            _ => {
                process.beyond += 1;
                (LANES + FIRST.len()) * WIDTH * self.group.size() + process.beyond
            }
        };
        let text: Arc<str> = format!("{{\"ph\":\"X\",\"pid\":{rank},\"tid\":{thread},\"ts\":").into();
        let opening = Opening { thread, text };
        lane.threads.push(Thread { opening: opening.clone(), last: end });
        fact(texts, (rank, thread), "thread_name", &format!("\"name\":{}", lane.label));
        fact(texts, (rank, thread), "thread_sort_index", &format!("\"sort_index\":{thread}"));
        (opening, shown)
    }

    /// Adds a slice; `opening` and `name` are JSON already, and `more` writes its arguments.
    fn slice(
        &self,
        texts: &mut Texts,
        opening: &Opening,
        name: &str,
        times: (u64, u64),
        more: impl FnOnce(&mut String),
    ) {
        let (begin, end) = (times.0.saturating_sub(self.zero), times.1.saturating_sub(self.zero));
        let text = texts.open();
        text.push_str(&opening.text);
        micros(text, begin);
        text.push_str(",\"dur\":");
        micros(text, end.saturating_sub(begin));
        text.push_str(",\"name\":");
        text.push_str(name);
        let bare = text.len();
        text.push_str(",\"args\":{");
        let empty = text.len();
        more(text);
        match text.len() {
            length if length == empty => text.truncate(bare),
            _ => text.push('}'),
        }
        text.push('}');
        texts.end();
    }
}

/// What both kinds of timeline write about a name, as JSON.
pub(super) fn process_name(texts: &mut Texts, process: usize, name: &str) {
    fact(texts, (process, 0), "process_name", &format!("\"name\":{}", json(name)));
    fact(texts, (process, 0), "process_sort_index", &format!("\"sort_index\":{process}"));
}

/// Adds an event without a time; `more` is JSON.
fn fact(texts: &mut Texts, (rank, thread): (usize, usize), name: &str, more: &str) {
    texts.push(&format!("{{\"ph\":\"M\",\"pid\":{rank},\"tid\":{thread},\"name\":\"{name}\",\"args\":{{{more}}}}}"));
}

/// A text as JSON, not too long.
fn json(text: &str) -> String {
    let short: String = text.chars().take(NAME).collect();
    serde_json::Value::from(short).to_string()
}
