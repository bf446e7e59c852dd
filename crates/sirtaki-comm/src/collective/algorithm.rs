//! The names of the all-reduce algorithms.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How an all-reduce is carried out. Costs are in the modules that implement them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Algorithm {
    /// Through shared memory: small messages with the announcement of the call, large ones as partial sums that pass
    /// from rank to rank.
    Flat = 0,
    /// Reduce-scatter and all-gather around a ring.
    Ring = 1,
    /// Recursive doubling: exchange everything with partners at distance 1, 2, 4, …
    Doubling = 2,
    /// Rabenseifner's: recursive halving, then recursive doubling.
    Halving = 3,
    /// Reduce to rank 0 over a binomial tree, then broadcast over it.
    Tree = 4,
    /// Every rank collects one slice from all others, adds in a wider type, and distributes the result.
    Direct = 5,
    /// Inside every host first, across hosts second, inside again.
    Layered = 6,
}

impl Algorithm {
    /// Every algorithm, in the order of their codes.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Flat,
        Algorithm::Ring,
        Algorithm::Doubling,
        Algorithm::Halving,
        Algorithm::Tree,
        Algorithm::Direct,
        Algorithm::Layered,
    ];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Flat => "flat",
            Algorithm::Ring => "ring",
            Algorithm::Doubling => "doubling",
            Algorithm::Halving => "halving",
            Algorithm::Tree => "tree",
            Algorithm::Direct => "direct",
            Algorithm::Layered => "layered",
        }
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text).ok_or_else(|| {
            let names: Vec<_> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
            format!("there is no algorithm `{text}`; choose one of {}", names.join(", "))
        })
    }
}
