//! Starting the processes of a job and never leaving one behind.

pub mod cores;
pub mod environment;
pub mod gpus;
pub mod hosts;
pub mod local;
pub mod plan;
