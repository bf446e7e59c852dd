//! Links for tests: in memory, and made worse on purpose.

pub mod flaky;
pub mod pipe;
