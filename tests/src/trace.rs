//! Timelines as files: read as plain JSON and checked for what all of them guarantee.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

/// A slice of a lane, in nanoseconds.
#[derive(Debug, Clone)]
pub struct Slice {
    /// The rank it belongs to.
    pub rank: u64,
    /// The lane it is in.
    pub thread: u64,
    /// What it is called.
    pub name: String,
    /// When it begins.
    pub begin: i64,
    /// When it ends.
    pub end: i64,
    /// Its arguments.
    pub more: Value,
}

/// A timeline.
#[derive(Debug)]
pub struct Trace {
    /// All of it.
    pub all: Value,
    /// Its slices, in the order of the file.
    pub slices: Vec<Slice>,
}

impl Trace {
    /// The timeline in a file, which has to be valid JSON.
    pub fn read(path: &Path) -> Trace {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let all: Value = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            panic!("{} of {} bytes is not valid JSON: {error}", path.display(), bytes.len());
        });
        let nanos = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as i64;
        let events = all["traceEvents"].as_array().unwrap();
        let slices = events.iter().filter(|event| event["ph"] == "X").map(|event| Slice {
            rank: event["pid"].as_u64().unwrap(),
            thread: event["tid"].as_u64().unwrap(),
            name: event["name"].as_str().unwrap().into(),
            begin: nanos(&event["ts"]),
            end: nanos(&event["ts"]) + nanos(&event["dur"]),
            more: event["args"].clone(),
        });
        let slices = slices.collect();
        Trace { all, slices }
    }

    /// The metadata events of this name.
    pub fn facts(&self, name: &str) -> Vec<&Value> {
        let events = self.all["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == "M" && event["name"] == name).collect()
    }

    /// What the file says about itself.
    pub fn about(&self, what: &str) -> f64 {
        self.all["otherData"][what].as_f64().unwrap()
    }

    /// Slices of this name.
    pub fn named(&self, name: &str) -> Vec<&Slice> {
        self.slices.iter().filter(|slice| slice.name == name).collect()
    }

    /// Slices of tensors: those that went through a collective.
    pub fn tensors(&self) -> Vec<&Slice> {
        self.slices.iter().filter(|slice| slice.more["collective"].is_u64()).collect()
    }

    /// In every lane, slices are nested or apart; and every tensor has its phases, one after another.
    pub fn check(&self) {
        self.check_up_to(self.slices.len());
    }

    /// The same for a file whose writer was killed: the last tensor may lack phases.
    pub fn check_cut(&self) {
        self.check_up_to(self.slices.iter().rposition(|slice| slice.more["collective"].is_u64()).unwrap_or(0));
    }

    fn check_up_to(&self, end: usize) {
        let mut lanes: BTreeMap<(u64, u64), Vec<&Slice>> = BTreeMap::new();
        self.slices.iter().for_each(|slice| lanes.entry((slice.rank, slice.thread)).or_default().push(slice));
        for lane in lanes.values_mut() {
            lane.sort_by_key(|slice| (slice.begin, -slice.end));
            let mut open: Vec<&Slice> = Vec::new();
            for slice in lane {
                open.retain(|outer| outer.end > slice.begin);
                let inside = open.last().is_none_or(|outer| slice.end <= outer.end);
                assert!(inside, "{slice:?} overlaps with {:?}", open.last());
                open.push(slice);
            }
        }
        for (at, tensor) in self.slices[..end].iter().enumerate().filter(|(_, slice)| slice.more["collective"].is_u64())
        {
            self.check_phases(tensor, &self.slices[at + 1..]);
        }
    }

    fn check_phases(&self, tensor: &Slice, after: &[Slice]) {
        let of_it = |slice: &&Slice| (slice.rank, slice.thread) == (tensor.rank, tensor.thread);
        let phases: Vec<&Slice> =
            after.iter().take_while(of_it).take_while(|slice| slice.more["collective"].is_null()).collect();
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names[..2], ["agreement", "queue"], "{tensor:?}");
        let rest: Vec<&str> = names[2..].iter().filter(|name| !name.starts_with("copy ")).copied().collect();
        assert!(rest.len() == 1 && names.len() <= 5, "{tensor:?} has {names:?}");
        let (first, last) = (phases[0], phases[phases.len() - 1]);
        assert_eq!((first.begin, last.end), (tensor.begin, tensor.end), "{tensor:?}");
        assert!(phases.windows(2).all(|pair| pair[0].end == pair[1].begin), "{phases:#?}");
        let collective = phases.iter().find(|phase| phase.name == rest[0]).unwrap();
        assert!(collective.more["bytes"].is_u64(), "{collective:?}");
    }
}
