//! Rank 0's thread that writes the timeline, so that a slow disk holds up nothing else.

use std::{
    io,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use sirtaki_comm::{Group, Rank};

use super::{
    clock::Offset, horovod_events::HorovodEvents, nanos, record::Record, text::Texts, trace_events::TraceEvents,
    trace_file::JsonFile,
};
use crate::{Warn, settings::TimelineForm};

/// Chunks that may wait; beyond that they are dropped and counted.
const ROOM: usize = 256;
/// How far the thread lowers its priority below that of working threads.
const NICE: i32 = 10;
/// How long ranks may take to hand in their last records.
const PATIENCE: Duration = Duration::from_secs(2);

/// Some records of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chunk {
    /// Converts its clock to rank 0's.
    pub(crate) offset: Offset,
    pub(crate) records: Vec<Record>,
    /// Events that were dropped before them.
    pub(crate) dropped: u64,
}

/// What the thread is given.
#[derive(Debug)]
pub(crate) enum Work {
    /// Records to write.
    Chunk(Rank, Chunk),
    /// Nothing more will come from this rank.
    Last(Rank),
    /// The end, once these ranks have sent their last.
    Stop(Vec<Rank>),
}

/// The thread, seen from outside.
#[derive(Debug)]
pub(crate) struct TimelineWriter {
    work: SyncSender<Work>,
    /// None once its end is being waited for.
    thread: Option<JoinHandle<()>>,
    /// Events dropped because it was too busy.
    lost: u64,
}

impl TimelineWriter {
    /// Starts a timeline in a new file.
    pub(crate) fn start(path: &Path, form: TimelineForm, limit: u64, group: &Group, warn: Warn) -> io::Result<Self> {
        let form = match form {
            TimelineForm::Ranks => Form::Ranks(TraceEvents::new(group.clone(), nanos())),
            TimelineForm::Horovod { cycles } => Form::Horovod(HorovodEvents::new(nanos(), cycles)),
        };
        let file = JsonFile::create(path, limit, &form.head(0, 0))?;
        let clocks = vec![None; group.size()];
        let texts = Texts::default();
        let writer = Writer { path: path.into(), file: Some(file), form, clocks, texts, dropped: 0, error: 0, warn };
        let (work, orders) = sync_channel(ROOM);
        let thread = thread::Builder::new().name("sirtaki-trace".into()).spawn(move || write(writer, &orders))?;
        Ok(Self { work, thread: Some(thread), lost: 0 })
    }

    /// Hands something over without waiting.
    pub(crate) fn give(&mut self, mut work: Work) {
        if let Work::Chunk(_, chunk) = &mut work {
            chunk.dropped += std::mem::take(&mut self.lost);
        }
        if let Err(TrySendError::Full(Work::Chunk(_, chunk))) = self.work.try_send(work) {
            self.lost += chunk.dropped + chunk.records.iter().map(|record| record.weight() as u64).sum::<u64>();
        }
    }

    /// What ends it, for the first caller. Until then others may still hand over their last records.
    pub(crate) fn end(&mut self) -> Option<Closing> {
        Some(Closing { work: self.work.clone(), thread: self.thread.take()? })
    }
}

/// The end of a timeline.
pub(crate) struct Closing {
    work: SyncSender<Work>,
    thread: JoinHandle<()>,
}

impl Closing {
    /// Waits until the file is closed; `awaited` ranks still have something to send.
    pub(crate) fn wait(self, awaited: Vec<Rank>) {
        let _ = self.work.send(Work::Stop(awaited));
        let _ = self.thread.join();
    }
}

/// How records are written down.
enum Form {
    /// Of all ranks.
    Ranks(TraceEvents),
    /// As Horovod's rank 0 does.
    Horovod(HorovodEvents),
}

impl Form {
    fn head(&self, dropped: u64, error: u64) -> String {
        match self {
            Form::Ranks(events) => events.head(dropped, error),
            Form::Horovod(events) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                events.head(since.as_micros())
            }
        }
    }
}

/// The thread's state.
struct Writer {
    path: PathBuf,
    /// None once writing to it has failed.
    file: Option<JsonFile>,
    form: Form,
    /// The clock of each rank as written to the file.
    clocks: Vec<Option<Offset>>,
    texts: Texts,
    dropped: u64,
    /// By how much the clock of any rank may be wrong.
    error: u64,
    warn: Warn,
}

fn write(mut writer: Writer, orders: &Receiver<Work>) {
    // For this thread alone. If the system does not allow it, writing goes on all the same.
    let _ = rustix::process::nice(NICE);
    let mut last: Vec<Rank> = Vec::new();
    let mut stop: Option<(Instant, Vec<Rank>)> = None;
    loop {
        let work = match &stop {
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((_, awaited)) if awaited.iter().all(|rank| last.contains(rank)) => break,
            Some((deadline, _)) => orders.recv_timeout(deadline.saturating_duration_since(Instant::now())),
        };
        match work {
            Ok(Work::Chunk(rank, chunk)) => writer.note(rank, &chunk),
            Ok(Work::Last(rank)) => last.push(rank),
            Ok(Work::Stop(awaited)) => stop = Some((Instant::now() + PATIENCE, awaited)),
            Err(_) => break,
        }
    }
    writer.finish();
    let closed = writer.file.take().map_or(Ok(()), JsonFile::close);
    closed.unwrap_or_else(|error| writer.complain(&error));
}

impl Writer {
    fn note(&mut self, rank: Rank, chunk: &Chunk) {
        let Some(mut file) = self.file.take() else { return };
        match self.write(&mut file, rank, chunk) {
            Ok(()) => self.file = Some(file),
            Err(error) => self.complain(&error),
        }
    }

    fn write(&mut self, file: &mut JsonFile, rank: Rank, chunk: &Chunk) -> io::Result<()> {
        let form = match &mut self.form {
            Form::Ranks(form) => form,
            Form::Horovod(form) => {
                self.texts.clear();
                let records = if rank == 0 { chunk.records.as_slice() } else { &[] };
                records.iter().for_each(|record| form.events(&mut self.texts, record));
                // A file that is full keeps its beginning.
                file.append(&self.texts)?;
                return file.flush();
            }
        };
        let before = (self.dropped, self.error);
        self.dropped += chunk.dropped;
        self.error = self.error.max(chunk.offset.error);
        // Knowledge of a clock gets worse with time; it is written again when its error has doubled.
        let known = |known: &Offset| known.ahead == chunk.offset.ahead && chunk.offset.error <= 2 * known.error;
        self.texts.clear();
        if !self.clocks[rank].as_ref().is_some_and(known) {
            form.clock(&mut self.texts, rank, chunk.offset);
            if file.append(&self.texts)? {
                self.clocks[rank] = Some(chunk.offset);
            }
        }
        for record in &chunk.records {
            self.texts.clear();
            form.events(&mut self.texts, rank, record, chunk.offset);
            if !file.append(&self.texts)? {
                self.dropped += record.weight() as u64;
            }
        }
        file.flush()?;
        if before != (self.dropped, self.error) {
            file.set_head(&form.head(self.dropped, self.error))?;
        }
        Ok(())
    }

    /// Adds what is counted but not written yet.
    fn finish(&mut self) {
        if let (Form::Ranks(form), Some(file)) = (&mut self.form, &mut self.file) {
            self.texts.clear();
            form.finish(&mut self.texts);
            // The end comes anyway, and reports it if the file cannot be written to.
            let _ = file.append(&self.texts);
        }
    }

    fn complain(&self, error: &io::Error) {
        (self.warn)(&format!("the timeline {} ends here: {error}", self.path.display()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn votes(count: u64) -> Chunk {
        let records = (0..count).map(|at| Record::Vote(at * 10, at * 10 + 5)).collect();
        Chunk { offset: Offset { ahead: 100, error: 30 }, records, dropped: 2 }
    }

    #[test]
    fn chunks_are_written_and_dropped_ones_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let mut writer =
            TimelineWriter::start(&path, TimelineForm::Ranks, 40 << 10, &Group::local(0, 2), Arc::new(|_| ())).unwrap();
        writer.give(Work::Chunk(1, votes(2000)));
        writer.give(Work::Last(1));
        writer.end().unwrap().wait(vec![1]);
        let trace = read(&path);
        let events = trace["traceEvents"].as_array().unwrap();
        let written = events.iter().filter(|event| event["name"] == "vote").count() as u64;
        assert!(written > 100 && std::fs::metadata(&path).unwrap().len() <= 40 << 10);
        assert_eq!(trace["otherData"]["dropped"], 2000 - written + 2);
        assert_eq!(trace["otherData"]["clock_error_us"], 0.03);
        let clock = events.iter().find(|event| event["name"] == "clock").unwrap();
        assert_eq!((&clock["pid"], &clock["args"]["ahead_us"]), (&1.into(), &0.1.into()));
    }

    #[test]
    fn a_rank_that_says_nothing_more_is_not_waited_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let mut writer =
            TimelineWriter::start(&path, TimelineForm::Ranks, 1 << 20, &Group::local(0, 2), Arc::new(|_| ())).unwrap();
        writer.end().unwrap().wait(vec![1]);
        assert_eq!(read(&path)["traceEvents"].as_array().unwrap().len(), 1);
    }
}
