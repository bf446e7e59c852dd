//! Which collective runs when: decisions without clock, socket or thread. Values come in and values go out, so thousands
//! of random schedules run through this code in every test run, and `sirtaki predict` uses it for ranks that do not exist.
//!
//! - [`request`], [`message`]: what ranks ask for, and what they say about it.
//! - [`agree`]: the table on rank 0 where all requests meet, with [`check`] (do ranks mean the same?), [`fuse`] (what
//!   shares a buffer?), `cycle` (do the same tensors come again?) and `refusal` (what cannot be done?).
//! - [`order`] with `follow`: one rank's side, which also knows an adopted order by heart.
//! - [`channel`]: messages between two ranks.
//! - `deadlock` with [`waits`]: the proof that ranks wait for each other for ever. [`stall`]: who waits for whom, in words. [`blame`]:
//!   why an engine ends.

pub mod agree;
pub mod blame;
pub mod channel;
pub mod check;
pub(crate) mod cycle;
pub(crate) mod deadlock;
mod follow;
pub mod fuse;
pub mod message;
pub mod order;
mod refusal;
pub mod request;
mod slot;
pub mod stall;
pub mod waits;
