//! What becomes known later than it happens, or has to be asked for: the work of devices and how much of them is in use.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{
    Stream,
    counts::{Counts, Whole},
    nanos,
    record::{DeviceSpan, GpuSample, Record},
};

/// Something that measures a device.
pub(crate) trait Instrument: Send + Sync + fmt::Debug {
    /// Hands over what has become known. Never waits.
    fn collect(&self, to: &Stream);

    /// How much of the device is in use now, if that can be known.
    fn usage(&self) -> Option<GpuSample>;
}

/// The instruments of a process, while they exist, and the last usage of the device of one of them.
#[derive(Debug, Default)]
pub(super) struct Instruments {
    all: Mutex<Vec<Weak<dyn Instrument>>>,
    last: Mutex<Option<GpuSample>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Instruments {
    fn present(&self) -> Vec<Arc<dyn Instrument>> {
        lock(&self.all).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Stream {
    /// Whether anybody wants to know when devices worked.
    pub(crate) fn wants_device_times(&self) -> bool {
        self.counted || self.is_traced()
    }

    /// Reads this instrument from now on, as long as it exists.
    pub(crate) fn add_instrument(&self, instrument: Arc<dyn Instrument>) {
        let mut all = lock(&self.instruments.all);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&instrument));
    }

    /// Takes what instruments have found out.
    pub(crate) fn collect(&self) {
        self.instruments.present().iter().for_each(|instrument| instrument.collect(self));
    }

    /// A device has worked on a batch.
    pub(crate) fn device(&self, span: &DeviceSpan) {
        self.recorder.device(span);
        self.ring.push(|| Record::Device(*span));
    }

    /// Notes how much of the device is in use, if that goes into a file or a launcher may show it. Process sets use the
    /// same device, so the first instrument that knows is enough.
    pub(super) fn note_usage(&self) {
        if !self.wants_device_times() && !self.recorder.has_progress() {
            return;
        }
        let Some(sample) = self.instruments.present().iter().find_map(|instrument| instrument.usage()) else { return };
        *lock(&self.instruments.last) = Some(sample);
        let recorder = &self.recorder;
        recorder.set_whole(Whole::GpuMemory, recorder.whole(Whole::GpuMemory).max(sample.memory));
        recorder.set_whole(Whole::GpuTotal, sample.total);
        recorder.set_whole(Whole::GpuMemoryNow, sample.memory);
        recorder.set_whole(Whole::GpuBusyNow, sample.busy.map_or(0, |busy| u64::from(busy) + 1));
        if let Some(busy) = sample.busy {
            recorder.add_whole(Whole::GpuBusy, u64::from(busy));
            recorder.add_whole(Whole::GpuSamples, 1);
        }
        self.ring.push(|| Record::Gpu(nanos(), sample));
    }

    /// The last usage that was noted.
    pub(super) fn last_usage(&self) -> Option<GpuSample> {
        *lock(&self.instruments.last)
    }
}

impl Counts {
    /// How much of the rank's GPU is in use by the last sample, if there is one.
    pub fn gpu_now(&self) -> Option<GpuSample> {
        let [memory, total, busy] =
            [Whole::GpuMemoryNow, Whole::GpuTotal, Whole::GpuBusyNow].map(|what| self.whole(what));
        (total > 0).then(|| GpuSample { memory, total, busy: busy.checked_sub(1).map(|busy| busy.min(100) as u32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Progress, counts::CollectiveKind, recorder::Recorder};

    #[derive(Debug)]
    struct Fixed(GpuSample);

    impl Instrument for Fixed {
        fn collect(&self, to: &Stream) {
            let (number, kind) = (1, CollectiveKind::AllReduce);
            to.device(&DeviceSpan { number, kind, bytes: 8, tensors: 1, began: 100, ended: 130, exposed: 10 });
        }

        fn usage(&self) -> Option<GpuSample> {
            Some(self.0)
        }
    }

    #[test]
    fn instruments_are_read_while_they_exist_and_somebody_wants_it() {
        let recorder = Arc::new(Recorder::create().unwrap());
        let stream = Stream::new(recorder.clone(), true);
        let sample = GpuSample { memory: 5, total: 9, busy: Some(40) };
        let instrument = Arc::new(Fixed(sample));
        stream.add_instrument(instrument.clone());
        stream.collect();
        stream.note_usage();
        assert_eq!(stream.last_usage(), Some(sample));
        drop(instrument);
        stream.collect();
        stream.note_usage();
        let counts = recorder.counts();
        assert_eq!(counts.device(CollectiveKind::AllReduce), (1, 8, 30));
        let device = counts.gpu().unwrap();
        assert_eq!((device.memory, device.total, device.busy), (5, 9, Some(40.0)));
        assert_eq!((counts.whole(Whole::DeviceHidden), counts.whole(Whole::DeviceExposed)), (20, 10));

        assert_eq!(counts.gpu_now(), Some(sample));

        let recorder = Arc::new(Recorder::create().unwrap());
        let unwanted = Stream::new(recorder.clone(), false);
        let silent = Arc::new(Fixed(GpuSample { busy: None, ..sample }));
        unwanted.add_instrument(silent.clone());
        unwanted.note_usage();
        assert_eq!((unwanted.last_usage(), recorder.counts().gpu_now()), (None, None));
        recorder.progress(&Progress { step: 1, ..Progress::default() });
        unwanted.note_usage();
        assert_eq!(recorder.counts().gpu_now(), Some(silent.0), "a launcher may show it");
    }
}
