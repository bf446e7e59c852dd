//! A whole training run of an image classifier: what `sirtaki train` does, on every rank.
//!
//! It is a program on top of the rest of this crate, of which it uses nothing that others cannot. Everything it decides
//! comes from [`Settings`]; whoever wants to see it work gives an [`Observer`], and gets a [`Report`].
//!
//! - `settings`: what is wanted.
//! - `networks`: the networks to choose from.
//! - `images`: data sets by their folder.
//! - `course`: the epochs, from first step to last.
//! - `model`: the model with its optimizer: a step, a checkpoint, a test.
//! - `alone`: what one worker does by itself, to compare with.
//! - `shares`: who computes what in an epoch.
//! - `meter`, `report`: what is counted on the way, and what is told at the end.

mod alone;
mod course;
mod images;
mod meter;
mod model;
mod networks;
mod report;
mod settings;
mod shares;

pub use course::{check, run};
pub use images::look;
pub use report::{Epoch, Observer, Report, Start};
pub use settings::{Batch, Method, Model, Precision, Settings};
