//! The events of a timeline that a prediction needs, read one by one: a timeline of a long job has millions.

use std::{borrow::Cow, collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};

/// The format named in the file; traces of other programs have something else or nothing there.
pub(crate) const FORMAT: &str = "sirtaki timeline, version 1";

/// A timeline.
#[derive(Debug, Deserialize)]
pub(crate) struct Trace {
    #[serde(rename = "otherData")]
    pub about: About,
    #[serde(rename = "traceEvents", deserialize_with = "events")]
    pub ranks: Vec<Rank>,
}

/// What a timeline says about itself.
#[derive(Debug, Deserialize)]
pub(crate) struct About {
    pub format: String,
    pub ranks: usize,
    pub dropped: u64,
}

/// What one rank did; times in seconds.
#[derive(Debug, Default)]
pub(crate) struct Rank {
    /// Tensors that were reduced, in the order of the file.
    pub tensors: Vec<Handed>,
    /// All-reduces by their number.
    pub reduced: HashMap<u64, Reduced>,
    /// Training phases by their beginning: which, from when, until when.
    pub phases: Vec<(&'static str, f64, f64)>,
    /// Tensors that went through something other than an all-reduce.
    pub others: usize,
    /// The collective whose tensors come next, if it is an all-reduce.
    current: Option<u64>,
}

/// A submitted tensor.
#[derive(Debug, Clone)]
pub(crate) struct Handed {
    pub name: String,
    pub bytes: usize,
    pub submitted: f64,
    pub ended: f64,
}

/// An all-reduce.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reduced {
    pub bytes: usize,
    pub tensors: usize,
    pub algorithm: String,
    /// In the communicator.
    pub inside: f64,
    /// Copying before and after it.
    pub copying: f64,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    #[serde(default)]
    pid: usize,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default, borrow)]
    args: Arguments<'a>,
}

#[derive(Deserialize, Default)]
struct Arguments<'a> {
    bytes: Option<usize>,
    number: Option<u64>,
    collective: Option<u64>,
    tensors: Option<usize>,
    exposed_us: Option<f64>,
    #[serde(borrow)]
    algorithm: Option<Cow<'a, str>>,
}

/// Most ranks of a job: memory must not depend on an unchecked field of an event.
const RANKS: usize = 1 << 16;
/// Microseconds in a timeline and bytes in a tensor, at most; numbers up to this can be used without further checks.
const LONGEST: f64 = 1e15;
const LARGEST: usize = 1 << 40;

impl Event<'_> {
    fn is_possible(&self) -> bool {
        self.ts.abs() <= LONGEST && (0.0..=LONGEST).contains(&self.dur) && self.args.bytes.unwrap_or(0) <= LARGEST
    }
}

fn events<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Rank>, D::Error> {
    struct Events;

    impl<'de> Visitor<'de> for Events {
        type Value = Vec<Rank>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of events")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Rank>, A::Error> {
            let mut ranks = Vec::new();
            while let Some(event) = list.next_element::<Event<'de>>()? {
                if event.ph != "X" || event.pid >= RANKS {
                    continue;
                }
                if !event.is_possible() {
                    return Err(A::Error::custom(format!("the times or bytes of `{}` cannot be", event.name)));
                }
                if ranks.len() <= event.pid {
                    ranks.resize_with(event.pid + 1, Rank::default);
                }
                ranks[event.pid].add(&event);
            }
            Ok(ranks)
        }
    }
    deserializer.deserialize_seq(Events)
}

impl Rank {
    fn add(&mut self, event: &Event<'_>) {
        let (begin, seconds) = (event.ts / 1e6, event.dur / 1e6);
        match (&event.args, &*event.name) {
            // The same collective by the clock of a GPU.
            (Arguments { exposed_us: Some(_), .. }, _) => {}
            // In the lane of the collectives; its tensors follow.
            (Arguments { number: Some(number), bytes: Some(bytes), tensors, algorithm, .. }, name) => {
                self.current = (name == "all_reduce").then_some(*number);
                if self.current.is_some() {
                    let algorithm = algorithm.as_deref().unwrap_or_default().to_owned();
                    let tensors = tensors.unwrap_or(1);
                    let whole = Reduced { bytes: *bytes, tensors, algorithm, inside: 0.0, copying: seconds };
                    self.reduced.insert(*number, whole);
                }
            }
            (Arguments { collective: Some(_), bytes: Some(bytes), .. }, name) => match self.current {
                Some(_) => {
                    let (name, ended) = (name.to_owned(), begin + seconds);
                    self.tensors.push(Handed { name, bytes: *bytes, submitted: begin, ended });
                }
                None => self.others += 1,
            },
            // In a tensor's lane: the part of the collective that is communication.
            (Arguments { bytes: Some(_), .. }, "all_reduce") => {
                let current = self.current.and_then(|number| self.reduced.get_mut(&number));
                if let Some(reduced) = current.filter(|reduced| reduced.inside == 0.0) {
                    reduced.inside = seconds;
                    reduced.copying = (reduced.copying - seconds).max(0.0);
                }
            }
            (Arguments { bytes: None, .. }, name) => {
                let known = ["input", "forward", "backward", "optimizer"].into_iter().find(|phase| *phase == name);
                self.phases.extend(known.map(|phase| (phase, begin, begin + seconds)));
            }
            _ => {}
        }
    }
}

impl Trace {
    /// The timeline in these bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut trace: Trace = serde_json::from_slice(bytes).map_err(|error| match foreign(bytes) {
            true => "it has no `otherData` and `traceEvents` of ours".to_owned(),
            false => error.to_string(),
        })?;
        if trace.about.format != FORMAT {
            return Err(format!("its format is `{}`, not `{FORMAT}`", trace.about.format));
        }
        trace.ranks.iter_mut().for_each(|rank| rank.phases.sort_by(|a, b| a.1.total_cmp(&b.1)));
        Ok(trace)
    }
}

/// Whether this is JSON, but not a timeline of Sirtaki's.
fn foreign(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Outer {
        #[serde(rename = "otherData")]
        about: Option<IgnoredAny>,
        #[serde(rename = "traceEvents")]
        events: Option<IgnoredAny>,
    }
    match serde_json::from_slice::<Outer>(bytes) {
        Ok(outer) => outer.about.is_none() || outer.events.is_none(),
        Err(_) => serde_json::from_slice::<IgnoredAny>(bytes).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_collectives_and_phases_are_found() {
        let text = r#"{"otherData": {"format": "sirtaki timeline, version 1", "ranks": 2, "dropped": 0}, "traceEvents": [
            {"ph":"M","pid":0,"tid":0,"name":"sirtaki","args":{"format":"x"}},
            {"ph":"X","pid":1,"tid":1,"ts":100.0,"dur":50.0,"name":"backward"},
            {"ph":"X","pid":1,"tid":2,"ts":200.0,"dur":10.0,"name":"all_reduce","args":{"number":7,"tensors":1,"bytes":64,"algorithm":"ring"}},
            {"ph":"X","pid":1,"tid":3,"ts":150.0,"dur":60.0,"name":"grad\"1","args":{"bytes":60,"collective":7}},
            {"ph":"X","pid":1,"tid":3,"ts":150.0,"dur":40.0,"name":"agreement"},
            {"ph":"X","pid":1,"tid":3,"ts":202.0,"dur":6.0,"name":"all_reduce","args":{"bytes":64,"algorithm":"ring"}},
            {"ph":"X","pid":1,"tid":2,"ts":300.0,"dur":10.0,"name":"broadcast","args":{"number":8,"tensors":1,"bytes":4}},
            {"ph":"X","pid":1,"tid":4,"ts":290.0,"dur":20.0,"name":"state","args":{"bytes":4,"collective":8}}]}"#;
        let trace = Trace::parse(text.as_bytes()).unwrap();
        assert_eq!((trace.about.ranks, trace.ranks.len()), (2, 2));
        let rank = &trace.ranks[1];
        assert_eq!((rank.tensors.len(), rank.others), (1, 1));
        assert_eq!((rank.tensors[0].name.as_str(), rank.tensors[0].bytes), ("grad\"1", 60));
        assert!((rank.tensors[0].ended - 210e-6).abs() < 1e-12);
        let reduced = &rank.reduced[&7];
        assert_eq!((reduced.bytes, reduced.algorithm.as_str()), (64, "ring"));
        assert!((reduced.inside - 6e-6).abs() < 1e-12 && (reduced.copying - 4e-6).abs() < 1e-12);
        assert_eq!(rank.phases.len(), 1);
    }

    #[test]
    fn other_files_are_told_apart() {
        let error = |text: &str| Trace::parse(text.as_bytes()).unwrap_err();
        assert!(error("[]").contains("otherData"));
        assert!(error(r#"{"traceEvents": []}"#).contains("otherData"));
        assert!(error("{").contains("EOF"));
        let other = r#"{"otherData": {"format": "else", "ranks": 1, "dropped": 0}, "traceEvents": []}"#;
        assert!(error(other).contains("`else`"));
        let event = r#"[{"ph": "X", "name": "step", "ts": 1e300}]"#;
        assert!(error(&other.replace("[]", event)).contains("times or bytes of `step`"));
    }

    #[test]
    fn what_a_gpu_did_is_not_another_collective() {
        let text = r#"{"otherData":{"format":"sirtaki timeline, version 1","ranks":1,"dropped":0},"traceEvents":[
            {"ph":"X","pid":0,"name":"all_reduce","ts":0,"dur":5,"args":{"number":1,"tensors":1,"bytes":8}},
            {"ph":"X","pid":0,"name":"all_reduce","ts":9,"dur":70,
             "args":{"number":1,"tensors":1,"bytes":8,"exposed_us":3.5}},
            {"ph":"X","pid":0,"name":"x","ts":0,"dur":5,"args":{"bytes":8,"collective":1}},
            {"ph":"X","pid":0,"name":"all_reduce","ts":1,"dur":2,"args":{"bytes":8}}]}"#;
        let trace = Trace::parse(text.as_bytes()).unwrap();
        let reduced = &trace.ranks[0].reduced[&1];
        assert_eq!((trace.ranks[0].tensors.len(), trace.ranks[0].reduced.len()), (1, 1));
        assert!((reduced.inside - 2e-6).abs() < 1e-12 && (reduced.copying - 3e-6).abs() < 1e-12, "{reduced:?}");
    }
}
