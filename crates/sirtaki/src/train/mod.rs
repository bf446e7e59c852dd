//! A whole training run of a network for images, text or volumes: what `sirtaki train` does, on every rank.
//!
//! It is a program on top of the rest of this crate and uses only its public interface. Everything it decides comes
//! from [`Settings`]; a caller that wants to follow the run passes an [`Observer`], and gets a [`Report`].
//!
//! - `settings`: what is wanted.
//! - `networks`: the networks to choose from.
//! - `data_sets`: what they are trained on.
//! - `layout`: who has what of the network.
//! - `checks`: whether a run is possible.
//! - `strategy` with `local` and `server`: how workers learn together.
//! - `progress`: the scores of all workers, of which some may be ahead.
//! - `epochs`: the training loop, from the first step to the last, also with workers that come and go.
//! - `model`: the model with its optimizer: a step, a checkpoint, a test.
//! - `single_worker`: the speed of one worker by itself, to compare with.
//! - `work_split`: which worker computes what in an epoch.
//! - `meter`, `report`: what is counted during the run, and what is reported at its end.

mod checks;
mod data_sets;
mod epochs;
mod layout;
mod local;
mod meter;
mod model;
mod networks;
mod progress;
mod report;
mod server;
mod settings;
mod single_worker;
mod strategy;
mod work_split;

pub use checks::{check, check_data, check_rounds};
pub use data_sets::{Domain, layouts, suggest};
pub use epochs::{bench, run, run_in_rounds};
pub use local::Local;
pub use networks::Model;
pub use report::{BenchReport, Epoch, ExchangeReport, Observer, PipelineReport, Prediction, Report, Start};
pub use server::Servers;
pub use settings::{BatchSize, Bench, Method, NetworkSize, Precision, Settings, Stages, Synthetic};
pub use strategy::LearningStrategy;
