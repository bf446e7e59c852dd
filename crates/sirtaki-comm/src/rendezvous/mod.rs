//! How ranks find each other: a small key/value store, and what is built on it.

mod parent;
mod store;

pub use parent::split_with;
pub use store::{Exchange, Store, StoreExchange};
