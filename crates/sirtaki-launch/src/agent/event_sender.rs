//! How the agent sends events to the launcher.
//!
//! A dedicated thread writes, so that the agent can always handle orders, however slowly the launcher reads. Only the
//! output of ranks has to wait: the launcher says how much of it was shown, and no more than a [`Window`] of bytes is
//! in transit. Beyond that, ranks block in their own `write`, as they would if their output were read directly, but
//! slowly. So neither side needs memory for unread output, and all other events arrive at once.

use std::{
    io::{self, Write},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use crate::protocol::{self, Event, MARK, Stream};

/// How many bytes of output may still be sent.
#[derive(Debug, Default)]
struct Window {
    left: Mutex<usize>,
    more: Condvar,
}

impl Window {
    fn left(&self) -> MutexGuard<'_, usize> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to `wanted` bytes of it; waits until there is at least one.
    fn take(&self, wanted: usize) -> usize {
        let mut left = self.more.wait_while(self.left(), |left| *left == 0).unwrap_or_else(PoisonError::into_inner);
        let taken = wanted.min(*left);
        *left -= taken;
        taken
    }

    fn give(&self, bytes: usize) {
        let mut left = self.left();
        *left = left.saturating_add(bytes);
        drop(left);
        self.more.notify_all();
    }
}

enum Word {
    Event(Event),
    /// Confirm here that everything before has been written.
    Flush(SyncSender<()>),
}

/// Sends events to the launcher, from any thread.
#[derive(Debug, Clone)]
pub(super) struct EventSender {
    words: Sender<Word>,
    window: Arc<Window>,
}

impl EventSender {
    /// Writes the mark by which the launcher finds the first event, and then all events.
    pub(super) fn open(mut to: impl Write + Send + 'static) -> io::Result<Self> {
        to.write_all(MARK)?;
        let (words, said) = channel();
        thread::spawn(move || {
            for word in said {
                match word {
                    // A launcher that cannot be written to is gone, which the end of its orders shows.
                    Word::Event(event) => drop(protocol::write(&mut to, &event)),
                    Word::Flush(done) => drop(done.send(())),
                }
            }
        });
        Ok(Self { words, window: Arc::default() })
    }

    pub(super) fn send(&self, event: Event) {
        let _ = self.words.send(Word::Event(event));
    }

    /// Reporting what a rank wrote, as soon as the window allows it.
    pub(super) fn pass_on(&self, rank: usize, stream: Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(self.window.take(bytes.len()));
            self.send(Event::Output { rank, stream, bytes: now.to_vec() });
            bytes = later;
        }
    }

    /// Allows this many more bytes to be sent.
    pub(super) fn widen(&self, bytes: usize) {
        self.window.give(bytes);
    }

    /// Waits until all events so far are written, but no longer than `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let (done, flushed) = sync_channel(1);
        if self.words.send(Word::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    /// Sends on what is written.
    struct Pipe(Sender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn heard(frames: &Receiver<Vec<u8>>) -> Event {
        let frame = frames.recv_timeout(Duration::from_secs(60)).expect("something is said");
        protocol::read(&mut frame.as_slice()).unwrap().expect("a whole frame")
    }

    #[test]
    fn output_waits_for_the_launcher_and_nothing_else_does() {
        let (pipe, frames) = channel();
        let events = EventSender::open(Pipe(pipe)).unwrap();
        assert_eq!(frames.recv().unwrap(), MARK);
        events.widen(3);
        let speaker = events.clone();
        let rank = thread::spawn(move || speaker.pass_on(0, Stream::Out, b"12345"));
        assert!(matches!(heard(&frames), Event::Output { bytes, .. } if bytes == b"123"));
        events.send(Event::Greeting);
        assert!(matches!(heard(&frames), Event::Greeting), "the window is closed for output alone");
        events.widen(9);
        assert!(matches!(heard(&frames), Event::Output { bytes, .. } if bytes == b"45"));
        rank.join().unwrap();
        events.flush(Duration::from_secs(60));
    }
}
