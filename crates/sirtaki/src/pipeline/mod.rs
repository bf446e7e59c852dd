//! Pipelines without a framework: who does what when, how long that takes, and where to cut a network.
//!
//! A network is a chain of *stages*. With `chunks` stages per worker, stage `s` belongs to worker `s % workers`, so a
//! micro-batch passes every worker `chunks` times. Everything here is a pure function of sizes and times.

mod cut;
mod schedule;
mod timing;

pub use cut::{Cut, LayerCost, cut};
pub use schedule::{Action, Pass, PipelinePlan, PipelineSchedule};
pub use timing::{StageTime, Timing};
