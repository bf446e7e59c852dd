//! Whatever a rank says about itself, rank 0 writes valid JSON or nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sirtaki_engine::telemetry::fuzzing::written;

fuzz_target!(|bytes: &[u8]| {
    if let Some(text) = written(bytes) {
        let read: Result<serde_json::Value, _> = serde_json::from_str(&text);
        assert!(read.is_ok(), "{:?}: {text}", read.err());
    }
});
