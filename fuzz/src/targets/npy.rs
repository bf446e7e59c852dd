//! Any bytes are a NumPy array or none; an array has as many values as its shape says.

use std::path::Path;

use sirtaki::data::{Source, npy};

pub(crate) fn check(bytes: &[u8]) {
    let Ok(source) = Source::of_bytes(Path::new("fuzz"), bytes) else { return };
    if let Ok(array) = npy::parse(source) {
        assert_eq!(array.shape().iter().product::<usize>(), array.values().len());
    }
}
