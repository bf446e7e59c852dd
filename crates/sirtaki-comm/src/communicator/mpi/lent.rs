//! Memory that is lent to MPI while a request is under way.
//!
//! MPI keeps its address and writes or reads it behind our back. A `Box` or a slice promises anew, every time it is
//! moved, that nobody does that, so the memory is held by its address alone until the request is done. Memory that
//! never comes back, because the request failed, is never returned to the system: dropping this leaks.

use std::ptr::NonNull;

/// Some bytes on the heap.
pub(super) struct Lent(NonNull<[u8]>);

// SAFETY: like those of a box, the bytes have one owner, this value.
unsafe impl Send for Lent {}

impl Lent {
    /// Lends these bytes.
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(NonNull::from(Box::leak(bytes.into_boxed_slice())))
    }

    /// Where they are.
    pub(super) fn start(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes.
    ///
    /// # Safety
    /// No request may use them.
    pub(super) unsafe fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated in `new` and not freed, by the promise of `back`; exclusive by the caller's promise.
        unsafe { self.0.as_mut() }
    }

    /// Takes them back.
    ///
    /// # Safety
    /// No request may use them, now or later.
    pub(super) unsafe fn back(self) -> Box<[u8]> {
        // SAFETY: made by `Box::leak` and, as this consumes the value, taken back once.
        unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Lent;

    #[test]
    fn what_is_written_by_address_is_there_when_it_comes_back() {
        let lent = Lent::new(vec![1, 2, 3]);
        let address = lent.start();
        let mut moved = vec![lent];
        // SAFETY: inside the three bytes, which nobody has borrowed.
        unsafe { address.add(1).write(7) };
        let mut lent = moved.remove(0);
        assert_eq!((lent.len(), lent.start()), (3, address));
        // SAFETY: there is no request.
        assert_eq!(unsafe { lent.bytes() }, [1, 7, 3]);
        // SAFETY: as above.
        assert_eq!(unsafe { lent.back() }[..], [1, 7, 3]);
    }
}
