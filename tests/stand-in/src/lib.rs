//! A test double of the CUDA driver, of NCCL and of NVIDIA's management library, so that loading, error paths, aborts and
//! the order of queued work can be tested without a GPU. It has no other use: it is not part of any package, and it is
//! slow.
//!
//! Device memory is ordinary memory. A stream is a thread with a queue, so work really is executed later and in order.
//! Ranks of a communicator may be threads or processes; they share memory without a name, so a process that is killed
//! leaves nothing behind. What is undefined with the real libraries is an error here if it can be detected: memory that
//! is too short or unknown, collectives that do not match, a missing context.
//!
//! | variable | meaning |
//! |---|---|
//! | `STAND_IN_DEVICES` | how many devices there are; 8 |
//! | `STAND_IN_KERNELS` | 1: the driver takes kernels |
//! | `STAND_IN_PEERS` | 0: no device can open the memory of another one |
//! | `STAND_IN_NCCL_VERSION` | the version that NCCL claims to have; 22809 |
//! | `STAND_IN_NCCL_LAZY` | 1: the first call of a communicator returns when all ranks have made it |
//! | `STAND_IN_NCCL_FAIL` | the call of each communicator, counted from 1, that fails with `ncclSystemError` |
//! | `STAND_IN_NCCL_FAIL_LATER` | the same, but the call succeeds and the failure shows afterwards |
//!
//! The libraries keep state between calls that have no other place for it, hence the statics.

mod collective;
mod comm;
mod device;
mod event;
mod group;
mod kernel;
mod memory;
mod nccl;
mod number;
mod nvml;
mod segment;
mod shared;
mod status;
mod stream;
mod table;
mod transfer;

/// The number in a variable, if there is one.
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What a mutex guards; a panic elsewhere has been reported already.
fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
