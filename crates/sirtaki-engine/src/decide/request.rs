//! What a rank asks for: a named tensor and what should happen to it. Plain data, the same on the wire and in memory.

use std::{
    borrow::Borrow,
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use sirtaki_comm::{DType, Rank, Reduction};

/// What should happen to a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    /// Replaced by the reduction over all ranks.
    AllReduce(Reduction),
    /// Replaced by the adaptive sum over all ranks.
    Adasum,
    /// Every rank gets all ranks' rows; the number of rows may differ from rank to rank.
    AllGather,
    /// Replaced by the tensor of `root`.
    Broadcast {
        /// Whose tensor it is.
        root: Rank,
    },
    /// Rows go to other ranks.
    AllToAll {
        /// How many of my rows go to each rank.
        splits: Vec<usize>,
    },
    /// Every rank gets its share of the rows, reduced over all ranks; see [`shares`].
    ReduceScatter(Reduction),
    /// Nothing but meeting.
    Barrier,
    /// This rank has no more data; it helps the others until all have said so.
    Join,
    /// A sub-group with an engine of its own.
    ProcessSet {
        /// The ranks in it, ascending.
        members: Vec<Rank>,
    },
}

impl Operation {
    /// The operation in words, without what may differ between ranks.
    pub fn describe(&self) -> String {
        match self {
            Operation::AllReduce(reduction) => format!("all_reduce({})", describe_reduction(reduction)),
            Operation::Adasum => "all_reduce(adasum)".into(),
            Operation::AllGather => "all_gather".into(),
            Operation::Broadcast { root } => format!("broadcast from rank {root}"),
            Operation::AllToAll { .. } => "all_to_all".into(),
            Operation::ReduceScatter(reduction) => format!("reduce_scatter({})", describe_reduction(reduction)),
            Operation::Barrier => "barrier".into(),
            Operation::Join => "join".into(),
            Operation::ProcessSet { members } => format!("process set of ranks {members:?}"),
        }
    }

    /// Whether the first dimension may differ between ranks.
    pub fn has_own_rows(&self) -> bool {
        matches!(self, Operation::AllGather | Operation::AllToAll { .. })
    }

    /// Whether it can be part of an order that repeats.
    pub(crate) fn repeats(&self) -> bool {
        !matches!(self, Operation::Join | Operation::ProcessSet { .. })
    }
}

fn describe_reduction(reduction: &Reduction) -> String {
    let mut text = reduction.op.name().to_string();
    if reduction.before != 1.0 {
        text += &format!(", inputs times {}", reduction.before);
    }
    if reduction.after != 1.0 {
        text += &format!(", result times {}", reduction.after);
    }
    text
}

/// A smaller type in which to travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Compression {
    /// IEEE half precision.
    F16,
    /// The upper half of an `f32`.
    BF16,
}

impl Compression {
    /// The type that travels.
    pub fn dtype(self) -> DType {
        match self {
            Compression::F16 => DType::F16,
            Compression::BF16 => DType::BF16,
        }
    }
}

/// Which memory a tensor lies in; only what ranks have to agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum TensorPlace {
    /// The host's.
    #[default]
    Host,
    /// A GPU's, whichever it is on each rank.
    Device,
}

impl TensorPlace {
    /// The place in words.
    pub fn describe(self) -> &'static str {
        match self {
            TensorPlace::Host => "in the host's memory",
            TensorPlace::Device => "in a GPU's memory",
        }
    }
}

/// The set of requests that complete together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// Its name.
    pub name: String,
    /// How many requests it has.
    pub size: usize,
}

/// One rank's wish concerning one tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The tensor's name, by which ranks know that they mean the same.
    pub name: String,
    /// What should happen.
    pub operation: Operation,
    /// The element type.
    pub dtype: DType,
    /// Where it lies.
    pub place: TensorPlace,
    /// Elements along each dimension; rows are the first. No dimension means a single element.
    pub shape: Vec<usize>,
    /// Travels as a smaller type; only for all-reduces of `f32`.
    pub compression: Option<Compression>,
    /// The requests it completes together with.
    pub bundle: Option<Bundle>,
    /// Refused once a rank has joined, instead of going on without it.
    pub of_all: bool,
    /// What was called, where the name was made from it and from sizes: ranks that wait for ever for different names of
    /// one call disagree about sizes.
    pub call: Option<String>,
    /// Rows that this rank has room for, by sender, where rows are gathered or exchanged; empty if any number will do.
    pub room: Vec<usize>,
}

impl Request {
    /// The request without compression or companions.
    pub fn new(name: impl Into<String>, operation: Operation, dtype: DType, shape: &[usize]) -> Self {
        let (name, shape) = (name.into(), shape.to_vec());
        let (compression, bundle, call, room) = (None, None, None, Vec::new());
        let place = TensorPlace::Host;
        Self { name, operation, dtype, place, shape, compression, bundle, of_all: false, call, room }
    }

    /// The same for a tensor in another memory.
    #[must_use]
    pub fn placed(self, place: TensorPlace) -> Self {
        Self { place, ..self }
    }

    /// The same, travelling as a smaller type.
    #[must_use]
    pub fn compressed(self, compression: Compression) -> Self {
        Self { compression: Some(compression), ..self }
    }

    /// The same, refused once a rank has joined.
    #[must_use]
    pub fn of_all(self) -> Self {
        Self { of_all: true, ..self }
    }

    /// How many elements this rank brings.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many bytes this rank brings.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// Rows of this rank; a tensor without dimensions has one.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Elements of a row.
    pub fn row(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// The type that travels.
    pub fn wire_dtype(&self) -> DType {
        self.compression.map_or(self.dtype, Compression::dtype)
    }

    /// What is wrong as far as this rank alone can see, in words.
    pub fn problem(&self, size: usize) -> Option<String> {
        // An extent of zero must not hide that a row is too large.
        let bytes = self.shape.iter().try_fold(self.dtype.size(), |bytes, &extent| bytes.checked_mul(extent.max(1)));
        let too_large = bytes.is_none_or(|bytes| bytes > LARGEST);
        if self.name.len() > NAME_LIMIT {
            return Some(format!("its name has {} bytes; {NAME_LIMIT} are allowed", self.name.len()));
        }
        if let Some(call) = self.call.as_ref().filter(|call| call.len() > NAME_LIMIT) {
            return Some(format!("its call has {} bytes; {NAME_LIMIT} are allowed", call.len()));
        }
        if let Some(bundle) = self.bundle.as_ref().filter(|bundle| bundle.name.len() > NAME_LIMIT) {
            return Some(format!("its group's name has {} bytes; {NAME_LIMIT} are allowed", bundle.name.len()));
        }
        if too_large {
            return Some(format!("a tensor of shape {:?} is larger than memory can be", self.shape));
        }
        if self.compression.is_some()
            && (self.dtype != DType::F32 || !matches!(self.operation, Operation::AllReduce(_)))
        {
            let (operation, dtype) = (self.operation.describe(), self.dtype.name());
            return Some(format!("only all_reduces of f32 are compressed, not {operation} of {dtype}"));
        }
        if self.compression.is_some() && self.place == TensorPlace::Device {
            return Some("what lies in a GPU's memory is compressed there, before it is handed in".into());
        }
        if !self.room.is_empty() && (self.room.len() != size || !self.operation.has_own_rows()) {
            return Some(format!(
                "room for {:?} rows was given for {} of {size} ranks",
                self.room,
                self.operation.describe()
            ));
        }
        match &self.operation {
            Operation::Broadcast { root } if *root >= size => {
                Some(format!("rank {root} cannot be the root among {size} ranks"))
            }
            Operation::AllToAll { splits } if splits.len() != size || total(splits) != Some(self.rows()) => {
                Some(format!("its {} rows do not split into {splits:?} for {size} ranks", self.rows()))
            }
            Operation::Adasum if !size.is_power_of_two() => {
                Some(format!("adasum needs a power of two of ranks, not {size}"))
            }
            Operation::Adasum if !matches!(self.dtype, DType::F32 | DType::F64) => {
                Some(format!("adasum needs f32 or f64, not {}", self.dtype.name()))
            }
            Operation::ProcessSet { members } if !members.is_sorted_by(|a, b| a < b) || members.is_empty() => {
                Some(format!("the ranks of a process set are ascending, {members:?} are not"))
            }
            Operation::ProcessSet { members } if members.last().is_some_and(|&last| last >= size) => {
                Some(format!("there are {size} ranks, so {members:?} cannot be a process set"))
            }
            _ => None,
        }
    }
}

/// The sum, unless it overflows.
fn total(counts: &[usize]) -> Option<usize> {
    counts.iter().try_fold(0_usize, |sum, &count| sum.checked_add(count))
}

/// Most bytes of a tensor: what an address space can hold, with room for rounding up.
const LARGEST: usize = isize::MAX as usize / 2;

/// Most bytes of a name.
pub const NAME_LIMIT: usize = 4096;

/// Each rank's share when `rows` are dealt out: equal, and the first ranks take one more each while some are left.
pub fn shares(rows: usize, ranks: usize) -> Vec<usize> {
    (0..ranks).map(|rank| rows / ranks + usize::from(rank < rows % ranks)).collect()
}

/// A request as a key in a map, found by its name. Shares the name with the request, because otherwise many ranks with
/// many tensors spend their time copying every name into every map.
#[derive(Debug, Clone)]
pub(crate) struct ByName(pub(crate) Arc<Request>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_rows() {
        assert_eq!(shares(7, 3), [3, 2, 2]);
        assert_eq!(shares(1, 3), [1, 0, 0]);
        assert_eq!(shares(0, 2), [0, 0]);
    }

    #[test]
    fn impossible_requests_are_refused() {
        let problem = |operation, dtype, shape: &[usize]| Request::new("t", operation, dtype, shape).problem(3);
        assert!(problem(Operation::Barrier, DType::U8, &[]).is_none());
        assert!(problem(Operation::Adasum, DType::F32, &[4]).unwrap().contains("power of two"));
        assert!(problem(Operation::Broadcast { root: 3 }, DType::F32, &[4]).unwrap().contains("rank 3"));
        let splits = Operation::AllToAll { splits: vec![1, 1, 1] };
        assert!(problem(splits.clone(), DType::F32, &[4]).unwrap().contains("4 rows"));
        assert!(problem(splits, DType::F32, &[3, 2]).is_none());
        assert!(problem(Operation::Barrier, DType::F64, &[usize::MAX, 2]).unwrap().contains("larger than memory"));
        assert!(problem(Operation::AllGather, DType::F64, &[0, usize::MAX, 2]).unwrap().contains("larger than memory"));
        let members = Operation::ProcessSet { members: vec![1, 3] };
        assert!(problem(members, DType::U8, &[]).unwrap().contains("3 ranks"));
        let compressed = Request::new("t", Operation::AllGather, DType::F32, &[1]).compressed(Compression::F16);
        assert!(compressed.problem(3).unwrap().contains("only all_reduces"));
        let gather = Request::new("t", Operation::AllGather, DType::F32, &[1]);
        assert!(Request { room: vec![1; 2], ..gather.clone() }.problem(3).unwrap().contains("room for [1, 1] rows"));
        assert!(Request { room: vec![1; 3], ..gather }.problem(3).is_none());
    }
}
