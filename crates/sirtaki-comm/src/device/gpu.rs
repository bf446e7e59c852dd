//! One GPU, its streams and its events.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::driver::{Driver, Handle, IpcHandle, IpcHandleByValue};
use crate::CommError;

/// The mode in which a thread may do what captures of other threads forbid.
const RELAXED: i32 = 2;
/// The driver's answer for the default stream while one that waits for it is captured.
const IMPLICIT_CAPTURE: i32 = 906;
/// Makes a stream whose work does not wait for that of the default stream.
const NON_BLOCKING: u32 = 1;
/// Events without a timestamp are cheaper.
const WITHOUT_TIME: u32 = 2;
/// Events that other processes may wait for.
const BETWEEN_PROCESSES: u32 = 4;

/// A GPU as this process uses it, in the context that frameworks use too.
pub struct Gpu {
    pub(super) driver: Arc<Driver>,
    number: u32,
    device: i32,
    context: Handle,
    name: String,
    uuid: [u8; 16],
    /// Events that are not in use at present, without and with a time.
    events: [Mutex<Vec<Handle>>; 2],
    /// What is dropped once an event is past.
    kept: Mutex<Vec<Kept>>,
}

/// Something, and the event after which it may be dropped.
type Kept = (Arc<Event>, Box<dyn Any + Send>);

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{} ({})", self.number, self.name)
    }
}

impl Gpu {
    /// The GPU with this number among those that the process sees.
    pub fn open(driver: Arc<Driver>, number: u32) -> Result<Arc<Gpu>, CommError> {
        let (mut device, mut context, mut uuid, mut name) = (0, 0, [0; 16], [0_u8; 128]);
        let functions = &driver.functions;
        let ordinal = i32::try_from(number).unwrap_or(i32::MAX);
        // SAFETY: each writes what it is asked for, and the name is cut to the length given.
        unsafe {
            driver.check(&format!("find cuda:{number}"), (functions.device)(&raw mut device, ordinal))?;
            driver
                .check("read the name of a device", (functions.device_name)(name.as_mut_ptr().cast(), 127, device))?;
            driver.check("read the identity of a device", (functions.device_uuid)(&raw mut uuid, device))?;
            driver.check("use a device", (functions.retain_context)(&raw mut context, device))?;
        }
        let length = name.iter().position(|&byte| byte == 0).unwrap_or(0);
        let name = String::from_utf8_lossy(&name[..length]).into_owned();
        Ok(Arc::new(Gpu {
            driver,
            number,
            device,
            context,
            name,
            uuid,
            events: Default::default(),
            kept: Mutex::default(),
        }))
    }

    /// The driver it was found by.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Its number among those that this process sees.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its name, such as `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The identity that distinguishes it from all other GPUs.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Whether it can reach the memory of another one directly.
    pub fn reaches(&self, other: &Gpu) -> bool {
        let mut can = 0;
        // SAFETY: it writes one number.
        let code = unsafe { (self.driver.functions.can_access_peer)(&raw mut can, self.device, other.device) };
        code == 0 && can != 0
    }

    /// Makes it the GPU that this thread works on from now on.
    pub(super) fn enter(&self) -> Result<(), CommError> {
        // SAFETY: the context lives as long as the process.
        self.driver.check("use a device", unsafe { (self.driver.functions.set_context)(self.context) })
    }

    /// Lets this thread use the driver while another one captures a graph: what it does belongs to no graph.
    pub fn ignore_captures(&self) -> Result<(), CommError> {
        self.capture_mode(RELAXED).map(drop)
    }

    /// Changes what this thread may do during captures; returns what it was allowed to do before.
    fn capture_mode(&self, mut mode: i32) -> Result<i32, CommError> {
        self.enter()?;
        // SAFETY: it reads and writes one number.
        let code = unsafe { (self.driver.functions.capture_mode)(&raw mut mode) };
        self.driver.check("work beside captures", code).map(|()| mode)
    }

    /// A new stream that does not wait for others; an urgent one takes precedence over those that are not.
    pub fn stream(self: &Arc<Self>, urgent: bool) -> Result<Stream, CommError> {
        self.enter()?;
        let mut handle = 0;
        let priority = if urgent { -1 } else { 0 };
        // SAFETY: it writes one handle.
        let code = unsafe { (self.driver.functions.stream_create)(&raw mut handle, NON_BLOCKING, priority) };
        self.driver.check("make a stream", code)?;
        Ok(Stream(Arc::new(Queue { gpu: self.clone(), handle, owned: true })))
    }

    /// A framework's stream.
    ///
    /// # Safety
    /// It must be a stream of this GPU in this process and exist while the value does, or memory that goes back in its order.
    pub unsafe fn foreign_stream(self: &Arc<Self>, handle: usize) -> Stream {
        Stream(Arc::new(Queue { gpu: self.clone(), handle, owned: false }))
    }

    fn event(self: &Arc<Self>, kind: Kind) -> Result<Event, CommError> {
        let kept = self.unused(kind).and_then(|mut events| events.pop());
        let handle = match (kept, kind) {
            (Some(handle), _) => handle,
            (None, Kind::Timed) => self.make_event(0)?,
            (None, _) => self.make_event(WITHOUT_TIME)?,
        };
        Ok(Event { gpu: self.clone(), handle, kind })
    }

    /// Events of this kind that are not in use; `None` if those are not used again.
    fn unused(&self, kind: Kind) -> Option<MutexGuard<'_, Vec<Handle>>> {
        let events = match kind {
            Kind::Plain => &self.events[0],
            Kind::Timed => &self.events[1],
            Kind::Shared => return None,
        };
        Some(events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn make_event(&self, flags: u32) -> Result<Handle, CommError> {
        self.enter()?;
        let mut handle = 0;
        // SAFETY: it writes one handle.
        let code = unsafe { (self.driver.functions.event_create)(&raw mut handle, flags) };
        self.driver.check("make an event", code)?;
        Ok(handle)
    }

    /// An event that other processes may wait for, and the handle by which they open it.
    pub fn shared_event(self: &Arc<Self>) -> Result<(Event, IpcHandle), CommError> {
        let handle = self.make_event(WITHOUT_TIME | BETWEEN_PROCESSES)?;
        let event = Event { gpu: self.clone(), handle, kind: Kind::Shared };
        let mut shared = [0; 64];
        // SAFETY: it writes one handle.
        let code = unsafe { (self.driver.functions.event_handle)(&raw mut shared, handle) };
        self.driver.check("share an event", code)?;
        Ok((event, shared))
    }

    /// An event of another process.
    pub fn open_event(self: &Arc<Self>, shared: IpcHandle) -> Result<Event, CommError> {
        self.enter()?;
        let mut handle = 0;
        // SAFETY: it writes one handle.
        let code = unsafe { (self.driver.functions.event_open)(&raw mut handle, IpcHandleByValue(shared)) };
        self.driver.check("open the event of another process", code)?;
        Ok(Event { gpu: self.clone(), handle, kind: Kind::Shared })
    }
}

/// Work of a GPU that is done in order.
pub struct Stream(Arc<Queue>);

/// A stream as the driver knows it; it exists while anything may still have to be queued on it.
pub(super) struct Queue {
    gpu: Arc<Gpu>,
    pub(super) handle: Handle,
    /// Whether the stream is destroyed with this value.
    owned: bool,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {:#x} of {:?}", self.0.handle, self.0.gpu)
    }
}

impl Stream {
    /// The GPU that does the work.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.0.gpu
    }

    /// The handle by which the driver and frameworks know it.
    pub fn handle(&self) -> usize {
        self.0.handle
    }

    /// An event that happens when the work queued on the stream so far is done.
    pub fn record(&self) -> Result<Event, CommError> {
        let event = self.gpu().event(Kind::Plain)?;
        self.record_in(&event)?;
        Ok(event)
    }

    /// The same, with a time: see [`Event::since`].
    pub fn record_time(&self) -> Result<Event, CommError> {
        let event = self.gpu().event(Kind::Timed)?;
        self.record_in(&event)?;
        Ok(event)
    }

    /// The same with an existing event.
    pub fn record_in(&self, event: &Event) -> Result<(), CommError> {
        self.gpu().enter()?;
        // SAFETY: both live and belong to this GPU.
        let code = unsafe { (self.gpu().driver.functions.event_record)(event.handle, self.handle()) };
        self.gpu().driver.check("record an event", code)
    }

    /// Makes later work wait for an event.
    pub fn wait(&self, event: &Event) -> Result<(), CommError> {
        self.gpu().enter()?;
        // SAFETY: both live.
        let code = unsafe { (self.gpu().driver.functions.stream_wait)(self.handle(), event.handle, 0) };
        self.gpu().driver.check("wait for an event", code)
    }

    /// An error if what is queued on it goes into a graph: it is done later and repeatedly, and the other ranks would
    /// not know when.
    pub fn refuse_capture(&self) -> Result<(), CommError> {
        self.gpu().enter()?;
        let mut capture = 0;
        // SAFETY: it lives, and one number is written.
        let code = unsafe { (self.gpu().driver.functions.stream_captures)(self.handle(), &raw mut capture) };
        if code == IMPLICIT_CAPTURE || (code == 0 && capture != 0) {
            let problem = "a CUDA graph is being captured, and it cannot contain collectives of several ranks\n\
                           hint: capture what one rank computes, and reduce before or after the graph is replayed";
            return Err(CommError::Invalid { problem: problem.into() });
        }
        self.gpu().driver.check("say whether a stream is captured", code)
    }

    /// Whether everything it had to do is done.
    pub fn is_done(&self) -> Result<bool, CommError> {
        self.gpu().enter()?;
        // SAFETY: it lives.
        let code = unsafe { (self.gpu().driver.functions.stream_query)(self.handle()) };
        self.gpu().driver.is_ready("do the work of a stream", code)
    }

    /// The queue, which may outlive this value.
    pub(super) fn queue(&self) -> Arc<Queue> {
        self.0.clone()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.owned && self.gpu.enter().is_ok() {
            // SAFETY: it is ours; work still queued on it is done all the same.
            unsafe { (self.gpu.driver.functions.stream_destroy)(self.handle) };
        }
    }
}

/// A point in the work of a stream.
pub struct Event {
    gpu: Arc<Gpu>,
    handle: Handle,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Without a time, which is cheaper.
    Plain,
    /// With a time.
    Timed,
    /// Known to other processes, and not used again.
    Shared,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {:#x} of {:?}", self.handle, self.gpu)
    }
}

impl Event {
    /// The GPU to which it belongs.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Keeps something until the stream has passed this event, or a little longer.
    pub fn keep_until_past(self: &Arc<Self>, what: Box<dyn Any + Send>) {
        let mut kept = self.gpu.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((self.clone(), what));
        // A program may drop a tensor while it captures a graph, and asking for events would end that.
        let before = self.gpu.capture_mode(RELAXED);
        let (past, rest) =
            std::mem::take(&mut *kept).into_iter().partition(|(event, _)| event.is_past().unwrap_or(true));
        *kept = rest;
        drop(kept);
        let _ = before.and_then(|mode| self.gpu.capture_mode(mode));
        let past: Vec<Kept> = past;
        drop(past);
    }

    /// Whether the stream has passed it.
    pub fn is_past(&self) -> Result<bool, CommError> {
        self.gpu.enter()?;
        // SAFETY: it lives.
        let code = unsafe { (self.gpu.driver.functions.event_query)(self.handle) };
        self.gpu.driver.is_ready("do the work before an event", code)
    }

    /// Seconds by the device's clock from another event to this one, both recorded by [`Stream::record_time`]; negative if
    /// this one was first, and `None` if one of them is not past yet. Resolution is half a microsecond, and seven digits.
    pub fn since(&self, other: &Event) -> Result<Option<f64>, CommError> {
        self.gpu.enter()?;
        let mut milliseconds = 0_f32;
        // SAFETY: both live, and one number is written.
        let code =
            unsafe { (self.gpu.driver.functions.event_elapsed)(&raw mut milliseconds, other.handle, self.handle) };
        let ready = self.gpu.driver.is_ready("tell the time between two events", code)?;
        Ok(ready.then(|| f64::from(milliseconds) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(mut unused) = self.gpu.unused(self.kind) {
            // Streams that wait for it wait for what was recorded when they were told to wait.
            unused.push(self.handle);
        } else if self.gpu.enter().is_ok() {
            // SAFETY: it is ours.
            unsafe { (self.gpu.driver.functions.event_destroy)(self.handle) };
        }
    }
}
