//! Any bytes are a text or none; every sequence of a text, and what follows it, are characters of it.

use std::path::Path;

use sirtaki::data::{Samples, Source, Text, text};

pub(crate) fn check(bytes: &[u8]) {
    let path = Path::new("fuzz");
    let Ok(source) = Source::of_bytes(path, bytes) else { return };
    let Ok(whole) = text::parse(path, source) else { return };
    for length in [1, 7] {
        let Ok(split) = Text::split(&whole, length) else { continue };
        for part in [split.train, split.test] {
            let mut values = vec![0.0; length];
            for index in 0..part.count() {
                let next = part.read(index, &mut values).expect("there is such a sequence");
                assert!(values.iter().all(|&value| (value as usize) < part.classes()));
                assert!((next as usize) < part.classes());
            }
        }
    }
}
