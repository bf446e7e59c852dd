//! Events. Recording one captures a *point* in the work of a stream; waiting for the event or querying it refers to the
//! point captured last before that call. The points of events that processes share are numbers in shared memory: how
//! often the event was recorded, and how many of these recordings have happened.

use std::{
    ffi::{c_int, c_uint},
    fs::File,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    device, lock,
    segment::{sleep, wake},
    shared::{self, Address, Map},
    status::{INVALID_HANDLE, INVALID_VALUE, NOT_READY, OUT_OF_MEMORY, SUCCESS, give},
    stream::{self, Stream},
    table::Table,
};

const WITHOUT_TIME: c_uint = 2;
const BETWEEN_PROCESSES: c_uint = 4;

static EVENTS: Table<Arc<Event>> = Table::new(0x1000_0000);

struct Event {
    with_time: bool,
    kind: Kind,
}

enum Kind {
    Local(Mutex<Option<Arc<Point>>>),
    Shared(Arc<Counts>, Option<File>),
}

/// A point in the work of a stream.
enum Point {
    Local(Mutex<Option<Instant>>, Condvar),
    Shared(Arc<Counts>, u32),
}

/// Two numbers in shared memory.
struct Counts(Map);

impl Counts {
    fn at(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the memory is longer than two numbers, aligned to a page, and used in no other way.
        unsafe { &*self.0.start().cast::<AtomicU32>().add(index) }
    }

    fn recorded(&self) -> &AtomicU32 {
        self.at(0)
    }

    fn happened(&self) -> &AtomicU32 {
        self.at(1)
    }
}

impl Point {
    fn new() -> Self {
        Point::Local(Mutex::default(), Condvar::new())
    }

    /// Notes that the stream has reached the point.
    fn reach(&self) {
        match self {
            Point::Local(time, changed) => {
                lock(time).get_or_insert_with(Instant::now);
                changed.notify_all();
            }
            Point::Shared(counts, number) => {
                counts.happened().fetch_max(*number, Ordering::SeqCst);
                wake(counts.happened());
            }
        }
    }

    fn is_reached(&self) -> bool {
        match self {
            Point::Local(time, _) => lock(time).is_some(),
            Point::Shared(counts, number) => counts.happened().load(Ordering::SeqCst) >= *number,
        }
    }

    /// Waits until the stream has reached the point.
    fn wait(&self) {
        match self {
            Point::Local(time, changed) => {
                let waiting = changed.wait_while(lock(time), |time| time.is_none());
                drop(waiting.unwrap_or_else(PoisonError::into_inner));
            }
            Point::Shared(counts, number) => loop {
                let seen = counts.happened().load(Ordering::SeqCst);
                if seen >= *number {
                    return;
                }
                sleep(counts.happened(), seen, Duration::from_secs(1));
            },
        }
    }
}

/// A point behind everything that a stream has to do now.
fn point_of(stream: &Stream) -> Arc<Point> {
    let point = Arc::new(Point::new());
    let reached = point.clone();
    stream.push(move || reached.reach());
    point
}

impl Event {
    /// The point that was captured last.
    fn point(&self) -> Option<Arc<Point>> {
        match &self.kind {
            Kind::Local(point) => lock(point).clone(),
            Kind::Shared(counts, _) => {
                let number = counts.recorded().load(Ordering::SeqCst);
                (number > 0).then(|| Arc::new(Point::Shared(counts.clone(), number)))
            }
        }
    }

    fn record(&self, stream: &Stream) {
        match &self.kind {
            Kind::Local(point) => *lock(point) = Some(point_of(stream)),
            Kind::Shared(counts, _) => {
                let number = counts.recorded().fetch_add(1, Ordering::SeqCst) + 1;
                let reached = Point::Shared(counts.clone(), number);
                stream.push(move || reached.reach());
            }
        }
    }

    /// When it happened, if it did and has a time.
    fn time(&self) -> Result<Instant, c_int> {
        match self.point().filter(|_| self.with_time).as_deref() {
            Some(Point::Local(time, _)) => lock(time).ok_or(NOT_READY),
            _ => Err(INVALID_HANDLE),
        }
    }
}

#[unsafe(export_name = "cuEventCreate")]
unsafe extern "C" fn create(to: *mut usize, flags: c_uint) -> c_int {
    if device::check_context() != SUCCESS {
        return device::check_context();
    }
    let with_time = flags & WITHOUT_TIME == 0;
    let kind = if flags & BETWEEN_PROCESSES == 0 {
        Kind::Local(Mutex::default())
    } else if with_time {
        return INVALID_VALUE;
    } else {
        let made = shared::create(4096).and_then(|file| Ok((Map::new(&file, 4096)?, file)));
        let Ok((map, file)) = made else { return OUT_OF_MEMORY };
        Kind::Shared(Arc::new(Counts(map)), Some(file))
    };
    // SAFETY: the caller wants a handle there.
    unsafe { give(to, EVENTS.add(Arc::new(Event { with_time, kind }))) }
}

#[unsafe(export_name = "cuEventDestroy_v2")]
extern "C" fn destroy(handle: usize) -> c_int {
    EVENTS.remove(handle).map_or(INVALID_HANDLE, |_| SUCCESS)
}

#[unsafe(export_name = "cuEventRecord")]
extern "C" fn record(handle: usize, stream: usize) -> c_int {
    let (Some(event), Some(stream)) = (EVENTS.get(handle), stream::find(stream)) else { return INVALID_HANDLE };
    event.record(&stream);
    SUCCESS
}

#[unsafe(export_name = "cuStreamWaitEvent")]
extern "C" fn stream_wait(stream: usize, handle: usize, _flags: c_uint) -> c_int {
    let (Some(event), Some(stream)) = (EVENTS.get(handle), stream::find(stream)) else { return INVALID_HANDLE };
    if let Some(point) = event.point() {
        stream.push(move || point.wait());
    }
    SUCCESS
}

#[unsafe(export_name = "cuEventQuery")]
extern "C" fn query(handle: usize) -> c_int {
    let Some(event) = EVENTS.get(handle) else { return INVALID_HANDLE };
    if event.point().is_none_or(|point| point.is_reached()) { SUCCESS } else { NOT_READY }
}

#[unsafe(export_name = "cuEventElapsedTime")]
unsafe extern "C" fn elapsed(to: *mut f32, from: usize, until: usize) -> c_int {
    let (Some(from), Some(until)) = (EVENTS.get(from), EVENTS.get(until)) else { return INVALID_HANDLE };
    match (from.time(), until.time()) {
        (Ok(from), Ok(until)) => {
            let after = until.saturating_duration_since(from).as_secs_f32();
            let before = from.saturating_duration_since(until).as_secs_f32();
            // SAFETY: the caller wants a number there.
            unsafe { give(to, (after - before) * 1000.0) }
        }
        (Err(error), _) | (_, Err(error)) => error,
    }
}

#[unsafe(export_name = "cuIpcGetEventHandle")]
unsafe extern "C" fn share(to: *mut [u8; 64], handle: usize) -> c_int {
    let Some(event) = EVENTS.get(handle) else { return INVALID_HANDLE };
    let Kind::Shared(_, Some(file)) = &event.kind else { return INVALID_HANDLE };
    let Ok(address) = shared::address(file) else { return INVALID_VALUE };
    let mut bytes = [0; 64];
    address.write(&mut bytes);
    // SAFETY: the caller wants a handle there.
    unsafe { give(to, bytes) }
}

#[unsafe(export_name = "cuIpcOpenEventHandle")]
unsafe extern "C" fn open(to: *mut usize, bytes: crate::memory::IpcHandle) -> c_int {
    if device::check_context() != SUCCESS {
        return device::check_context();
    }
    let map = Address::read(&bytes.0).filter(|address| address.bytes() == 4096);
    let Some(map) = map.and_then(|address| Map::new(&address.open().ok()?, 4096).ok()) else { return INVALID_VALUE };
    let event = Event { with_time: false, kind: Kind::Shared(Arc::new(Counts(map)), None) };
    // SAFETY: the caller wants a handle there.
    unsafe { give(to, EVENTS.add(Arc::new(event))) }
}
