//! A whole training run of a network for images or text: what `sirtaki train` does, on every rank.
//!
//! It is a program on top of the rest of this crate and uses only its public interface. Everything it decides comes
//! from [`Settings`]; a caller that wants to follow the run passes an [`Observer`], and gets a [`Report`].
//!
//! - `settings`: what is wanted.
//! - `networks`: the networks to choose from.
//! - `data_sets`: what they are trained on.
//! - `layout`: who has what of the network.
//! - `checks`: whether a run is possible.
//! - `strategy` with `local`: how workers learn together.
//! - `epochs`: the training loop, from the first step to the last.
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
mod report;
mod settings;
mod single_worker;
mod strategy;
mod work_split;

pub use checks::{check, check_data};
pub use data_sets::Domain;
pub use epochs::run;
pub use local::Local;
pub use report::{Epoch, ExchangeReport, Observer, PipelineReport, Prediction, Report, Start};
pub use settings::{BatchSize, Method, Model, Precision, Settings, Stages};
pub use strategy::LearningStrategy;
