//! Which tensors share one collective. A pure rule over what is ready.
//!
//! Small tensors of the same kind are copied into one buffer. A tensor that is large by itself is not: copying it would
//! cost more than the call it saves.

use serde::{Deserialize, Serialize};

use crate::decide::{
    message::{Batch, Entry},
    request::{Operation, Request, TensorPlace},
};

/// Tensors of this many bytes are fused only for all-reduces, which work in the buffer; for everything else the
/// communicator makes one more copy. Between two ranks that shared memory, 161 broadcasts took 152 ms with all below 1
/// MiB fused and 98 ms with none; the 109 of them below 64 KiB took 1.7 ms fused and 3.5 ms not.
const MOVED_LARGE: usize = 64 << 10;

/// Most tensors of a batch. Together with the longest names they fit into a message.
pub(crate) const MOST_ENTRIES: usize = 4096;

/// Every tensor in a buffer starts at a multiple of this.
pub const ALIGN: usize = 64;

/// The sizes that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Most bytes of a fused batch.
    pub fused: usize,
    /// Tensors of this many bytes are not fused; where nothing is reduced in the buffer, the limit is at most 64 KiB.
    pub large: usize,
}

/// Parts of a step that are reduced one after another, so that most of it is done when the last part comes.
const PARTS: usize = 4;
/// Smaller parts are not worth a call of their own.
const SMALLEST_PART: usize = 1 << 20;

/// On a device, a batch may have this many times as many bytes: copies there cost next to nothing, and NCCL is slower
/// with smaller ones (between two ranks over sockets, 16 MiB took 5.8 ms and 64 MiB 20 ms).
const ON_DEVICE: usize = 4;
/// Most parts of a step on a device, unless a batch would be too large.
const DEVICE_PARTS: u64 = 16;

impl Limits {
    /// Most bytes of a fused batch in this place.
    fn batch(self, place: TensorPlace) -> usize {
        match place {
            TensorPlace::Host => self.fused,
            TensorPlace::Device => self.fused.saturating_mul(ON_DEVICE),
        }
    }

    /// The same for a step that has this many bytes, whose tensors come one by one while others are computed.
    #[must_use]
    pub fn for_step(self, bytes: u64) -> Limits {
        let part = usize::try_from(bytes).map_or(usize::MAX, |bytes| bytes / PARTS);
        Limits { fused: self.fused.min(part.max(SMALLEST_PART)), ..self }
    }
}

/// Bytes of a tensor that travel; for a gathered one, those of all ranks.
fn bytes(request: &Request, rows: &[usize]) -> usize {
    let elements = match request.operation {
        Operation::AllGather => {
            let rows = rows.iter().fold(0, |sum: usize, &rows| sum.saturating_add(rows));
            rows.saturating_mul(request.row())
        }
        _ => request.elements(),
    };
    elements.saturating_mul(request.wire_dtype().size())
}

/// Most bytes that a tensor takes in a buffer, with the rows of [`Entry`].
pub fn room(request: &Request, rows: &[usize]) -> usize {
    bytes(request, rows).checked_next_multiple_of(ALIGN).unwrap_or(usize::MAX)
}

/// Whether a tensor passes through the buffer together with others.
pub fn fusable(request: &Request, rows: &[usize], limits: Limits) -> bool {
    let kind = matches!(
        request.operation,
        Operation::AllReduce(_) | Operation::Broadcast { .. } | Operation::AllGather | Operation::ReduceScatter(_)
    );
    let large = match (request.place, &request.operation) {
        // Copies there cost next to nothing.
        (TensorPlace::Device, _) => usize::MAX,
        (TensorPlace::Host, Operation::AllReduce(_)) => limits.large,
        (TensorPlace::Host, _) => limits.large.min(MOVED_LARGE),
    };
    kind && bytes(request, rows).max(request.bytes()) < large && room(request, rows) <= limits.batch(request.place)
}

/// Whether two tensors may share a batch. Elements that are only moved may have any type.
fn alike(a: &Request, b: &Request) -> bool {
    let same_type = a.dtype == b.dtype && a.compression == b.compression;
    let moved = matches!(a.operation, Operation::Broadcast { .. } | Operation::AllGather);
    a.operation == b.operation && a.place == b.place && (moved || same_type)
}

/// Puts entries into batches. A batch runs at the position of its last entry: where tensors come one by one, it cannot
/// begin earlier, and must not hold up others that can.
pub fn fuse<'a>(entries: impl IntoIterator<Item = (Entry, &'a Request)>, limits: Limits) -> Vec<Batch> {
    // With the position of its last entry.
    let mut batches: Vec<(usize, Batch)> = Vec::new();
    // The newest batch of each kind: what it is, which one, and how full.
    let mut open: Vec<(&Request, usize, usize)> = Vec::new();
    for (place, (entry, request)) in entries.into_iter().enumerate() {
        let needs = room(request, &entry.rows);
        if fusable(request, &entry.rows, limits) {
            if let Some((_, at, used)) = open.iter_mut().find(|(kind, ..)| alike(kind, request)) {
                if *used + needs <= limits.batch(request.place) && batches[*at].1.entries.len() < MOST_ENTRIES {
                    *used += needs;
                    batches[*at].0 = place;
                    batches[*at].1.entries.push(entry);
                } else {
                    (*at, *used) = (batches.len(), needs);
                    batches.push((place, Batch { entries: vec![entry] }));
                }
                continue;
            }
            open.push((request, batches.len(), needs));
        }
        batches.push((place, Batch { entries: vec![entry] }));
    }
    batches.sort_by_key(|(place, _)| *place);
    batches.into_iter().map(|(_, batch)| batch).collect()
}

/// Batches of a step that will be repeated; `begins` are the positions at which something came later than what is before
/// it. On the host, tensors are put together as if they came one by one. On a device they come in groups, and a batch
/// that needed tensors of two groups would begin later than it could.
pub(crate) fn fuse_step(entries: Vec<(Entry, &Request)>, begins: &[usize], limits: Limits) -> Vec<Batch> {
    let bytes = entries.iter().fold(0_u64, |sum, (_, request)| sum.saturating_add(request.bytes() as u64));
    if entries.iter().all(|(_, request)| request.place == TensorPlace::Host) {
        return fuse(entries, limits.for_step(bytes));
    }
    let (mut batches, mut part, mut size) = (Vec::new(), Vec::new(), 0_u64);
    for (position, (entry, request)) in entries.into_iter().enumerate() {
        if size > 0 && size >= bytes / DEVICE_PARTS && begins.binary_search(&position).is_ok() {
            batches.extend(fuse(part.drain(..), limits));
            size = 0;
        }
        size = size.saturating_add(request.bytes() as u64);
        part.push((entry, request));
    }
    batches.extend(fuse(part, limits));
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
    fn what_is_only_moved_may_have_any_type() {
        let limits = Limits { fused: 1024, large: 512 };
        let wish = |operation: &Operation, dtype| (Request::new("t", operation.clone(), dtype, &[4]), vec![1, 30]);
        let broadcast = |root| Operation::Broadcast { root };
        let (scatter, barrier) = (Operation::ReduceScatter(Reduction::SUM), Operation::Barrier);
        let wishes = [
            wish(&broadcast(0), DType::F32),
            wish(&broadcast(1), DType::F32),
            wish(&broadcast(0), DType::I64),
            wish(&Operation::AllGather, DType::F64),
            wish(&Operation::AllGather, DType::Bool),
            wish(&scatter, DType::F32),
            wish(&scatter, DType::I32),
            wish(&scatter, DType::F32),
            wish(&barrier, DType::U8),
            wish(&barrier, DType::U8),
        ];
        let entries = wishes
            .iter()
            .enumerate()
            .map(|(id, (request, rows))| (Entry { id: id as u32, define: None, rows: rows.clone() }, request));
        let ids = |batch: &Batch| batch.entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
        let batches: Vec<Vec<u32>> = fuse(entries, limits).iter().map(ids).collect();
        assert_eq!(batches, [vec![1], vec![0, 2], vec![3, 4], vec![6], vec![5, 7], vec![8], vec![9]]);
        let (gather, rows) = wish(&Operation::AllGather, DType::F64);
        assert_eq!(room(&gather, &rows), 256, "all ranks' rows count");
        assert!(!fusable(&gather, &[100], limits) && room(&gather, &[usize::MAX, 2]) == usize::MAX);
    }

    #[test]
    fn what_came_together_on_a_device_stays_together() {
        let limits = Limits { fused: 64 << 10, large: 128 };
        let step = |place, begins: &[usize]| {
            let elements = [1000, 100, 1, 1, 3000, 3000, 10];
            let requests = elements.map(|count| tensor(count, DType::F32, Reduction::SUM).placed(place));
            let entries = requests
                .iter()
                .enumerate()
                .map(|(id, request)| (Entry { id: id as u32, define: None, rows: Vec::new() }, request))
                .collect();
            let batches = fuse_step(entries, begins, limits);
            batches.iter().map(|batch| batch.entries.iter().map(|entry| entry.id).collect()).collect::<Vec<Vec<_>>>()
        };
        assert_eq!(step(TensorPlace::Device, &[0, 2, 4]), [vec![0, 1], vec![2, 3, 4, 5, 6]], "too small for a batch");
        assert_eq!(step(TensorPlace::Device, &[0, 5, 6]), [vec![0, 1, 2, 3, 4], vec![5], vec![6]]);
        assert_eq!(step(TensorPlace::Device, &[]), [vec![0, 1, 2, 3, 4, 5, 6]]);
        assert_eq!(step(TensorPlace::Host, &[0, 2]), [vec![0], vec![1], vec![4], vec![5], vec![2, 3, 6]]);
    }

    #[test]
    fn places_do_not_mix_and_on_a_device_large_tensors_go_together() {
        let limits = Limits { fused: 256, large: 128 };
        let host = tensor(16, DType::F32, Reduction::SUM);
        let device = tensor(100, DType::F32, Reduction::SUM).placed(TensorPlace::Device);
        let huge = tensor(300, DType::F32, Reduction::SUM).placed(TensorPlace::Device);
        let requests = [host.clone(), device.clone(), host, device, huge];
        assert_eq!(sizes(&requests, limits), [vec![0, 2], vec![1, 3], vec![4]]);
    }

    #[test]
    fn a_step_is_reduced_in_parts() {
        let limits = Limits { fused: 16 << 20, large: 1 << 20 };
        let fused = |mib: u64| limits.for_step(mib << 20).fused >> 20;
        assert_eq!([1, 4, 13, 100].map(fused), [1, 1, 3, 16]);
        assert_eq!(limits.for_step(1).large, limits.large);
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
        assert_eq!(sizes(&requests, limits), [vec![1], vec![2], vec![3], vec![0, 4, 5, 6], vec![7]]);
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
            prop_assert!(batches.iter().map(|batch| batch.last()).is_sorted(), "nobody waits for a later one");
            all.sort_unstable();
            prop_assert_eq!(all, (0..requests.len() as u32).collect::<Vec<_>>());
            for batch in batches {
                let members: Vec<&Request> = batch.iter().map(|&id| &requests[id as usize]).collect();
                prop_assert!(members.iter().all(|request| alike(request, members[0])));
                let bytes: usize = members.iter().map(|request| room(request, &[])).sum();
                prop_assert!(members.len() == 1 || (bytes <= fused && members.iter().all(|r| r.bytes() < large)));
            }
        }
    }
}
