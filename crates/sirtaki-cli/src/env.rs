//! The process's environment, which nothing but this crate reads, and what only this crate does with it. All other
//! variables are in [`sirtaki_engine::job::variables`].

use sirtaki_engine::job::variables::{self, Section, Variable};
pub use sirtaki_engine::job::{
    parse::{bytes, seconds},
    variables::{ALGORITHM, RANK, SECRET, SHM, SIZE, STORE, TIMEOUT, TLS},
};

/// What terminals show.
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

/// The value of one of the process's own variables.
pub fn process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// The reference page `docs/environment.md`.
pub fn reference() -> String {
    variables::reference(&[OUTPUT])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/environment.md");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, super::reference()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(page, super::reference(), "docs/environment.md is old; write it with `cargo xtask docs`");
    }
}
