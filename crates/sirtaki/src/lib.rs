//! Training on many processes: data that is divided exactly, learning rates that follow the number of
//! workers, checkpoints that survive a crash.
//!
//! # Layout
//!
//! - [`init`], [`World`]: the processes of a job, from the point of view of one of them.
//! - [`Mesh`]: the processes as a product of axes, each a [`World`].
//! - [`DistributedOptimizer`] and the methods of [`World`] that take modules: Burn's models on many processes. The only
//!   part that knows a tensor framework, and a feature of this crate, `burn`.
//! - [`ServerOptimizer`], [`serve`]: weights on parameter servers, over [`server`].
//! - [`Update`]: how gradients become weights, for training loops that leave that open.
//! - [`tensor_parallel`]: layers whose parameters are split over processes.
//! - [`nn`]: layers of Burn that train faster on processors.
//! - [`pipeline`]: who does what when in a pipeline, and where to cut a network.
//! - [`random`]: streams of random numbers, the same everywhere and forever.
//! - [`data`]: readers for common formats, which worker reads which samples, and threads that read ahead.
//! - [`elastic`]: training that goes on when workers are lost or come.
//! - [`infer`]: a module on a volume that fits into no memory, with the result of the whole.
//! - [`launch`]: a closure on many processes of this machine.
//! - [`mirrored`]: a closure on several devices of this process.
//! - [`schedule`], [`lars`]: learning rates for large batches.
//! - [`train`]: a whole training run of a network for images, text or volumes, on top of all that; also part of feature `burn`.
//! - [`trial`]: what a program says that `sirtaki search` tries with other settings each time.
//! - [`checkpoint`]: tensors by name and a manifest, on disk completely or not at all.

pub mod checkpoint;
pub mod data;
pub mod elastic;
mod error;
#[cfg(feature = "burn")]
pub mod infer;
pub mod lars;
mod launch;
mod mesh;
mod mirrored;
#[cfg(feature = "burn")]
pub mod nn;
#[cfg(feature = "burn")]
mod parallel;
pub mod pipeline;
pub mod random;
pub mod schedule;
mod serve;
#[cfg(feature = "burn")]
pub mod train;
pub mod trial;
mod world;

pub use error::{Error, Result};
pub use launch::{LaunchError, launch};
pub use mesh::Mesh;
pub use mirrored::mirrored;
#[cfg(feature = "train")]
pub use parallel::Strategy;
#[cfg(feature = "burn")]
pub use parallel::{
    Carried, Chain, DistributedOptimizer, Flow, Gradients, Layer, LeafSums, LocalSgd, OptimizerState, Pipeline,
    PipelineTime, Resumed, ServerOptimizer, ServerOptions, ShardDropout, ShardedOptimizer, SyncBatchNorm, Update,
    UpdateCost, seed, tensor_parallel,
};
pub use serve::{serve, serve_unless};
pub use sirtaki_engine::Compression;
pub use sirtaki_server as server;
pub use world::{World, alone, init};

/// The examples of the README are compiled and run with the tests of the documentation.
#[cfg(all(doctest, feature = "burn"))]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

/// So are those of the page about local SGD.
#[cfg(all(doctest, feature = "burn"))]
#[doc = include_str!("../../../docs/local-sgd.md")]
pub struct LocalSgdPage;

/// So are those of the page about the choice between them.
#[cfg(all(doctest, feature = "burn"))]
#[doc = include_str!("../../../docs/which-parallelism.md")]
pub struct WhichParallelism;

/// So are those of the page about networks that are divided among workers.
#[cfg(all(doctest, feature = "burn"))]
#[doc = include_str!("../../../docs/parallel.md")]
pub struct Parallel;

/// So are those of the page about new programs.
#[cfg(all(doctest, feature = "burn"))]
#[doc = include_str!("../../../docs/burn.md")]
pub struct NewInBurn;

/// So are those of the page about several devices.
#[cfg(all(doctest, feature = "burn"))]
#[doc = include_str!("../../../docs/devices.md")]
pub struct SeveralDevices;
