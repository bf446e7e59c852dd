//! Whether ranks see in each other's device memory what was written there. Drivers let memory of another device be opened
//! on machines where reading it gives something else, for example behind some switches and in some virtual machines, so
//! one number goes through the memory of each rank before anything relies on it.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    gpu::{Event, Gpu, Stream},
    memory::{DeviceMemory, PinnedMemory},
};
use crate::{CommError, DType, Rank};

/// Plus the rank, what is written: a number that memory does not hold by accident.
const MARK: u64 = 0x5e1f_7a3d_90c2_46b1;
const BYTES: usize = size_of::<u64>();
/// How long the device may take.
const LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_micros(50);

/// Writes my mark to the beginning of my memory, and records that in an event.
pub(super) fn write(gpu: &Arc<Gpu>, memory: &DeviceMemory, rank: Rank, written: &Event) -> Result<(), CommError> {
    let stream = gpu.stream(false)?;
    let mut mark = PinnedMemory::new(gpu, BYTES)?;
    mark[..BYTES].copy_from_slice(&MARK.wrapping_add(rank as u64).to_ne_bytes());
    mark.copy_to(0, memory.view(0, DType::U8, BYTES)?, &stream)?;
    stream.record_in(written)?;
    finish(&stream)
}

/// An error unless the memory of another rank begins with its mark, once it has written that.
pub(super) fn read(gpu: &Arc<Gpu>, memory: &DeviceMemory, rank: Rank, written: &Event) -> Result<(), CommError> {
    let stream = gpu.stream(false)?;
    let mut mark = PinnedMemory::new(gpu, BYTES)?;
    stream.wait(written)?;
    mark.copy_from(0, memory.view(0, DType::U8, BYTES)?, &stream)?;
    finish(&stream)?;
    if mark[..BYTES] == MARK.wrapping_add(rank as u64).to_ne_bytes() {
        return Ok(());
    }
    let problem = format!("{gpu:?} reads something else in the memory of rank {rank} than that rank wrote");
    Err(CommError::Device { problem })
}

/// Waits until a stream has done everything.
fn finish(stream: &Stream) -> Result<(), CommError> {
    let deadline = Instant::now() + LIMIT;
    while !stream.is_done()? {
        if Instant::now() >= deadline {
            let problem = format!("{:?} does not finish a copy of {BYTES} bytes", stream.gpu());
            return Err(CommError::Device { problem });
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
