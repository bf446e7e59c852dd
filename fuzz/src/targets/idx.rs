//! Any bytes are an IDX file or none, packed or not; an array has as many values as its shape says.

use std::path::Path;

use sirtaki::data::{Source, idx};

pub(crate) fn check(bytes: &[u8]) {
    let Ok(source) = Source::of_bytes(Path::new("fuzz"), bytes) else { return };
    if let Ok(array) = idx::parse(source) {
        assert_eq!(array.shape().iter().product::<usize>(), array.values().len());
    }
}
