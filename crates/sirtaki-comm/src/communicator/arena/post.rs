//! What a rank announces when it enters an operation.
//!
//! Two posts are used alternately. A rank writes one only after all ranks have entered the operation before, that is,
//! after all have finished reading it two operations ago; the loom model below tries every interleaving.

use crate::{
    shm::{
        Signal,
        sync::{AtomicU64, Ordering},
    },
    signature::Signature,
};

/// Bytes that travel in the announcement itself.
pub(super) const INLINE: usize = 32;

/// The bytes of an announcement, aligned for any element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(32))]
pub(super) struct Inline(pub(super) [u8; INLINE]);

/// An announcement. One cache line, so that a small operation moves one line; on a pair of lines of its own, because
/// processors tend to fetch pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Post {
    /// Number of the operation; set last.
    pub(super) number: Signal,
    signature: [AtomicU64; Signature::SIZE / 8],
    inline: [AtomicU64; INLINE / 8],
}

impl Post {
    /// Announces operation `number`.
    #[inline]
    pub(super) fn write(&self, number: u32, call: &Signature, inline: &[u8]) {
        store(&self.signature, &call.encode());
        store(&self.inline, inline);
        self.number.set(number);
    }

    /// The call that was announced.
    #[inline]
    pub(super) fn call(&self) -> Signature {
        let mut bytes = [0; Signature::SIZE];
        load(&self.signature, &mut bytes);
        Signature::decode(&bytes)
    }

    /// The bytes that were announced along with it.
    #[inline]
    pub(super) fn inline(&self) -> Inline {
        let mut bytes = Inline([0; INLINE]);
        load(&self.inline, &mut bytes.0);
        bytes
    }
}

#[inline]
fn store(places: &[AtomicU64], bytes: &[u8]) {
    for (place, chunk) in places.iter().zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        place.store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
}

#[inline]
fn load(places: &[AtomicU64], bytes: &mut [u8]) {
    for (place, chunk) in places.iter().zip(bytes.chunks_mut(8)) {
        chunk.copy_from_slice(&place.load(Ordering::Relaxed).to_ne_bytes());
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::{sync::Arc, thread};

    use super::*;
    use crate::{DType, signature::Kind};

    /// Two ranks enter three operations; each must see what the other announced for this one, never for another.
    #[test]
    fn nobody_reads_the_announcement_of_another_operation() {
        loom::model(|| {
            let lanes = Arc::new([[Post::default(), Post::default()], [Post::default(), Post::default()]]);
            let other = {
                let lanes = lanes.clone();
                thread::spawn(move || enter_three(&lanes, 1))
            };
            enter_three(&lanes, 0);
            other.join().expect("the other rank does not panic");
        });
    }

    fn enter_three(lanes: &[[Post; 2]; 2], rank: usize) {
        for number in 1..=3 {
            let call = Signature::new(Kind::Barrier, DType::U8, number as usize);
            lanes[rank][number as usize % 2].write(number, &call, &number.to_ne_bytes());
            let theirs = &lanes[1 - rank][number as usize % 2];
            while theirs.number.get() != number {
                thread::yield_now();
            }
            assert_eq!(theirs.call(), call);
            assert_eq!(theirs.inline().0[..4], number.to_ne_bytes());
        }
    }
}
