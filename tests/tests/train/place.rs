//! A folder in which `sirtaki train` runs.

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;
use sirtaki_tests::launch::{Finished, Launch};
use tempfile::TempDir;

pub(crate) const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist");

/// A folder to work in.
pub(crate) struct Place(pub(crate) TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn train(&self, arguments: &str) -> Finished {
        let is_given = ["--data", "--model transformer", "--model msd"].iter().any(|word| arguments.contains(word));
        let data = if is_given { String::new() } else { format!(" --data {DATA}") };
        self.start(&format!("{arguments}{data}")).ends()
    }

    /// A small data set in the form of MNIST, so that runs are about something else than learning.
    pub(crate) fn with_small_data() -> Place {
        let place = Place::new();
        fs::create_dir(place.path("small")).unwrap();
        for (part, count) in [("train", 96_usize), ("t10k", 16)] {
            let dimensions = |more: &[u32]| -> Vec<u8> {
                let kind = [0, 0, 8, 1 + more.len() as u8];
                let sizes = [&[count as u32], more].concat().into_iter().flat_map(u32::to_be_bytes);
                kind.into_iter().chain(sizes).collect()
            };
            let pixels = (0..count * 784).map(|index| (index * 7 % 251) as u8);
            let images: Vec<u8> = dimensions(&[28, 28]).into_iter().chain(pixels).collect();
            let labels: Vec<u8> = dimensions(&[]).into_iter().chain((0..count).map(|label| label as u8 % 10)).collect();
            fs::write(place.path(&format!("small/{part}-images-idx3-ubyte")), images).unwrap();
            fs::write(place.path(&format!("small/{part}-labels-idx1-ubyte")), labels).unwrap();
        }
        place
    }

    pub(crate) fn start(&self, arguments: &str) -> Launch {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
        command.current_dir(self.0.path()).arg("train").args(arguments.split_whitespace());
        Launch::start(command)
    }

    /// The closing report of a run that goes well.
    pub(crate) fn report(&self, arguments: &str) -> Value {
        let done = self.train(&format!("{arguments} --json report.json"));
        assert_eq!(done.code, 0, "{}", done.message());
        serde_json::from_slice(&fs::read(self.path("report.json")).unwrap()).unwrap()
    }

    pub(crate) fn weights(&self, arguments: &str) -> String {
        self.report(arguments)["weights"].as_str().unwrap().to_owned()
    }

    /// What is said about a mistake: an error in one line and a hint in another.
    pub(crate) fn refused(&self, arguments: &str) -> String {
        let done = self.train(arguments);
        assert_eq!((done.code, done.err.len()), (1, 2), "{arguments}: {}", done.message());
        assert!(done.err[0].starts_with("error: ") && done.err[1].starts_with("hint: "), "{}", done.message());
        done.message()
    }
}
