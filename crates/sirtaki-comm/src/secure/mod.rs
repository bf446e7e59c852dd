//! Who may talk to us: the job's secret and the proof of knowing it.

mod secret;

pub use secret::Secret;
