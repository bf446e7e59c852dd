//! How ranks find each other: a small key/value store, and what is built on it.

mod store;

pub use store::{Exchange, Store, StoreExchange};
