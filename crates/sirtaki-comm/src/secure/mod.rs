//! Who may talk to us: the job's secret, the proof of knowing it, and encryption.
//!
//! - [`Secret`]: what all processes of a job share.
//! - [`SecureStream`]: one connection, plain or encrypted, that never waits beyond its deadline.
//! - [`Tls`]: the switch for encryption.
//! - [`handshake`]: the mutual proof, the first thing said on every connection.
//! - [`Access`] calls others and [`Gate`] answers them; both only hand out proven connections.

mod access;
mod gate;
pub mod handshake;
mod secret;
mod stream;
mod tls;

pub use access::{Access, fresh_id};
pub use gate::Gate;
pub use secret::Secret;
pub use stream::SecureStream;
pub use tls::Tls;
