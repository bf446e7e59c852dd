//! Everything that head, servers and workers say to each other: a header, and numbers that it describes.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::{Deserialize, Serialize};

use super::{
    Id,
    clock::{Clocks, Delay},
    table::{BlockId, Rows, TableSpec},
    view::View,
};

/// A message with its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// The numbers of all its pieces, one after the other.
    pub data: Vec<f32>,
}

impl From<Kind> for Message {
    fn from(kind: Kind) -> Self {
        Message { kind, data: Vec::new() }
    }
}

/// What all members of a service have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// How far workers may be apart.
    pub delay: Delay,
    /// How many servers have each block.
    pub copies: u32,
}

/// What a message is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the lines above say what fields are")]
pub enum Kind {
    /// To the head: I want to take part, as a server that listens here or as a worker.
    Enter(Option<SocketAddr>),
    /// From the head: you do, as this one.
    Entered(Id, Terms),
    /// From the head: this is who takes part now.
    View(View),
    /// To the head, from a server: I have all my blocks of this view, and this is the largest clock in them.
    Settled { view: u64, largest: u64 },
    /// From the head: all servers have their blocks of this view; workers begin at these clocks.
    Serve { view: u64, starts: BTreeMap<Id, u64> },
    /// To the head, from a worker: I am done.
    Leave,
    /// From the head: everybody is done, or nothing can go on for this reason.
    End(Option<String>),
    /// From a worker to a server.
    Request(Request),
    /// To a worker: the request of this view and number is done.
    Done { view: u64, number: u64 },
    /// To a worker: the rows it asked for, in that order, and how many clocks the slowest worker was behind.
    Values { view: u64, number: u64, behind: u64 },
    /// To a worker: it cannot be done.
    Refused { number: u64, problem: String },
    /// From a server to another: a worker's request, for the blocks that the other has a copy of, while there were so
    /// many workers.
    Forward { worker: Id, workers: u32, request: Request },
    /// The answer.
    Forwarded { worker: Id, number: u64 },
    /// From a server to another: nothing more comes of views before this one.
    Flush(u64),
    /// From a server to another: a block as it is.
    Copy { view: u64, block: Box<Parcel> },
    /// From a server to another: that were all blocks for you.
    Sent(u64),
}

/// What a worker wants from one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The view by which it chose the server.
    pub view: u64,
    /// The worker's number for it; larger than those before.
    pub number: u64,
    /// The worker's clock.
    pub clock: u64,
    /// What to do.
    pub act: Act,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the lines above say what fields are")]
pub enum Act {
    /// Make these blocks with these contents, unless they are there.
    Create { table: TableSpec, pieces: Vec<Piece> },
    /// Change weights by these gradients, and tell these rows at the clock after it.
    Push { step: StepNumbers, pieces: Vec<Piece>, pulls: Vec<Piece> },
    /// Tell these rows.
    Pull { pieces: Vec<Piece> },
    /// Tell these rows of a slot, without waiting for anybody: 0 are weights, the others what their rule keeps.
    Get { slot: u32, pieces: Vec<Piece> },
    /// Overwrite these rows of a slot, after that many changes, without waiting for anybody.
    Put { slot: u32, changes: u64, pieces: Vec<Piece> },
}

/// What all gradients of a push have in common.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepNumbers {
    /// The learning rate.
    pub rate: f64,
    /// What sums over the leaves of a tree are multiplied by; without one, gradients of workers are averaged.
    pub leaves: Option<Leaves>,
}

/// The leaves of a tree over which gradients are sums.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Leaves {
    /// How many there are, of all workers.
    pub total: u32,
    /// What sums over all of them are multiplied by.
    pub scale: f64,
}

/// Some rows of a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    /// The block.
    pub block: BlockId,
    /// Rows of the block.
    pub rows: Rows,
    /// The leaves of the tree that a gradient is of.
    pub leaves: (u32, u32),
}

/// A block on its way to another server; its numbers are those of all slots, and then those of what is pending.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parcel {
    /// Its table.
    pub table: TableSpec,
    /// Its place in the table.
    pub number: u32,
    /// How often it was changed.
    pub changes: u64,
    /// The pushes that are part of it.
    pub clocks: Clocks,
    /// Gradients that wait for those of other workers, by clock.
    pub pending: Vec<(u64, StepNumbers, Vec<Waiting>)>,
}

/// A gradient that waits, without its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Whose.
    pub worker: Id,
    /// Of these leaves.
    pub leaves: (u32, u32),
    /// For each row, whether it is part of it; `None` if all are.
    pub touched: Option<Vec<bool>>,
}

impl Act {
    /// The pieces that come with numbers.
    pub fn carried(&self) -> &[Piece] {
        match self {
            Act::Create { pieces, .. } | Act::Push { pieces, .. } | Act::Put { pieces, .. } => pieces,
            Act::Pull { .. } | Act::Get { .. } => &[],
        }
    }

    /// The pieces that are asked for.
    pub fn asked(&self) -> &[Piece] {
        match self {
            Act::Pull { pieces } | Act::Get { pieces, .. } => pieces,
            Act::Push { pulls, .. } => pulls,
            Act::Create { .. } | Act::Put { .. } => &[],
        }
    }

    /// The same with other pieces.
    pub fn with(&self, carried: Vec<Piece>, asked: Vec<Piece>) -> Self {
        match self {
            Act::Create { table, .. } => Act::Create { table: table.clone(), pieces: carried },
            Act::Push { step, .. } => Act::Push { step: *step, pieces: carried, pulls: asked },
            Act::Pull { .. } => Act::Pull { pieces: asked },
            Act::Get { slot, .. } => Act::Get { slot: *slot, pieces: asked },
            Act::Put { slot, changes, .. } => Act::Put { slot: *slot, changes: *changes, pieces: carried },
        }
    }
}
