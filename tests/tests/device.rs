//! Streams, events and memory of devices, with the stand-in for the CUDA driver.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{env, path::Path, process::Stdio, sync::Arc};

use sirtaki_comm::{
    DType,
    device::{DeviceMemory, Driver, Event, Gpu, IpcHandle, PinnedMemory},
};
use sirtaki_tests::{
    data::Data,
    stand_in::{Barrier, Killed, alone, another, download, finish, gpu, library, turn, upload},
    wait,
};

#[test]
fn the_driver_says_what_there_is() {
    let _turn = turn();
    let driver = Driver::load(Some(&library())).unwrap();
    assert_eq!((driver.version().as_str(), driver.count().unwrap()), ("12.4", 8));
    let (first, second) = (gpu(0), gpu(1));
    assert_eq!((first.name(), first.number(), second.number()), ("stand-in", 0, 1));
    assert_ne!(first.uuid(), second.uuid());
    assert_eq!(first.uuid(), gpu(0).uuid());
    assert!(first.reaches(&second));
    let error = Gpu::open(driver, 99).unwrap_err().to_string();
    assert!(error.contains("cannot find cuda:99: invalid device ordinal (error 101)"), "{error}");
}

#[test]
fn a_machine_without_devices_has_none() {
    if alone("a_machine_without_devices_has_none", &[("STAND_IN_DEVICES", "0")]) {
        let driver = Driver::load(Some(&library())).unwrap();
        assert_eq!(driver.count().unwrap(), 0);
        assert!(Gpu::open(driver, 0).is_err());
    }
}

#[test]
fn a_library_that_is_not_the_driver_is_refused() {
    if alone("a_library_that_is_not_the_driver_is_refused", &[]) {
        let error = Driver::load(Some(Path::new("libc.so.6"))).unwrap_err().to_string();
        assert!(error.contains("the CUDA driver") && error.contains("cuInit"), "{error}");
    }
}

#[test]
fn a_driver_that_is_not_there_is_named() {
    if alone("a_driver_that_is_not_there_is_named", &[]) {
        let error = Driver::load(Some(Path::new("/nowhere/libcuda.so.1"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere/libcuda.so.1"), "{error}");
    }
}

#[test]
fn a_stream_that_is_captured_for_a_graph_is_refused() {
    if alone("a_stream_that_is_captured_for_a_graph_is_refused", &[("STAND_IN_CAPTURE", "1")]) {
        let gpu = gpu(0);
        // SAFETY: it is the default stream, which exists as long as the process.
        let captured = unsafe { gpu.foreign_stream(0) };
        let error = captured.refuse_capture().unwrap_err().to_string();
        assert!(error.contains("CUDA graph") && error.contains("hint: "), "{error}");
        gpu.stream(false).unwrap().refuse_capture().unwrap();
    }
}

#[test]
fn streams_wait_for_events_of_others() {
    let _turn = turn();
    let gpu = gpu(0);
    let (first, second) = (gpu.stream(false).unwrap(), gpu.stream(true).unwrap());
    let (_from, source) = upload(&Data::new(DType::I32, &[7.0, 8.0]), &first);
    let (_to, target) = upload(&Data::zeros(DType::I32, 2), &second);
    let barrier = Barrier::new(&first);
    let event = first.record().unwrap();
    second.wait(&event).unwrap();
    second.copy(target, source).unwrap();
    let after = second.record().unwrap();
    assert!(!event.is_past().unwrap() && !after.is_past().unwrap());
    assert!(!first.is_done().unwrap() && !second.is_done().unwrap());
    barrier.open();
    finish(&second);
    assert!(event.is_past().unwrap() && after.is_past().unwrap());
    assert_eq!(download(target, &second).numbers(), [7.0, 8.0]);
}

#[test]
fn an_event_means_what_was_recorded_last_before_the_call() {
    let _turn = turn();
    let gpu = gpu(0);
    let (first, second, third) = (gpu.stream(false).unwrap(), gpu.stream(false).unwrap(), gpu.stream(false).unwrap());
    let event = first.record().unwrap();
    wait::until("the event", || event.is_past().unwrap());
    let barrier = Barrier::new(&first);
    second.wait(&event).unwrap();
    first.record_in(&event).unwrap();
    third.wait(&event).unwrap();
    // The second was told to wait before the event was recorded again.
    finish(&second);
    assert!(!event.is_past().unwrap() && !third.is_done().unwrap());
    barrier.open();
    finish(&third);
    assert!(event.is_past().unwrap());
}

#[test]
fn events_are_used_again_without_mixing_them_up() {
    let _turn = turn();
    let gpu = gpu(0);
    let (first, second) = (gpu.stream(false).unwrap(), gpu.stream(false).unwrap());
    let barrier = Barrier::new(&first);
    // The second waits for the first, although the event is given back at once and means something else afterwards.
    second.wait(&first.record().unwrap()).unwrap();
    let third = gpu.stream(false).unwrap();
    let again = third.record().unwrap();
    wait::until("the event of an idle stream", || again.is_past().unwrap());
    assert!(!second.is_done().unwrap());
    barrier.open();
    finish(&second);
}

#[test]
fn what_is_kept_goes_when_the_event_is_past() {
    let _turn = turn();
    let gpu = gpu(0);
    let stream = gpu.stream(false).unwrap();
    let barrier = Barrier::new(&stream);
    let event = Arc::new(stream.record().unwrap());
    let kept = Arc::new(());
    event.keep_until_past(Box::new(kept.clone()));
    event.keep_until_past(Box::new(()));
    assert_eq!(Arc::strong_count(&kept), 2);
    barrier.open();
    wait::until("the event", || event.is_past().unwrap());
    event.keep_until_past(Box::new(()));
    assert_eq!(Arc::strong_count(&kept), 1);
}

#[test]
fn memory_is_copied_cleared_and_looked_at_in_parts() {
    let _turn = turn();
    let gpu = gpu(0);
    let stream = gpu.stream(false).unwrap();
    let numbers: Vec<f64> = (0..1000).map(f64::from).collect();
    let (_memory, view) = upload(&Data::new(DType::F32, &numbers), &stream);
    let other = DeviceMemory::new(&gpu, 4000).unwrap();
    let copy = other.view(0, DType::F32, 1000).unwrap();
    stream.copy(copy, view).unwrap();
    stream.clear(copy.part(10, 990)).unwrap();
    let got = download(copy, &stream).numbers();
    assert_eq!((&got[..10], &got[990..]), (&numbers[..10], &numbers[990..]));
    assert!(got[10..990].iter().all(|number| *number == 0.0));
    assert_eq!(download(view, &stream).numbers(), numbers);
}

#[test]
fn memory_that_is_too_short_is_an_error() {
    let _turn = turn();
    let gpu = gpu(0);
    let stream = gpu.stream(false).unwrap();
    let memory = DeviceMemory::new(&gpu, 100).unwrap();
    assert!(memory.view(0, DType::F64, 12).is_ok());
    let error = memory.view(8, DType::F64, 12).unwrap_err().to_string();
    assert!(error.contains("12 f64 at 8 do not fit into 100 bytes"), "{error}");
    assert!(memory.view(4, DType::F64, 1).is_err(), "an address that is no multiple of the size");
    assert!(memory.view(0, DType::F64, usize::MAX).is_err());
    let mut pinned = PinnedMemory::new(&gpu, 10).unwrap();
    let view = memory.view(0, DType::U8, 10).unwrap();
    assert!(pinned.copy_to(1, view, &stream).is_err());
    assert!(pinned.copy_from(usize::MAX, view, &stream).is_err());
    assert!(stream.copy(view, memory.view(0, DType::U8, 11).unwrap()).is_err());
    assert!(DeviceMemory::new(&gpu, usize::MAX / 2).unwrap_err().to_string().contains("on cuda:0"));
}

/// How many bytes of memory the process uses.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn memory_goes_back_in_the_order_of_its_stream() {
    const BYTES: usize = 256 << 20;
    // In a process of its own, because it looks at how much memory the process uses.
    if !alone("memory_goes_back_in_the_order_of_its_stream", &[]) {
        return;
    }
    let gpu = gpu(0);
    let stream = gpu.stream(false).unwrap();
    let barrier = Barrier::new(&stream);
    let before = resident();
    let is_reserved = || resident() > before + BYTES / 2;
    let memory = DeviceMemory::on_stream(&stream, BYTES).unwrap();
    stream.clear(memory.view(0, DType::U8, BYTES).unwrap()).unwrap();
    drop(memory);
    assert!(is_reserved(), "it was freed before the stream was past its use");
    barrier.open();
    finish(&stream);
    assert!(!is_reserved(), "it was not freed");

    let memory = DeviceMemory::on_stream(&stream, BYTES).unwrap();
    drop(stream);
    drop(memory);
    wait::until("memory whose stream went first", || !is_reserved());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn handle(name: &str) -> IpcHandle {
    let text = env::var(name).unwrap();
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

/// What the other process does: it has its stream wait for the event, says so, and copies afterwards.
fn other_process(gpu: &Arc<Gpu>) {
    let memory = DeviceMemory::open(gpu, handle("TEST_MEMORY"), 8).unwrap();
    let event = gpu.open_event(handle("TEST_EVENT")).unwrap();
    assert!(!event.is_past().unwrap());
    let (waiting, stream) = (gpu.stream(false).unwrap(), gpu.stream(false).unwrap());
    let parts: Vec<_> = (0..4).map(|i| memory.view(2 * i, DType::U8, 2).unwrap()).collect();
    waiting.wait(&event).unwrap();
    waiting.copy(parts[1], parts[0]).unwrap();
    stream.copy(parts[3], parts[2]).unwrap();
    finish(&waiting);
    assert!(event.is_past().unwrap());
}

#[test]
fn processes_share_memory_and_events() {
    let _turn = turn();
    let test = "processes_share_memory_and_events";
    let gpu = gpu(0);
    if env::var("TEST_MEMORY").is_ok() {
        return other_process(&gpu);
    }
    let stream = gpu.stream(false).unwrap();
    let memory = DeviceMemory::new(&gpu, 8).unwrap();
    let view = memory.view(0, DType::U8, 8).unwrap();
    let mut pinned = PinnedMemory::new(&gpu, 8).unwrap();
    pinned.copy_from_slice(&[1, 2, 0, 0, 5, 6, 0, 0]);
    pinned.copy_to(0, view, &stream).unwrap();
    finish(&stream);
    let (event, shared): (Event, IpcHandle) = gpu.shared_event().unwrap();
    let barrier = Barrier::new(&stream);
    stream.record_in(&event).unwrap();
    assert!(DeviceMemory::open(&gpu, memory.share().unwrap(), 8).is_err(), "this process has it already");
    let variables = [("TEST_MEMORY", hex(&memory.share().unwrap())), ("TEST_EVENT", hex(&shared))];
    let mut command = another(test, &[]);
    let mut child = Killed(command.envs(variables).stdout(Stdio::null()).spawn().unwrap());
    let other = gpu.stream(false).unwrap();
    wait::until("the other process", || {
        pinned.copy_from(0, view, &other).unwrap();
        finish(&other);
        pinned[..] == [1, 2, 0, 0, 5, 6, 5, 6]
    });
    assert!(!event.is_past().unwrap());
    barrier.open();
    assert!(child.0.wait().unwrap().success());
    assert_eq!(download(view, &other).bytes(), [1, 2, 1, 2, 5, 6, 5, 6]);
}
