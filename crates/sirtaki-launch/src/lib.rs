//! Starting the processes of a job, watching them, and never leaving one behind.
//!
//! A [`JobSpec`] says what is wanted; nothing here knows about arguments or a terminal, and an [`Observer`] hears what
//! happens. From what is wanted to what is done: [`placement`] (hosts, from the user or from the scheduler's
//! [`allocation`]) → [`plan`] (which rank where) → [`environment`], [`cores`], [`gpus`] (what a rank gets). All of that
//! is pure.
//!
//! Then the launcher, [`supervise`], has an [`agent`] on every host start the ranks; they communicate by [`protocol`].
//! [`roles`] says what the end of a process means to the others; [`members`] decides who takes part in a job whose workers
//! come and go, and [`discovery`] finds hosts for it.
//! [`ended`] says how they end, and [`tree`] makes sure that nothing is left behind. What belongs to a process as a
//! whole, such as its signals and orphans, is left to programs, so that several jobs can run in one process.
//!
//! [`local`] is for programs that start copies of themselves on this machine and need none of that.

mod advice;
pub mod agent;
pub mod allocation;
pub mod child;
pub mod cores;
pub mod discovery;
pub mod ended;
mod env;
pub mod environment;
pub mod gpus;
pub mod hosts;
pub mod local;
pub mod members;
pub mod nodelist;
mod observer;
pub mod openmpi;
pub mod outside;
pub mod placement;
pub mod plan;
pub mod port;
pub mod programs;
pub mod protocol;
pub mod pulse;
pub mod roles;
mod spec;
pub mod supervise;
pub mod tf_config;
pub mod tree;
pub mod words;

pub use self::{
    advice::Advice,
    observer::{Controller, Observer, RoundReport},
    spec::{Elastic, JobSpec, Ssh, Via},
    supervise::{Ending, Job, Launcher, Outcome},
};
