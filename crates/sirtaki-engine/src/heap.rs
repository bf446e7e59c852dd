//! Keeps memory that a step has used for the next one.
//!
//! The tensors of a training step are large, and the system's allocator returns large pieces as soon as they are free:
//! the next step pays for every page again, an eighth of the time of a convolutional network and a quarter of that of
//! large layers. Only glibc has to be told.

/// Variables by which people tune the allocator themselves; if one is set, it is left alone.
const TUNED: [&str; 4] = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"];

/// The same for the number of heaps.
const HEAPS_TUNED: [&str; 2] = ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"];

/// From now on, freed memory stays with this process, unless a piece is very large.
pub fn keep() {
    if is_untouched(&TUNED) {
        glibc::keep();
    }
}

/// From now on, threads that start use the heap of the main thread.
///
/// Otherwise they have heaps of their own, of at most 64 MiB each: a larger piece is mapped and returned by itself,
/// whatever [`keep`] has asked for. That is for frameworks that compute a whole step in one piece of memory in a thread
/// of theirs; many threads that allocate at the same time would wait for each other.
pub fn share() {
    if is_untouched(&HEAPS_TUNED) {
        glibc::share();
    }
}

fn is_untouched(variables: &[&str]) -> bool {
    variables.iter().all(|name| std::env::var_os(name).is_none())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;

    unsafe extern "C" {
        fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }

    /// How much may be free at the end of the heap before it is returned.
    const TRIM_THRESHOLD: c_int = -1;
    /// The size from which a piece is mapped, and returned, by itself.
    const MMAP_THRESHOLD: c_int = -3;
    /// How many heaps there may be.
    const ARENA_MAX: c_int = -8;

    pub(super) fn keep() {
        // SAFETY: sets numbers inside the allocator, which guards them itself; refused values change nothing.
        unsafe {
            // Older versions do not accept more than 32 MiB.
            if mallopt(MMAP_THRESHOLD, 256 << 20) == 0 {
                mallopt(MMAP_THRESHOLD, 32 << 20);
            }
            mallopt(TRIM_THRESHOLD, 1 << 30);
        }
    }

    pub(super) fn share() {
        // SAFETY: as above.
        unsafe { mallopt(ARENA_MAX, 1) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod glibc {
    pub(super) fn keep() {}

    pub(super) fn share() {}
}
