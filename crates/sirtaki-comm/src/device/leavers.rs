//! How many other ranks have left a rank's device memory, in memory that their processes share: freeing device memory
//! that another process has open is undefined, and a rank that leaves does not know whether the others ever will.
//!
//! Rejected: a meeting of all ranks. One that leaves early, which others may not notice for hours, would wait for them.

use std::sync::atomic::{AtomicU32, Ordering};

use super::IpcHandle;
use crate::shm::Segment;

const BYTES: usize = size_of::<AtomicU32>();

/// The number of those that have left; where memory cannot be shared, nobody ever counts as having left.
pub(super) struct Leavers(Option<Segment>);

impl Leavers {
    /// Of my own memory, and how others find it.
    pub(super) fn create() -> (Self, IpcHandle) {
        let mut handle = [0; size_of::<IpcHandle>()];
        let segment = Segment::create(BYTES).ok();
        if let Some((pid, descriptor)) = segment.as_ref().map(Segment::address) {
            handle[..4].copy_from_slice(&pid.to_le_bytes());
            handle[4..8].copy_from_slice(&descriptor.to_le_bytes());
        }
        (Self(segment), handle)
    }

    /// Of another rank's memory.
    pub(super) fn open(handle: &IpcHandle) -> Self {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| handle[at + byte]));
        let pid = word(0);
        Self((pid != 0).then(|| Segment::open(pid, word(4) as i32, BYTES).ok()).flatten())
    }

    fn number(&self) -> Option<&AtomicU32> {
        // SAFETY: the segment begins at a page, has room for the number, and is used in no other way.
        self.0.as_ref().map(|segment| unsafe { &*segment.start().cast::<AtomicU32>() })
    }

    /// I have left.
    pub(super) fn leave(&self) {
        if let Some(number) = self.number() {
            number.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many have left.
    pub(super) fn count(&self) -> u32 {
        self.number().map_or(0, |number| number.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_leave_are_counted() {
        let (own, handle) = Leavers::create();
        let (one, other) = (Leavers::open(&handle), Leavers::open(&handle));
        assert_eq!(own.count(), 0);
        one.leave();
        other.leave();
        assert_eq!(own.count(), 2);
        let nobody = Leavers::open(&[0; 64]);
        nobody.leave();
        assert_eq!(nobody.count(), 0);
    }
}
