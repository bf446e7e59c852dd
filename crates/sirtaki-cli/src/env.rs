//! The process's environment, which only this crate reads. Which variables there are and what they mean is in
//! [`sirtaki_engine::job::variables`], except for those that only this command knows.

pub use sirtaki_engine::job::{
    Lookup,
    parse::{bytes, seconds, seconds_or_never},
    variables::*,
};
pub use sirtaki_launch::programs::is_program;

use crate::launch;

/// Variables about what the command prints.
const OUTPUT: Section = Section {
    title: "Output",
    about: "What the `sirtaki` command prints.",
    variables: &[Variable {
        name: "NO_COLOR",
        allowed: "anything",
        default: "not set",
        about: "No colours, whatever the terminal can do.",
    }],
};

/// The study that a trial belongs to.
pub const STUDY: &str = "SIRTAKI_STUDY";
/// A trial's number.
pub const TRIAL: &str = "SIRTAKI_TRIAL";
/// A trial's folder.
pub const TRIAL_FOLDER: &str = "SIRTAKI_TRIAL_FOLDER";
/// What trials report.
pub const OBJECTIVE: &str = "SIRTAKI_OBJECTIVE";
/// What a trial tries.
pub const PARAMETERS: &str = "SIRTAKI_PARAMETERS";

/// Variables that the trials of a study get.
const TRIALS: Section = Section {
    title: "Trials of a study",
    about: "What `sirtaki search` tells the program of a trial.",
    variables: &[
        of_trial(STUDY, "The name of the study."),
        of_trial(TRIAL, "The number of the trial."),
        of_trial(TRIAL_FOLDER, "The folder of the trial, for whatever it writes."),
        of_trial(OBJECTIVE, "The names of the values to report, separated by commas."),
        of_trial(PARAMETERS, "The parameters of the trial, as a JSON object."),
    ],
};

const fn of_trial(name: &'static str, about: &'static str) -> Variable {
    Variable { name, allowed: "set by `sirtaki search`", default: "not set", about }
}

/// Where data sets are that come with an installation.
pub const DATA_FOLDER: &str = "SIRTAKI_DATA_FOLDER";

/// Variables about training.
const TRAINING: Section = Section {
    title: "Training",
    about: "What `sirtaki train` reads.",
    variables: &[Variable {
        name: DATA_FOLDER,
        allowed: "the path of a folder",
        default: "the one in the wheel; otherwise not set",
        about: "Where the folder `mnist` is if there is no data/mnist here and no --data is given.",
    }],
};

/// Where ONNX Runtime is.
pub const ONNXRUNTIME: &str = "SIRTAKI_ONNXRUNTIME";

/// Where HDF5's library is.
pub const HDF5: &str = "SIRTAKI_HDF5";

/// Variables about networks on volumes.
const VOLUMES: Section = Section {
    title: "Volumes",
    about: "What `sirtaki infer` computes with, and what it reads HDF5 with; `sirtaki train` reads its pairs with the same.",
    variables: &[
        Variable {
            name: ONNXRUNTIME,
            allowed: "the path of libonnxruntime.so, or of its folder",
            default: "the system's, else that of the Python in PATH",
            about: "The library that computes networks in ONNX files.",
        },
        Variable {
            name: HDF5,
            allowed: "the path of libhdf5.so, or of its folder",
            default: "the system's, else that of h5py in the Python in PATH",
            about: "The library that reads volumes in HDF5 files.",
        },
    ],
};

/// Variables that the Python package reads.
const PYTHON: Section = Section {
    title: "Python",
    about: "What the package `sirtaki` needs to know.",
    variables: &[
        Variable {
            name: "SIRTAKI_COMMAND",
            allowed: "the path of a program",
            default: "the one beside Python, else the one in PATH",
            about: "Which `sirtaki` command `sirtaki.run` calls.",
        },
        Variable {
            name: "SIRTAKI_TRACKERS",
            allowed: "wandb, mlflow, or both with a comma",
            default: "none",
            about: "Where else rank 0 of a Python program passes on what it reports.",
        },
    ],
};

/// The value of one of the process's own variables.
pub fn process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// The page `docs/environment.md`.
pub fn page() -> String {
    reference(&[launch::variables::SECTION, TRAINING, TRIALS, VOLUMES, OUTPUT, PYTHON])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, super::page()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(page, super::page(), "docs/environment.md is old; write it with `cargo xtask docs`");
    }
}
