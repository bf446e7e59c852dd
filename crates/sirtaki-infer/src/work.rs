//! One process at work: it takes tiles from the ledger, and reads, computes and writes them, three at a time.
//!
//! While a tile is computed, a thread of its own reads the next one, and another one writes the one before. Whoever
//! computes does so in the thread that called, because models may belong to it. Leases are renewed as long as the process
//! lives; the tiles of one that died go to others when they run out, or when whoever started it gives them back.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sirtaki_volume::{
    grid::plan::{Plan, Tile},
    ledger::Ledger,
};

use crate::{Content, InferError, Job, Model, apply, labels::Labelled, sink::Sink, source::Source};

/// How long a tile is leased, in seconds.
pub const LEASE: u64 = 60;
/// How often leases are renewed.
const RENEW: Duration = Duration::from_secs(20);
/// How often a process that has nothing to do looks whether there is something.
const LOOK: Duration = Duration::from_millis(100);

/// What a worker is told about itself.
pub struct Worker<'a> {
    /// Its name in the ledger, unlike that of any other.
    pub name: String,
    /// Its number among so many that were started together: each begins somewhere else.
    pub place: (usize, usize),
    /// Set when it should end early, in good order.
    pub stop: &'a AtomicBool,
    /// Seconds since 1970.
    pub now: &'a (dyn Fn() -> u64 + Sync),
}

impl std::fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a worker has done, and where its time went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its name in the ledger.
    pub name: String,
    /// Tiles that it has done.
    pub tiles: u64,
    /// Voxels that it has read for them.
    pub voxels: u64,
    /// Seconds from its first tile to its last.
    pub seconds: f64,
    /// Seconds of reading, beside computing.
    pub reading: f64,
    /// Seconds of computing.
    pub computing: f64,
    /// Seconds of writing, beside computing.
    pub writing: f64,
    /// Seconds of numbering objects over the whole volume, after all tiles.
    #[serde(default)]
    pub labelling: f64,
    /// Objects of the whole volume, where they were numbered.
    #[serde(default)]
    pub objects: Option<u64>,
    /// The most memory that its process had, in bytes, if that is known.
    #[serde(default)]
    pub memory: u64,
}

/// What all threads of a worker use.
pub(crate) struct Shared<'a> {
    pub(crate) job: &'a Job,
    pub(crate) plan: &'a Plan,
    /// All tiles, in the order in which this process would take them.
    pub(crate) order: Vec<u64>,
    ledger: Mutex<&'a mut Ledger>,
    worker: &'a Worker<'a>,
    /// Why it ends, if something failed.
    failed: Mutex<Option<InferError>>,
    ended: AtomicBool,
}

/// A tile with the values that were read for it.
type Read = (Tile, Vec<f32>);
/// A tile with its channels and the values of its core.
type Computed = (Tile, usize, Vec<f32>);

/// Works until all tiles are done, whoever did them, or until it is asked to stop.
pub fn work(
    job: &Job,
    model: &mut dyn Model,
    ledger: &mut Ledger,
    worker: &Worker<'_>,
) -> Result<WorkerReport, InferError> {
    let plan = job.plan()?;
    let mut order = job.order(&plan)?;
    let (rank, size) = worker.place;
    let first = order.len() * rank.min(size) / size.max(1);
    order.rotate_left(first);
    let source = Source::open(&job.settings.input, &job.settings.choices)?;
    let sink = Sink::open(job)?;
    let shared = Shared {
        job,
        plan: &plan,
        order,
        ledger: Mutex::new(ledger),
        worker,
        failed: Mutex::new(None),
        ended: AtomicBool::new(false),
    };
    let (to_compute, read) = sync_channel::<Read>(0);
    let (to_write, computed) = sync_channel::<Computed>(1);
    let (over, renewing) = channel::<()>();
    let began = Instant::now();
    let (reading, computing, writing, labelled) = thread::scope(|scope| {
        let shared = &shared;
        let reader = scope.spawn(|| shared.guard(shared.read(&source, to_compute)));
        let writer = scope.spawn(|| shared.guard(shared.write(&sink, computed)));
        scope.spawn(move || shared.renew(&renewing));
        let computing = shared.guard(shared.compute(model, read, to_write));
        let (reading, writing) = (reader.join(), writer.join());
        let passed_on = |panic| std::panic::resume_unwind(panic);
        let (reading, writing) = (reading.unwrap_or_else(passed_on), writing.unwrap_or_else(passed_on));
        let labelled = match job.settings.content {
            Content::Labels => shared.guard(shared.label(&sink)),
            _ => Labelled::default(),
        };
        drop(over);
        (reading, computing, writing, labelled)
    });
    let seconds = began.elapsed().as_secs_f64();
    if let Some(error) = shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let (tiles, voxels) = writing.done;
    let report = WorkerReport {
        name: worker.name.clone(),
        tiles,
        voxels,
        seconds,
        reading: reading.seconds,
        computing: computing.seconds,
        writing: writing.seconds,
        labelling: labelled.seconds,
        objects: labelled.objects,
        memory: 0,
    };
    Ok(report)
}

/// What one of the threads has done.
#[derive(Debug, Default)]
struct Spent {
    seconds: f64,
    /// Tiles, and voxels read for them.
    done: (u64, u64),
}

impl<'a> Shared<'a> {
    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) || self.worker.stop.load(Ordering::Acquire)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, &'a mut Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the first error, which ends all threads.
    fn guard<T: Default>(&self, result: Result<T, InferError>) -> T {
        result.unwrap_or_else(|error| {
            self.ended.store(true, Ordering::Release);
            self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            T::default()
        })
    }

    /// The next of these steps that nobody has; nothing when all are done or it is over. Waits while others have the last
    /// ones.
    pub(crate) fn claim(&self, steps: &[u64]) -> Result<Option<u64>, InferError> {
        while !self.is_over() {
            let mut ledger = self.ledger();
            if let Some(step) = ledger.claim(steps, 1, (self.worker.now)(), LEASE)?.first() {
                return Ok(Some(*step));
            }
            let done = steps.iter().all(|step| ledger.done().contains_key(step));
            drop(ledger);
            if done {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
        Ok(None)
    }

    fn read(&self, source: &Source, to: SyncSender<Read>) -> Result<Spent, InferError> {
        let mut spent = Spent::default();
        while let Some(number) = self.claim(&self.order)? {
            let tile = self.plan.tile(number);
            let began = Instant::now();
            let values = apply::read(self.job, source, &tile.read).map_err(|error| at(&tile, error.into()))?;
            spent.seconds += began.elapsed().as_secs_f64();
            if self.is_over() || to.send((tile, values)).is_err() {
                self.ledger().give_back(&[number])?;
                break;
            }
        }
        Ok(spent)
    }

    fn compute(
        &self,
        model: &mut dyn Model,
        from: Receiver<Read>,
        to: SyncSender<Computed>,
    ) -> Result<Spent, InferError> {
        let mut spent = Spent::default();
        for (tile, values) in from {
            if self.is_over() {
                self.ledger().give_back(&[tile.number])?;
                break;
            }
            let began = Instant::now();
            let computed = apply::compute(self.job, model, &tile, values);
            let (channels, values) = computed.map_err(|error| at(&tile, error))?;
            spent.seconds += began.elapsed().as_secs_f64();
            if to.send((tile, channels, values)).is_err() {
                break;
            }
        }
        Ok(spent)
    }

    fn write(&self, sink: &Sink<'_>, from: Receiver<Computed>) -> Result<Spent, InferError> {
        let mut spent = Spent::default();
        for (tile, channels, values) in from {
            let began = Instant::now();
            let written = match self.job.settings.content {
                Content::Labels => self.keep_labels(sink, &tile, channels, &values),
                _ => {
                    let bytes = sink.encode(&tile.core, channels, values);
                    bytes.and_then(|bytes| sink.write(&tile.core, &bytes)).map_err(InferError::from)
                }
            };
            let sum = written.map_err(|error| at(&tile, error))?;
            self.ledger().finish(tile.number, sum)?;
            spent.seconds += began.elapsed().as_secs_f64();
            spent.done = (spent.done.0 + 1, spent.done.1 + tile.read.voxels());
        }
        Ok(spent)
    }

    /// Renews leases until the worker is through. What cannot be renewed runs out, and is computed again at worst.
    fn renew(&self, over: &Receiver<()>) {
        while matches!(over.recv_timeout(RENEW), Err(RecvTimeoutError::Timeout)) {
            let _ = self.ledger().renew((self.worker.now)(), LEASE);
        }
    }
}

pub(crate) fn at(tile: &Tile, error: InferError) -> InferError {
    InferError::Tile { number: tile.number, core: tile.core.clone(), error: Box::new(error) }
}
