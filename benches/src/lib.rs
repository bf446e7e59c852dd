//! Measuring all-reduce across libraries so that the figures can be compared.
//!
//! Every library runs in its own processes (a [`Peer`]), started once. The measuring side asks them in turn over a
//! Unix socket, size by size, so that all libraries see the same machine at nearly the same time. A peer that is not
//! asked is blocked in a read and uses no processor.
//!
//! - [`protocol`]: the lines on the socket.
//! - [`serve`]: the peer's side of it, and sirtaki's own peer.
//! - [`peer`]: the measuring side.
//! - [`comm`], [`engine`], [`goals`], [`report`], [`plot`]: the comparisons, what they should show, and how it is shown.
//! - [`start`], [`python`]: how every library is started.
//! - [`launch`], [`command`]: the launcher compared with others, and what can be observed of a command from outside.
//! - [`limit`]: what the machine itself can do with the same bytes.
//! - [`train`], [`contest`]: training runs compared with PyTorch's, and what they show.
//! - [`torch`], [`crew`], [`wheel`], [`efficiency`]: PyTorch training by the Python package and by others, the systems
//!   that train, the environments the package is installed into, and what the comparison shows.
//! - [`pipelines`]: PyTorch's own pipelines over the package and over Gloo.
//! - [`jax`]: JAX with the Python package compared with JAX over Gloo.
//! - [`predict`]: what `sirtaki predict` says compared with what happens.
//! - [`resnet`], [`steps`]: the tensors of a training step, and the engine reducing them.

pub mod comm;
pub mod command;
pub mod contest;
pub mod crew;
pub mod efficiency;
pub mod engine;
pub mod goals;
pub mod jax;
pub mod launch;
pub mod limit;
pub mod peer;
pub mod pipelines;
pub mod plot;
pub mod predict;
pub mod protocol;
pub mod python;
pub mod report;
pub mod resnet;
pub mod serve;
pub mod start;
pub mod steps;
pub mod torch;
pub mod train;
pub mod wheel;

use std::process::ExitCode;

pub use peer::Peer;
pub use protocol::BenchError;

/// Ends a peer: if it failed, prints its name and the reason to standard error.
pub fn exit_with(program: &str, result: Result<(), BenchError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[allow(clippy::print_stderr, reason = "a program says on its error output why it ends")]
            {
                eprintln!("{program}: {error}");
            }
            ExitCode::FAILURE
        }
    }
}
