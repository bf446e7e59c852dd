//! Starting the processes of a job and never leaving one behind.
//!
//! From what is wanted to what is done: [`options`] (flags, environment, file) → [`placement`] (hosts, from the user or
//! from the scheduler's [`allocation`]) → [`plan`] (which rank where) → [`environment`], [`cores`], [`gpus`] (what a rank
//! gets). All of that is pure; [`dry_run`] shows it.
//!
//! Then [`supervise`], the launcher, has an [`agent`] on every host start the ranks; they communicate by [`protocol`].
//! [`output`] shows what ranks write and [`progress`] how far they are, [`ended`] and [`report`] say how they end, and
//! [`tree`] makes sure that nothing is left behind.

pub mod agent;
pub mod allocation;
pub mod child;
pub mod config;
pub mod cores;
pub mod dry_run;
pub mod ended;
pub mod environment;
pub mod gpus;
pub mod horovod;
pub mod hosts;
pub mod local;
pub mod nodelist;
pub mod openmpi;
pub mod options;
pub mod output;
pub mod outputs;
pub mod outside;
pub mod placement;
pub mod plan;
pub mod port;
pub mod progress;
pub mod protocol;
pub mod report;
pub mod runs;
pub mod supervise;
pub mod tf_config;
pub mod tree;
pub mod variables;
