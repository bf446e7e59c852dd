//! A parameter server: weights live on servers, workers push gradients and pull weights.
//!
//! A key–value space of tables, cut into blocks of at most 256 KiB on a ring of servers, each with copies. Every push
//! carries its worker and clock and counts once, however often it is repeated; a pull waits until the slowest worker is
//! near enough. Servers and workers may die and come while the service runs. It knows no tensor framework.
//!
//! # Layout
//!
//! - [`decide`]: everything that is decided, without sockets, clocks and threads.
//! - [`rule`]: how gradients change weights.
//! - [`wire`]: messages as bytes.
//! - [`service`]: head, servers and workers over the links of `sirtaki-comm`.
//!
//! Rejected: pushes from workers to all copies, which then apply them in different orders; and views that change while
//! blocks are served, where it depends on timing which of two owners knows more.

/// The examples of the page about it are compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/server.md")]
pub struct ServerPage;

pub mod decide;
mod error;
pub mod rule;
pub mod service;
pub mod wire;

pub use decide::{
    clock::Delay,
    message::Leaves,
    table::{Rows, TableSpec},
};
pub use error::ServerError;
pub use rule::{Change, Rule, RuleSpec, Rules};
pub use service::{Gradient, Head, HeadOptions, JobService, Server, ServicePlace, Worker, WorkerReport};
