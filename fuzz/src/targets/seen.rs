//! Whatever a rank says about itself, rank 0 writes valid JSON or nothing.

use sirtaki_engine::telemetry::fuzzing::written;

pub(crate) fn check(bytes: &[u8]) {
    if let Some(text) = written(bytes) {
        let read: Result<serde_json::Value, _> = serde_json::from_str(&text);
        assert!(read.is_ok(), "{:?}: {text}", read.err());
    }
}
