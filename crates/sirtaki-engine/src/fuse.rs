//! Which tensors go through one collective. A pure rule over what is ready.
//!
//! Small all-reduces of the same kind are copied into one buffer. A tensor that is large by itself is not: copying it
//! would cost more than the call it saves.

use crate::{
    message::{Batch, Entry},
    request::{Operation, Request},
};

/// Every tensor in a buffer starts at a multiple of this.
pub const ALIGN: usize = 64;

/// The sizes that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a fused batch at most.
    pub fused: usize,
    /// Tensors of this many bytes are not fused.
    pub large: usize,
}

/// Bytes that a tensor takes in a buffer.
pub fn room(request: &Request) -> usize {
    (request.elements() * request.wire_dtype().size()).next_multiple_of(ALIGN)
}

/// Whether a tensor passes through the buffer together with others.
pub fn fusable(request: &Request, limits: Limits) -> bool {
    matches!(request.operation, Operation::AllReduce(_))
        && request.bytes() < limits.large
        && room(request) <= limits.fused
}

/// Whether two tensors may share a batch.
fn alike(a: &Request, b: &Request) -> bool {
    a.operation == b.operation && a.dtype == b.dtype && a.compression == b.compression
}

/// Puts entries into batches. A batch runs at the place of its first entry.
pub fn fuse<'a>(entries: impl IntoIterator<Item = (Entry, &'a Request)>, limits: Limits) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    // The newest batch of each kind: what it is, which one, and how full.
    let mut open: Vec<(&Request, usize, usize)> = Vec::new();
    for (entry, request) in entries {
        let needs = room(request);
        if fusable(request, limits) {
            if let Some((_, at, used)) = open.iter_mut().find(|(kind, ..)| alike(kind, request)) {
                if *used + needs <= limits.fused {
                    *used += needs;
                    batches[*at].entries.push(entry);
                } else {
                    (*at, *used) = (batches.len(), needs);
                    batches.push(Batch { entries: vec![entry] });
                }
                continue;
            }
            open.push((request, batches.len(), needs));
        }
        batches.push(Batch { entries: vec![entry] });
    }
    batches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sirtaki_comm::{DType, Reduction};

    use super::*;

    fn tensor(elements: usize, dtype: DType, reduction: Reduction) -> Request {
        Request::new("t", Operation::AllReduce(reduction), dtype, &[elements])
    }

    fn sizes(requests: &[Request], limits: Limits) -> Vec<Vec<u32>> {
        let entries = requests
            .iter()
            .enumerate()
            .map(|(id, request)| (Entry { id: id as u32, define: None, rows: Vec::new() }, request));
        fuse(entries, limits).iter().map(|batch| batch.entries.iter().map(|entry| entry.id).collect()).collect()
    }

    #[test]
    fn like_goes_with_like_and_large_goes_alone() {
        let limits = Limits { fused: 256, large: 128 };
        let requests = [
            tensor(16, DType::F32, Reduction::SUM),
            tensor(32, DType::F32, Reduction::SUM),
            tensor(8, DType::F64, Reduction::SUM),
            tensor(16, DType::F32, Reduction::AVERAGE),
            tensor(1, DType::F32, Reduction::SUM),
            tensor(16, DType::F32, Reduction::SUM),
            tensor(16, DType::F32, Reduction::SUM),
            tensor(16, DType::F32, Reduction::SUM),
        ];
        assert_eq!(sizes(&requests, limits), [vec![0, 4, 5, 6], vec![1], vec![2], vec![3], vec![7]]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_batch_is_too_large(
            tensors in prop::collection::vec((0_usize..300, 0_usize..2, 0_usize..2), 0..60),
            fused in 64_usize..2000,
            large in 1_usize..1000,
        ) {
            let limits = Limits { fused, large };
            let requests: Vec<Request> = tensors
                .iter()
                .map(|&(elements, dtype, mean)| {
                    let dtype = [DType::F32, DType::F64][dtype];
                    tensor(elements, dtype, [Reduction::SUM, Reduction::AVERAGE][mean])
                })
                .collect();
            let batches = sizes(&requests, limits);
            let mut all: Vec<u32> = batches.iter().flatten().copied().collect();
            prop_assert!(batches.iter().all(|batch| batch.is_sorted()));
            all.sort_unstable();
            prop_assert_eq!(all, (0..requests.len() as u32).collect::<Vec<_>>());
            for batch in batches {
                let members: Vec<&Request> = batch.iter().map(|&id| &requests[id as usize]).collect();
                prop_assert!(members.iter().all(|request| alike(request, members[0])));
                let bytes: usize = members.iter().map(|request| room(request)).sum();
                prop_assert!(members.len() == 1 || (bytes <= fused && members.iter().all(|r| r.bytes() < large)));
            }
        }
    }
}
