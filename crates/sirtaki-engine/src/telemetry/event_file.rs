//! A file with what the program reports, in the format of TensorBoard, which reads a folder of them.
//!
//! A thread of its own writes, so that a slow disk holds up nothing else. Every start of a job gets a file of its own;
//! TensorBoard puts those of a folder together by their steps. The format is TFRecord around a protobuf message of a few
//! fields, which are encoded here: a protobuf library and its compiler would be much more than that.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::{self, BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    process,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::progress::Progress;
use crate::{Warn, files};

/// Reports that may wait; beyond that they are dropped.
const ROOM: usize = 4096;
/// How long a report may stay in memory, and the least time over which samples per second are taken.
const PAUSE: Duration = Duration::from_secs(1);
/// The first event of every file.
const VERSION: &str = "brain.Event:2";

/// What a report becomes.
enum Told {
    Progress(Progress),
    Settings(BTreeMap<String, String>),
}

/// The thread, seen from outside.
#[derive(Debug)]
pub(super) struct EventFile {
    work: SyncSender<(f64, Told)>,
    thread: JoinHandle<()>,
}

impl EventFile {
    /// Begins a new file in this folder, which is made if it is not there.
    pub(super) fn start(folder: &Path, warn: Warn) -> io::Result<Self> {
        let (path, file) = create(folder)?;
        let mut writer = Writer { file: BufWriter::new(file), flushed: Instant::now(), counted: None };
        writer.add(&Event::new(wall_time()).text(3, VERSION))?;
        writer.flush()?;
        let (work, told) = sync_channel(ROOM);
        let write = move || {
            if let Err(error) = writer.write(&told) {
                let path = path.display();
                warn(&format!("{path} gets no more reports: {error}; hint: look for space on the disk"));
            }
        };
        let thread = thread::Builder::new().name("sirtaki-event_file".into()).spawn(write)?;
        Ok(Self { work, thread })
    }

    /// The program has come this far.
    pub(super) fn progress(&self, progress: &Progress) {
        // Rather lose a point of a plot than hold up the program.
        let _ = self.work.try_send((wall_time(), Told::Progress(*progress)));
    }

    /// Settings of the program.
    pub(super) fn settings(&self, settings: &BTreeMap<String, String>) {
        let _ = self.work.try_send((wall_time(), Told::Settings(settings.clone())));
    }

    /// Returns when everything is in the file.
    pub(super) fn end(self) {
        drop(self.work);
        let _ = self.thread.join();
    }
}

/// A new file in a folder, with a name by which TensorBoard knows it.
fn create(folder: &Path) -> io::Result<(PathBuf, File)> {
    files::make_private(folder)?;
    let (seconds, pid) = (wall_time() as u64, process::id());
    for number in 0_u32.. {
        let path = folder.join(format!("events.out.tfevents.{seconds}.sirtaki.{pid}.{number}"));
        match files::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Seconds since 1970.
fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

struct Writer {
    file: BufWriter<File>,
    flushed: Instant,
    /// When samples were last counted, and how many there were.
    counted: Option<(f64, u64)>,
}

impl Writer {
    fn write(mut self, told: &Receiver<(f64, Told)>) -> io::Result<()> {
        let mut settings = BTreeMap::new();
        loop {
            match told.recv_timeout(PAUSE) {
                Ok((time, Told::Progress(progress))) => {
                    let scalars = self.scalars(time, &progress);
                    if !scalars.is_empty() {
                        self.add(&Event::new(time).step(progress.step).scalars(&scalars))?;
                    }
                }
                Ok((time, Told::Settings(more))) => {
                    settings.extend(more);
                    self.add(&Event::new(time).table("settings", &settings))?;
                }
                Err(RecvTimeoutError::Timeout) => self.flush()?,
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
        }
    }

    /// The plots that a report has a point for. A part of a name before `/` is the heading of a group of plots.
    fn scalars(&mut self, time: f64, said: &Progress) -> Vec<(&'static str, f64)> {
        let known = [
            ("loss/train", said.loss),
            ("loss/test", said.test_loss),
            ("accuracy/train", said.accuracy),
            ("accuracy/test", said.test_accuracy),
            ("progress/epoch", said.epoch),
            ("progress/samples_per_second", said.samples.and_then(|samples| self.rate(time, samples))),
        ];
        known.into_iter().filter_map(|(tag, value)| Some((tag, value?))).collect()
    }

    /// Samples per second since this was last known, if that is long enough ago.
    fn rate(&mut self, time: f64, samples: u64) -> Option<f64> {
        let (then, before) = *self.counted.get_or_insert((time, samples));
        if time - then < PAUSE.as_secs_f64() {
            return None;
        }
        self.counted = Some((time, samples));
        Some(samples.checked_sub(before)? as f64 / (time - then))
    }

    fn add(&mut self, event: &Event) -> io::Result<()> {
        self.file.write_all(&record(&event.0))?;
        if self.flushed.elapsed() >= PAUSE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.file.flush()
    }
}

/// A TFRecord: length, its checksum, the bytes and theirs.
fn record(bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked_checksum(&length), bytes, &masked_checksum(bytes)].concat()
}

/// CRC-32C, changed so that a checksum over bytes that contain checksums is still a good one.
fn masked_checksum(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// An `Event` of TensorFlow's `event.proto`.
struct Event(Vec<u8>);

impl Event {
    fn new(wall_time: f64) -> Self {
        Self(Vec::new()).fixed(1, 1, &wall_time.to_le_bytes())
    }

    fn step(mut self, step: u64) -> Self {
        varint(&mut self.0, 2 << 3);
        varint(&mut self.0, step);
        self
    }

    fn text(mut self, field: u64, text: &str) -> Self {
        nested(&mut self.0, field, text.as_bytes());
        self
    }

    fn fixed(mut self, field: u64, kind: u64, bytes: &[u8]) -> Self {
        varint(&mut self.0, field << 3 | kind);
        self.0.extend_from_slice(bytes);
        self
    }

    /// With a `Summary` of numbers.
    fn scalars(mut self, scalars: &[(&str, f64)]) -> Self {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let value = Self(Vec::new()).text(1, tag).fixed(2, 5, &(*value as f32).to_le_bytes());
            nested(&mut summary, 1, &value.0);
        }
        nested(&mut self.0, 5, &summary);
        self
    }

    /// With a `Summary` that is a table in Markdown, for TensorBoard's page of texts.
    fn table(mut self, tag: &str, rows: &BTreeMap<String, String>) -> Self {
        let mut text = "| | |\n|---|---|\n".to_owned();
        for (name, value) in rows {
            let _ = writeln!(text, "| {name} | {} |", value.replace(['\n', '|'], " "));
        }
        // A tensor of no dimensions whose one element is a string, which is type 7.
        let mut tensor = vec![1 << 3, 7];
        nested(&mut tensor, 2, &[]);
        nested(&mut tensor, 8, text.as_bytes());
        let plugin = Self(Vec::new()).text(1, "text");
        let mut metadata = Vec::new();
        nested(&mut metadata, 1, &plugin.0);
        let mut value = Self(Vec::new()).text(1, tag).0;
        nested(&mut value, 8, &tensor);
        nested(&mut value, 9, &metadata);
        let mut summary = Vec::new();
        nested(&mut summary, 1, &value);
        nested(&mut self.0, 5, &summary);
        self
    }
}

/// A field of bytes, such as a text or a message.
fn nested(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Seven bits per byte, the lowest first; the highest bit says that more follow.
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::*;

    #[test]
    fn bytes_are_those_of_tensorflow() {
        // Written by TensorFlow's own `TFRecordWriter`.
        let expected = [3, 0, 0, 0, 0, 0, 0, 0, 0xb0, 0x99, 0x49, 0x0e, b'a', b'b', b'c', 0x6e, 0x57, 0xf1, 0x21];
        assert_eq!(record(b"abc"), expected);
        let event = Event::new(1.5).step(300).scalars(&[("a", 0.25)]);
        let expected = [
            &[0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f][..],
            &[0x10, 0xac, 0x02],
            &[0x2a, 0x0a, 0x0a, 0x08, 0x0a, 0x01, b'a', 0x15, 0, 0, 0x80, 0x3e],
        ];
        assert_eq!(event.0, expected.concat());
    }

    #[test]
    fn every_start_has_a_file_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/events");
        for _ in 0..2 {
            let events = EventFile::start(&place, Arc::new(|_| ())).unwrap();
            events.progress(&Progress { step: 1, loss: Some(0.5), ..Progress::default() });
            events.end();
        }
        let written: Vec<_> =
            fs::read_dir(&place).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap()).collect();
        assert_eq!(written.len(), 2);
        let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(written.iter().all(|bytes| holds(bytes, VERSION) && holds(bytes, "loss/train")));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(EventFile::start(file.path(), Arc::new(|_| ())).is_err());
    }

    #[test]
    fn rates_are_those_of_a_second_at_least() {
        let file = BufWriter::new(tempfile::tempfile().unwrap());
        let mut writer = Writer { file, flushed: Instant::now(), counted: None };
        let rates: Vec<_> = [(0.0, 0), (0.5, 50), (2.0, 200), (3.5, 500), (5.0, 100)]
            .map(|(time, samples)| writer.rate(time, samples))
            .into();
        assert_eq!(rates, [None, None, Some(100.0), Some(200.0), None]);
    }
}
