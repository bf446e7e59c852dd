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

/// Variables that the Python package reads.
const PYTHON: Section = Section {
    title: "Python",
    about: "What the package `sirtaki` needs to know.",
    variables: &[Variable {
        name: "SIRTAKI_COMMAND",
        allowed: "the path of a program",
        default: "the one beside Python, else the one in PATH",
        about: "Which `sirtaki` command `sirtaki.run` calls.",
    }],
};

/// The value of one of the process's own variables.
pub fn process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// The page `docs/environment.md`.
pub fn page() -> String {
    reference(&[launch::variables::SECTION, OUTPUT, PYTHON])
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
