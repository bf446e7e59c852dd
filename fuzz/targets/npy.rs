//! Any bytes are a NumPy array or none; an array has as many values as its shape says.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sirtaki::data::{Source, npy};

fuzz_target!(|bytes: &[u8]| {
    let Ok(source) = Source::of_bytes(Path::new("fuzz"), bytes) else { return };
    if let Ok(array) = npy::parse(source) {
        assert_eq!(array.shape().iter().product::<usize>(), array.values().len());
    }
});
