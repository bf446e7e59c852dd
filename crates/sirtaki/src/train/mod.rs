//! A whole training run of an image classifier: what `sirtaki train` does, on every rank.
//!
//! It is a program on top of the rest of this crate, of which it uses nothing that others cannot. Everything it decides
//! comes from [`Settings`]; whoever wants to see it work gives an [`Observer`], and gets a [`Report`].
//!
//! - `settings`: what is wanted.
//! - `networks`: the networks to choose from.
//! - `images`: data sets by their folder.
//! - `checks`: whether a run is possible.
//! - `epochs`: the training loop, from the first step to the last.
//! - `model`: the model with its optimizer: a step, a checkpoint, a test.
//! - `single_worker`: the speed of one worker by itself, to compare with.
//! - `work_split`: which worker computes what in an epoch.
//! - `meter`, `report`: what is counted on the way, and what is told at the end.

mod checks;
mod epochs;
mod images;
mod meter;
mod model;
mod networks;
mod report;
mod settings;
mod single_worker;
mod work_split;

pub use checks::{check, check_data};
pub use epochs::run;
pub use report::{Epoch, Observer, Report, Start};
pub use settings::{BatchSize, Method, Model, Precision, Settings};
