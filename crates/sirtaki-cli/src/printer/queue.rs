//! Writing in a separate thread, so that a slow reader does not hold up code that has something else to do.
//!
//! What is written waits in a queue. The writer asks how full it is and, if it has to wait for room, is woken up when
//! there is some again.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

/// A queue of this many bytes is full.
const FULL: usize = 256 << 10;

/// Where bytes go.
pub(super) type Sink = Box<dyn Write + Send>;

/// What is called when there is room again, or never will be.
type Waker = Box<dyn Fn() + Send>;

#[derive(Default)]
struct State {
    /// What waits, and for which of the sinks.
    waiting: VecDeque<(usize, Vec<u8>)>,
    /// Bytes that are not written yet, those that are being written included.
    bytes: usize,
    /// A sink cannot be written to any more.
    broken: bool,
    /// Nothing more will come.
    closed: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that writes to some sinks, in the order in which it was asked to.
pub(super) struct Queue {
    shared: Arc<Shared>,
    thread: JoinHandle<Vec<Sink>>,
}

impl Queue {
    /// Starts the thread; returns the entrance for each of the sinks.
    pub(super) fn start(sinks: Vec<Sink>) -> (Queue, Vec<Sink>) {
        let shared = Arc::<Shared>::default();
        let entrance = |sink| Box::new(Entrance { shared: shared.clone(), sink }) as Sink;
        let entrances = (0..sinks.len()).map(entrance).collect();
        let own = shared.clone();
        (Queue { shared, thread: thread::spawn(move || write_all(sinks, &own)) }, entrances)
    }

    pub(super) fn is_full(&self) -> bool {
        self.shared.state().bytes > FULL
    }

    /// Whether a sink cannot be written to any more.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.state().broken
    }

    /// Has `waker` called whenever the queue is not full any more, and when a sink breaks.
    pub(super) fn wake(&self, waker: impl Fn() + Send + 'static) {
        self.shared.state().waker = Some(Box::new(waker));
    }

    /// Waits until everything is written, but no longer than `limit`; then gives the sinks back.
    pub(super) fn finish(self, limit: Option<Duration>) -> Option<Vec<Sink>> {
        let mut state = self.shared.state();
        state.closed = true;
        self.shared.changed.notify_all();
        let open = |state: &mut State| state.bytes > 0;
        match limit {
            None => drop(state),
            Some(limit) => {
                let waited = self.shared.changed.wait_timeout_while(state, limit, open);
                if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                    return None;
                }
            }
        }
        self.thread.join().ok()
    }
}

/// The thread: writes what comes until the queue is closed.
fn write_all(mut sinks: Vec<Sink>, shared: &Shared) -> Vec<Sink> {
    let idle = |state: &mut State| state.waiting.is_empty() && !state.closed;
    loop {
        let mut state = shared.changed.wait_while(shared.state(), idle).unwrap_or_else(PoisonError::into_inner);
        let Some((sink, bytes)) = state.waiting.pop_front() else { return sinks };
        drop(state);
        let result = sinks[sink].write_all(&bytes).and_then(|()| sinks[sink].flush());
        let mut state = shared.state();
        let was_full = state.bytes > FULL;
        state.bytes -= bytes.len();
        if result.is_err() {
            state.broken = true;
            // What waits for a reader that is gone is lost.
            let lost: usize = state.waiting.iter().filter(|(to, _)| *to == sink).map(|(_, bytes)| bytes.len()).sum();
            state.waiting.retain(|(to, _)| *to != sink);
            state.bytes -= lost;
        }
        if let Some(waker) = &state.waker
            && (result.is_err() || was_full && state.bytes <= FULL)
        {
            waker();
        }
        shared.changed.notify_all();
    }
}

/// Takes bytes for one of the sinks and never waits.
struct Entrance {
    shared: Arc<Shared>,
    sink: usize,
}

impl Write for Entrance {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.state();
        if !state.closed {
            state.bytes += bytes.len();
            state.waiting.push_back((self.sink, bytes.to_vec()));
            self.shared.changed.notify_all();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Writes a piece whenever it is allowed to, and breaks when the permissions end.
    struct Slow(Receiver<()>, Sender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.1.send(bytes.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_reader_holds_up_nobody_and_is_noticed() {
        let ((allow, allowed), (to, written)) = (channel(), channel());
        let (queue, mut entrances) = Queue::start(vec![Box::new(Slow(allowed, to))]);
        let (wake, woken) = channel();
        queue.wake(move || {
            let _ = wake.send(());
        });
        entrances[0].write_all(&vec![1; FULL]).unwrap();
        assert!(!queue.is_full());
        entrances[0].write_all(&[2]).unwrap();
        assert!(queue.is_full());
        allow.send(()).unwrap();
        woken.recv_timeout(Duration::from_secs(60)).expect("there is room");
        assert_eq!(written.recv().unwrap().len(), FULL);
        assert!(queue.finish(Some(Duration::from_millis(1))).is_none(), "one byte is still to be read");
    }

    #[test]
    fn a_closed_reader_is_reported_and_nothing_waits_for_it() {
        let ((allow, allowed), (to, _written)) = (channel(), channel());
        let (queue, mut entrances) = Queue::start(vec![Box::new(Slow(allowed, to))]);
        let (wake, woken) = channel();
        queue.wake(move || {
            let _ = wake.send(());
        });
        (0..3).for_each(|_| entrances[0].write_all(&vec![1; FULL]).unwrap());
        drop(allow);
        woken.recv_timeout(Duration::from_secs(60)).expect("it is broken");
        assert!(queue.is_broken() && !queue.is_full());
        assert_eq!(queue.finish(None).map(|sinks| sinks.len()), Some(1));
    }
}
