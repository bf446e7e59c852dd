//! `sirtaki run` as a command: from what is typed to a job of [`sirtaki_launch`], and from what happens to it to what
//! people see.
//!
//! [`options`] puts flags, environment and file together, and [`dry_run`] shows what would happen. While the job runs,
//! `terminal` hears of it: [`output`] shows what ranks write and [`progress`] how far they are; [`report`] says how they
//! ended. `signals` are those of the launcher's own process.

pub mod config;
pub mod dry_run;
mod elastic;
pub mod horovod;
pub mod options;
pub mod output;
pub mod outputs;
pub mod progress;
pub mod report;
pub mod runs;
pub(crate) mod signals;
pub(crate) mod terminal;
pub mod variables;
