//! The native part of the Python package `sirtaki`: conversions, and nothing else.
//!
//! What Python hands in becomes requests of the engine, and what comes of them becomes Python objects. Everything that
//! can be said in Python is said there (`python/sirtaki`), so one compiled file serves all frameworks and all versions
//! of Python: it uses the stable interface alone, and knows no framework.
//!
//! # Layout
//!
//! - `engine`: joining a job and handing in tensors.
//! - `meeting`: ranks that meet in a framework's store.
//! - `ticket`: waiting, with the interpreter free and signals heard.
//! - `carry`: memory of a framework's tensors, for the engine.
//! - `output`: memory of the engine's, for a framework.
//! - `phase`: parts of training steps, for timelines and profiles.
//! - `error`: exceptions.
//! - `command`: the `sirtaki` command.

mod carry;
mod command;
mod engine;
mod error;
mod meeting;
mod output;
mod phase;
mod ticket;

/// The module `sirtaki._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        command::{command, main},
        engine::{Engine, dtypes},
        output::Output,
        phase::Phase,
        ticket::Ticket,
    };
}
