//! Starting the processes of a job and never leaving one behind.

pub mod cores;
pub mod ended;
pub mod local;
pub mod output;
pub mod report;
