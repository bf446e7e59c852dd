//! What a rank is calling, so that ranks that call different things find out instead of hanging.
//!
//! A signature travels with the first bytes of every operation. It is small and fixed, so comparing costs nothing.

use crate::{CommError, DType, Group, Rank, ReduceOp, Reduction};

/// The operations of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    AllReduce = 0,
    Broadcast = 1,
    AllGather = 2,
    ReduceScatter = 3,
    AllToAll = 4,
    Reduce = 5,
    Gather = 6,
    Scatter = 7,
    Barrier = 8,
    Send = 9,
    Split = 10,
}

impl Kind {
    const NAMES: [&'static str; 11] = [
        "all_reduce",
        "broadcast",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "reduce",
        "gather",
        "scatter",
        "barrier",
        "send/receive",
        "split",
    ];
}

/// One call; the other ranks must have made the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signature {
    kind: u8,
    dtype: u8,
    op: u8,
    /// Code of the all-reduce algorithm, where one was chosen: a forced one must be forced everywhere.
    algorithm: u8,
    root: u32,
    count: u64,
    /// Covers what is too long to carry: counts per rank, scale factors, sizes of pieces.
    digest: u64,
}

impl Signature {
    /// Bytes of an encoded signature.
    pub const SIZE: usize = 24;

    /// A call of `kind` over `count` elements.
    pub fn new(kind: Kind, dtype: DType, count: usize) -> Self {
        let none = u8::MAX;
        Self {
            kind: kind as u8,
            dtype: dtype as u8,
            op: none,
            algorithm: none,
            root: u32::MAX,
            count: count as u64,
            digest: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// The same, rooted.
    #[must_use]
    pub fn root(mut self, root: Rank) -> Self {
        self.root = root as u32;
        self
    }

    /// The same, reducing.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.op = reduction.op as u8;
        self.mix(reduction.before.to_bits());
        self.mix(reduction.after.to_bits());
        self
    }

    /// The same, by this algorithm.
    #[must_use]
    pub fn algorithm(mut self, code: u8) -> Self {
        self.algorithm = code;
        self
    }

    /// The same, in pieces of this many bytes, where that was chosen: it must be chosen everywhere.
    #[must_use]
    pub fn piece(mut self, bytes: Option<usize>) -> Self {
        bytes.iter().for_each(|&bytes| self.mix(bytes as u64));
        self
    }

    /// The same, with these counts per rank.
    #[must_use]
    pub fn counts(mut self, counts: &[usize]) -> Self {
        counts.iter().for_each(|&count| self.mix(count as u64));
        self
    }

    fn mix(&mut self, word: u64) {
        self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }

    /// The signature as bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&[self.kind, self.dtype, self.op, self.algorithm]);
        bytes[4..8].copy_from_slice(&self.root.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..].copy_from_slice(&self.digest.to_le_bytes());
        bytes
    }

    /// The signature in these bytes; any bytes are one, if perhaps a strange one.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            kind: bytes[0],
            dtype: bytes[1],
            op: bytes[2],
            algorithm: bytes[3],
            root: word(4) as u32,
            count: word(8),
            digest: word(16),
        }
    }

    /// The call in words, such as `all_reduce(sum) of 1000 f32`.
    pub fn describe(&self) -> String {
        let kind = Kind::NAMES.get(usize::from(self.kind)).unwrap_or(&"an unknown operation");
        let op = ReduceOp::from_code(self.op).map(|op| format!("({})", op.name())).unwrap_or_default();
        let dtype = DType::from_code(self.dtype).map_or("unknown", DType::name);
        let root = if self.root == u32::MAX { String::new() } else { format!(" with root {}", self.root) };
        format!("{kind}{op} of {} {dtype}{root}", self.count)
    }

    /// The error for two ranks of `group` whose calls differ. The text is the same on both.
    pub fn compare(group: &Group, a: (Rank, Signature), b: (Rank, Signature)) -> Result<(), CommError> {
        if a.1 == b.1 {
            return Ok(());
        }
        let (low, high) = if a.0 < b.0 { (a, b) } else { (b, a) };
        let (one, other) = (low.1.describe(), high.1.describe());
        let detail = if one != other {
            ""
        } else if low.1.algorithm != high.1.algorithm {
            " by different algorithms"
        } else {
            " with different counts per rank, scale factors or pieces"
        };
        let differences =
            format!("{} called {one}, {} called {other}{detail}", group.describe(low.0), group.describe(high.0));
        Err(CommError::Mismatch { rank: group.world_rank(high.0), differences })
    }

    /// Compares the calls of all members of `group`. The minority is blamed, so all ranks name the same one.
    pub fn compare_all(group: &Group, calls: &[Signature]) -> Result<(), CommError> {
        let votes = |call: &Signature| calls.iter().filter(|other| *other == call).count();
        let Some(common) = (0..calls.len()).max_by_key(|&rank| (votes(&calls[rank]), calls.len() - rank)) else {
            return Ok(());
        };
        let Some(odd) = (0..calls.len()).find(|&rank| calls[rank] != calls[common]) else {
            return Ok(());
        };
        let blamed = group.world_rank(odd);
        Self::compare(group, (common, calls[common]), (odd, calls[odd])).map_err(|error| match error {
            CommError::Mismatch { differences, .. } => CommError::Mismatch { rank: blamed, differences },
            other => other,
        })
    }
}
