//! Memory that a step has used is kept for the next one.
//!
//! The tensors of a training step are large, and the system's allocator hands large pieces back as soon as they are free:
//! the next step pays for every page again, an eighth of the time of a convolutional network. Only glibc has to be told.

/// From now on, freed memory stays with this process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn keep() {
    use std::ffi::c_int;

    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
    /// How much may be free at the end of the heap before it is handed back.
    const TRIM_THRESHOLD: c_int = -1;
    /// From which size on a piece is mapped by itself, and handed back by itself; more than this is not accepted.
    const MMAP_THRESHOLD: c_int = -3;
    // SAFETY: sets two numbers inside the allocator, which guards them itself; refused values change nothing.
    unsafe {
        mallopt(MMAP_THRESHOLD, 32 << 20);
        mallopt(TRIM_THRESHOLD, 1 << 30);
    }
}

/// Nothing to be told.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn keep() {}
