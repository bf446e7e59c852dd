//! Borrowing stretches of the shared segment as slices.
//!
//! The protocols of this module guarantee that a stretch is written by one rank while nobody else looks at it, and only
//! read while nobody writes it; each caller says why. Everything unsafe about the data sits here.

use super::room::Room;
use crate::Rank;

/// Bytes `from..from + length` of `rank`'s region, to read.
///
/// # Safety
/// No rank may write them while the slice lives.
pub(super) unsafe fn read(room: &Room, rank: Rank, from: usize, length: usize) -> &[u8] {
    assert!(from + length <= room.layout.region);
    let start = room.at(room.layout.region(rank) + from);
    // SAFETY: inside the region by the check above; nobody writes by the caller's promise.
    unsafe { std::slice::from_raw_parts(start, length) }
}

/// Bytes `from..from + length` of `rank`'s region, to write.
///
/// # Safety
/// No other rank may look at them, and this one through no other slice, while the slice lives.
#[allow(clippy::mut_from_ref)]
pub(super) unsafe fn write(room: &Room, rank: Rank, from: usize, length: usize) -> &mut [u8] {
    assert!(from + length <= room.layout.region);
    let start = room.at(room.layout.region(rank) + from);
    // SAFETY: inside the region by the check above; exclusive by the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(start, length) }
}
