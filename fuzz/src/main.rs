//! One program for all parsers: `SIRTAKI_FUZZ_TARGET` says which of them gets the bytes.
//!
//! A program for each would contain everything once more, and take that much longer to link.
#![no_main]

mod command;
use std::{env, process, sync::OnceLock};

use libfuzzer_sys::fuzz_target;

type Check = fn(&[u8]);

macro_rules! targets {
    ($($name:ident)*) => {
        mod targets {
            $(pub(crate) mod $name;)*
        }

        /// A file each, by its name.
        const TARGETS: &[(&str, Check)] = &[$((stringify!($name), targets::$name::check)),*];
    };
}

targets! {
    alarm channel cifar frame handshake idx journal npy npz onnx orders output predict report seen server signature store
    text volume words
}

static CHOSEN: OnceLock<Check> = OnceLock::new();

fuzz_target!(init: { let _ = CHOSEN.set(chosen()); }, |bytes: &[u8]| {
    CHOSEN.get().expect("chosen before the first input")(bytes);
});

fn chosen() -> Check {
    let name = env::var("SIRTAKI_FUZZ_TARGET").unwrap_or_default();
    match TARGETS.iter().find(|(target, _)| *target == name) {
        Some((_, check)) => *check,
        None => {
            let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
            eprintln!("error: no target `{name}`\nhint: set SIRTAKI_FUZZ_TARGET to one of {}", names.join(", "));
            process::exit(2)
        }
    }
}
