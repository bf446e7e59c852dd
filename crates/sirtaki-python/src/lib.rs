//! The native part of the Python package `sirtaki`: conversions, and nothing else.
//!
//! What Python hands in becomes requests of the engine, and their results become Python objects. Everything that can be
//! done in Python is done there (`python/sirtaki`), so one compiled file serves all frameworks and all versions of
//! Python: it uses only the stable interface. The one framework it knows is TensorFlow, whose ops cannot be Python.
//!
//! # Layout
//!
//! - `engine`: joining a job and handing in tensors.
//! - `infer`: functions of Python on volumes.
//! - `job`: what variables say about the job.
//! - `meeting`: ranks that meet in a framework's store.
//! - `member`: a process of an elastic job.
//! - `message`: messages between two ranks.
//! - `reduce`: reductions.
//! - `name`: names of requests, and the calls that they are made for.
//! - `in_flight`: names that are in use; `hand_in`: what is still to come.
//! - `registry`: engines by number, for code that runs without the interpreter.
//! - `server`: parameter servers.
//! - `study`: hyper-parameter studies.
//! - `tensorflow`: ops and kernels for TensorFlow, which computes without the interpreter.
//! - `ticket`: waiting, with the interpreter free and signals noticed.
//! - `completions`: what is done, for threads that act on it.
//! - `memory`: memory of a framework's tensors, for the engine.
//! - `output`: memory of the engine's, for a framework.
//! - `phase`: parts of training steps, for timelines and profiles.
//! - `xla`: collectives inside XLA's programs.
//! - `error`: exceptions.
//! - `command`: the `sirtaki` command.

mod command;
mod completions;
mod engine;
mod error;
mod hand_in;
mod in_flight;
mod infer;
mod job;
mod meeting;
mod member;
mod memory;
mod message;
mod name;
mod output;
mod phase;
mod reduce;
mod registry;
mod server;
mod study;
mod tensorflow;
mod ticket;
mod xla;

/// The module `sirtaki._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        command::{command, main},
        completions::Completions,
        engine::Engine,
        hand_in::{HandIn, Thread},
        infer::infer,
        member::Member,
        memory::{dtypes, nccl_version},
        message::{receive, send},
        output::Output,
        phase::Phase,
        server::{ServerHead, ServerWorker, serve, servers_beside},
        study::NativeStudy,
        tensorflow::{tensorflow_ops, tensorflow_ready},
        ticket::Ticket,
        xla::xla_handlers,
    };
}
