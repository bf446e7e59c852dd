//! When a device worked on batches, by its own clock, and how much of that was hidden behind other work.
//!
//! Events with a time are recorded on the engine's stream before and after a batch, and read once they are past, so
//! nothing waits for them. To place them on the host's clock, an event is recorded now and then on a stream that is
//! otherwise unused (a *mark*): it happens when it is recorded, or a little later if the device is busy, and then the
//! batch would seem to begin before it was queued, which corrects the mark.
//!
//! A batch is *exposed* while the stream of the caller, told to wait for it, has nothing else left to do: from the point
//! where that stream comes to the wait until the end of the batch. The rest is *hidden*. A batch that is over before
//! anybody asks for it is hidden altogether. Work of other streams of the caller is not seen.
//!
//! Events cost time on the host and on the device, so they are recorded only where somebody wants to know.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use sirtaki_comm::{
    CommError,
    device::{Event, Gpu, GpuUsage, Nvml, NvmlDevice, Stream},
};

use super::way::DeviceSettings;
use crate::telemetry::{
    self, Instrument,
    counts::CollectiveKind,
    nanos,
    record::{DeviceSpan, GpuSample},
};

/// Most batches that may be unread.
const ROOM: usize = 4096;
/// Nanoseconds for which a mark is good: clocks differ, and times between events have seven digits.
const GOOD: u64 = 1_000_000_000;

/// What is known of a batch when it is queued.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) number: u64,
    pub(crate) kind: CollectiveKind,
    pub(crate) bytes: u64,
    pub(crate) tensors: u64,
}

/// An event, and when it was recorded by the host's clock.
#[derive(Debug)]
struct Mark {
    event: Event,
    time: u64,
}

/// A batch on the device.
#[derive(Debug)]
pub(crate) struct Timed {
    what: Queued,
    mark: Arc<Mark>,
    /// When it was queued, by the host's clock.
    queued: u64,
    began: Event,
    ended: OnceLock<Event>,
    /// The caller's stream has come to its wait.
    awaited: OnceLock<Event>,
}

impl Timed {
    /// Everything is queued. Says whether the end can be timed.
    pub(super) fn end(&self, stream: &Stream) -> bool {
        stream.record_time().is_ok_and(|event| self.ended.set(event).is_ok())
    }

    /// A stream is about to wait for the batch.
    pub(crate) fn await_on(&self, stream: &Stream) {
        if self.awaited.get().is_none()
            && let Ok(event) = stream.record_time()
        {
            let _ = self.awaited.set(event);
        }
    }

    /// The times, once they are known. An error or a batch without an end never has any.
    fn read(&self) -> Result<Option<DeviceSpan>, CommError> {
        let Some(ended) = self.ended.get() else { return Ok(None) };
        let (Some(lasted), Some(at)) = (ended.since(&self.began)?, self.began.since(&self.mark.event)?) else {
            return Ok(None);
        };
        // A stream that has not come to its wait yet will find the batch done.
        let waited = match self.awaited.get() {
            Some(event) => event.since(&self.began)?,
            None => None,
        };
        let began = placed(self.mark.time, at, self.queued);
        let Queued { number, kind, bytes, tensors } = self.what;
        let (lasted, exposed) = (in_nanos(lasted), in_nanos(exposed(lasted, waited)));
        Ok(Some(DeviceSpan { number, kind, bytes, tensors, began, ended: began + lasted, exposed }))
    }
}

/// When a batch began by the host's clock: so many seconds after a mark, but not before it was queued.
fn placed(mark: u64, seconds: f64, queued: u64) -> u64 {
    mark.saturating_add_signed((seconds * 1e9) as i64).max(queued)
}

/// How long a batch of this length was exposed, if the caller's stream came to its wait so long after it began.
fn exposed(lasted: f64, waited: Option<f64>) -> f64 {
    waited.map_or(0.0, |waited| (lasted - waited.max(0.0)).max(0.0))
}

fn in_nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// The batches of a lane that are not read yet, and what the device says of itself.
#[derive(Debug)]
pub(super) struct Timer {
    state: Mutex<State>,
    gpu: Arc<Gpu>,
    /// Where the management library is, and what it knows the GPU as, once that was asked.
    settings: DeviceSettings,
    managed: OnceLock<Option<NvmlDevice>>,
}

#[derive(Debug, Default)]
struct State {
    /// The stream for marks.
    unused: Option<Stream>,
    mark: Option<Arc<Mark>>,
    unread: VecDeque<Arc<Timed>>,
}

impl Timer {
    pub(super) fn new(gpu: &Arc<Gpu>, settings: &DeviceSettings) -> Self {
        Self { state: Mutex::default(), gpu: gpu.clone(), settings: settings.clone(), managed: OnceLock::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A batch is about to be queued, all of whose tensors the stream has been told to wait for. `None` if it cannot be
    /// timed, which is no reason to fail.
    pub(super) fn begin(&self, stream: &Stream, what: Queued) -> Option<Arc<Timed>> {
        let mut state = self.state();
        if state.unread.len() >= ROOM {
            return None;
        }
        let mark = state.mark(stream.gpu()).ok()?;
        let (queued, began) = (nanos(), stream.record_time().ok()?);
        let (ended, awaited) = (OnceLock::new(), OnceLock::new());
        let timed = Arc::new(Timed { what, mark, queued, began, ended, awaited });
        state.unread.push_back(timed.clone());
        Some(timed)
    }

    /// It could not be queued or timed.
    pub(super) fn forget(&self, timed: &Arc<Timed>) {
        self.state().unread.retain(|other| !Arc::ptr_eq(other, timed));
    }
}

impl State {
    /// A mark that is good now.
    fn mark(&mut self, gpu: &Arc<Gpu>) -> Result<Arc<Mark>, CommError> {
        if let Some(mark) = self.mark.as_ref().filter(|mark| nanos().saturating_sub(mark.time) < GOOD) {
            return Ok(mark.clone());
        }
        let stream = match self.unused.take() {
            Some(stream) => stream,
            None => gpu.stream(true)?,
        };
        let (time, event) = (nanos(), stream.record_time()?);
        self.unused = Some(stream);
        Ok(self.mark.insert(Arc::new(Mark { event, time })).clone())
    }
}

impl Instrument for Timer {
    fn collect(&self, to: &telemetry::Stream) {
        let mut state = self.state();
        // Asking for events would end the capture of a graph in another thread.
        if state.unread.is_empty() || self.gpu.ignore_captures().is_err() {
            return;
        }
        while let Some(timed) = state.unread.front() {
            match timed.read() {
                Ok(None) => break,
                Ok(Some(span)) => to.device(&span),
                Err(_) => {}
            }
            state.unread.pop_front();
        }
    }

    fn usage(&self) -> Option<GpuSample> {
        let managed =
            self.managed.get_or_init(|| Nvml::load(self.settings.nvml.as_deref()).ok()?.device(self.gpu.uuid()));
        let GpuUsage { memory, total, busy } = managed.as_ref()?.usage()?;
        Some(GpuSample { memory, total, busy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_placed_on_the_hosts_clock() {
        assert_eq!(placed(1_000_000, 0.5, 2_000_000), 501_000_000);
        assert_eq!(placed(1_000_000, 0.000_5, 2_000_000), 2_000_000, "the mark was late");
        assert_eq!(placed(1_000, -1.0, 0), 0);
    }

    #[test]
    fn what_the_callers_stream_waits_for_is_exposed() {
        assert_eq!(exposed(3.0, None), 0.0);
        assert_eq!(exposed(3.0, Some(1.0)), 2.0);
        assert_eq!(exposed(3.0, Some(-1.0)), 3.0, "it came to the wait before the batch began");
        assert_eq!(exposed(3.0, Some(4.0)), 0.0);
    }
}
