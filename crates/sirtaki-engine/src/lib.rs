//! Named tensors in any order: agreed between ranks, fused, run, and explained when they wait.

#![doc = "Decisions are pure: [`agree`], [`check`], [`fuse`], [`cycle`] and [`order`] know no clock and no socket."]

pub mod agree;
pub mod check;
pub mod cycle;
mod follow;
pub mod fuse;
pub mod late;
pub mod message;
pub mod order;
pub mod request;
