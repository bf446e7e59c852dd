//! The process's environment, which nothing but this crate reads. What the variables are and mean is in
//! [`sirtaki_engine::job`].

pub use sirtaki_engine::job::{
    parse::{bytes, seconds},
    settings::communication,
    variables::{ALGORITHM, RANK, SECRET, SHM, SIZE, STORE, TIMEOUT, TLS},
};

/// The value of one of the process's own variables.
pub fn process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
