//! Streams, events and both kinds of memory.

use std::sync::Arc;

use sirtaki_comm::{
    DType,
    device::{DeviceMemory, Gpu, PinnedMemory},
};

use crate::{Outcome, finish};

const BYTES: usize = 1 << 20;

pub(crate) fn check(gpu: &Arc<Gpu>) -> Outcome {
    let (first, second) = (gpu.stream(true)?, gpu.stream(false)?);
    let mut host = PinnedMemory::new(gpu, BYTES)?;
    assert!(host.iter().all(|byte| *byte == 0), "pinned memory is zeroed");
    host.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
    let (a, mut b) = (DeviceMemory::new(gpu, BYTES)?, DeviceMemory::on_stream(&first, BYTES)?);
    let (a_all, b_all) = (a.view(0, DType::U8, BYTES)?, b.view(0, DType::U8, BYTES)?);

    host.copy_to(0, a_all, &first)?;
    first.copy(b_all, a_all)?;
    first.clear(a_all.part(0, 100))?;
    let copied = first.record()?;
    second.wait(&copied)?;
    let mut back = PinnedMemory::new(gpu, 2 * BYTES)?;
    back.copy_from(0, a_all, &second)?;
    back.copy_from(BYTES, b_all, &second)?;
    finish(&second)?;
    assert!(copied.is_past()? && first.is_done()?, "what was waited for is past");
    assert!(back[..100].iter().all(|byte| *byte == 0), "cleared");
    assert!(back[100..BYTES] == host[100..] && back[BYTES..] == host[..], "copied");

    let shared = gpu.shared_event()?;
    second.record_in(&shared.0)?;
    finish(&second)?;
    assert!(shared.0.is_past()? && shared.1 != [0; 64], "an event to share");
    assert!(a.share()? != [0; 64], "memory to share");
    assert!(a.view(BYTES - 3, DType::F32, 1).is_err(), "elements beyond the end");
    assert!(a.view(1, DType::F32, 1).is_err(), "an address that is not a multiple of the size");
    assert!(first.copy(a_all.part(0, 1), a_all.part(0, 2)).is_err(), "copies of different sizes");
    assert!(back.copy_from(2 * BYTES, a_all.part(0, 1), &first).is_err(), "bytes beyond the end");
    b.free_on(&second);
    finish(&second)?;
    println!("streams, events and memory: ok");
    Ok(())
}
