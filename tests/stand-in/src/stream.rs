//! Streams: a thread each, with a queue.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    ffi::{c_int, c_uint},
    sync::{Arc, Condvar, Mutex, PoisonError, Weak},
    thread,
};

use crate::{
    device, lock,
    status::{INVALID_HANDLE, NOT_READY, OUT_OF_MEMORY, SUCCESS, give},
    table::Table,
};

/// Something to do later.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

/// The streams that callers have made.
static STREAMS: Table<Arc<Stream>> = Table::new(0x1_0000);
/// The default stream of each context.
static DEFAULT: Mutex<BTreeMap<usize, Arc<Stream>>> = Mutex::new(BTreeMap::new());
/// Streams that callers have destroyed, but which may still have work to do.
static CLOSED: Mutex<Vec<Weak<Stream>>> = Mutex::new(Vec::new());

/// Tasks that are executed one after another.
pub(crate) struct Stream {
    context: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Task>,
    /// A task is being executed.
    busy: bool,
    /// No more will come.
    closed: bool,
}

impl Stream {
    fn start() -> std::io::Result<Arc<Self>> {
        let stream = Arc::new(Self { context: device::context(), queue: Mutex::default(), changed: Condvar::new() });
        let worker = stream.clone();
        thread::Builder::new().name("stand-in stream".into()).spawn(move || worker.work())?;
        Ok(stream)
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            task();
            lock(&self.queue).busy = false;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Task> {
        let waits = |queue: &mut Queue| queue.tasks.is_empty() && !queue.closed;
        let queue = lock(&self.queue);
        let mut queue = self.changed.wait_while(queue, waits).unwrap_or_else(PoisonError::into_inner);
        let task = queue.tasks.pop_front();
        queue.busy = task.is_some();
        task
    }

    /// Queues a task after everything that is queued already.
    pub(crate) fn push(&self, task: impl FnOnce() + Send + 'static) {
        lock(&self.queue).tasks.push_back(Box::new(task));
        self.changed.notify_all();
    }

    fn is_idle(&self) -> bool {
        lock(&self.queue).is_idle()
    }

    /// Waits until it has nothing to do.
    fn finish(&self) {
        let waiting = self.changed.wait_while(lock(&self.queue), |queue| !queue.is_idle());
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }

    fn close(self: Arc<Self>) {
        let mut closed = lock(&CLOSED);
        closed.retain(|stream| stream.strong_count() > 0);
        closed.push(Arc::downgrade(&self));
        lock(&self.queue).closed = true;
        self.changed.notify_all();
    }
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && !self.busy
    }
}

/// The stream with this handle; zero is the default stream.
pub(crate) fn find(handle: usize) -> Option<Arc<Stream>> {
    if handle == 0 {
        if device::check_context() != SUCCESS {
            return None;
        }
        return match lock(&DEFAULT).entry(device::context()) {
            Entry::Occupied(known) => Some(known.get().clone()),
            Entry::Vacant(place) => Some(place.insert(Stream::start().ok()?).clone()),
        };
    }
    STREAMS.get(handle)
}

/// Waits until all streams of this context have nothing to do, as the driver does before it frees memory.
pub(crate) fn finish_all() {
    let mut streams = STREAMS.all();
    streams.extend(lock(&DEFAULT).values().cloned());
    streams.extend(lock(&CLOSED).iter().filter_map(Weak::upgrade));
    streams.iter().filter(|stream| stream.context == device::context()).for_each(|stream| stream.finish());
}

#[unsafe(export_name = "cuStreamCreateWithPriority")]
unsafe extern "C" fn create(to: *mut usize, _flags: c_uint, _priority: c_int) -> c_int {
    if device::check_context() != SUCCESS {
        return device::check_context();
    }
    match Stream::start() {
        // SAFETY: the caller wants a handle there.
        Ok(stream) => unsafe { give(to, STREAMS.add(stream)) },
        Err(_) => OUT_OF_MEMORY,
    }
}

#[unsafe(export_name = "cuStreamDestroy_v2")]
extern "C" fn destroy(handle: usize) -> c_int {
    match STREAMS.remove(handle) {
        Some(stream) => {
            stream.close();
            SUCCESS
        }
        None => INVALID_HANDLE,
    }
}

/// With `STAND_IN_CAPTURE` the default stream counts as captured; the others never are.
#[unsafe(export_name = "cuStreamIsCapturing")]
unsafe extern "C" fn is_capturing(handle: usize, to: *mut c_int) -> c_int {
    let captured = handle == 0 && std::env::var_os("STAND_IN_CAPTURE").is_some();
    match find(handle) {
        // SAFETY: the caller wants a number there.
        Some(_) => unsafe { give(to, c_int::from(captured)) },
        None => INVALID_HANDLE,
    }
}

/// Whoever captures is another thread, so every mode will do; the one before comes back.
#[unsafe(export_name = "cuThreadExchangeStreamCaptureMode")]
extern "C" fn capture_mode(mode: *mut c_int) -> c_int {
    // SAFETY: the caller passes the address of one number.
    unsafe { give(mode, 0) }
}

#[unsafe(export_name = "cuStreamQuery")]
extern "C" fn query(handle: usize) -> c_int {
    match find(handle) {
        Some(stream) if stream.is_idle() => SUCCESS,
        Some(_) => NOT_READY,
        None => INVALID_HANDLE,
    }
}
