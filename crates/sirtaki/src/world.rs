//! The processes that train together, and this one's place among them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use sirtaki_comm::{DType, Element, Rank, Reduction, Settings};
use sirtaki_engine::{
    Engine, EngineError, Expected, Operation, Output, Request, Source, Tag, Tensor, Ticket,
    job::{self, Job, Position},
};

use crate::{Result, data::Worker};

/// All processes of a job, from the point of view of one of them. Clones are the same world.
#[derive(Debug, Clone)]
pub struct World {
    engine: Arc<Engine>,
    local: Position,
    /// Which process of its host this is, in the world that all others are part of.
    seat: usize,
    /// How many layers have been given a number.
    layers: Arc<AtomicUsize>,
    /// How many times it was split.
    splits: Arc<AtomicUsize>,
    /// How the processes of the job communicate.
    communication: Arc<Settings>,
}

/// Joins the job that `sirtaki run`, `mpirun`, `srun` or `torchrun` started this process for; without a launcher, the
/// process is a world of one, so that the same program runs everywhere. All ranks call it, once.
pub fn init() -> Result<World> {
    Ok(World::of(discover()?.join()?))
}

/// A world of this process alone, whatever job it is part of.
pub fn alone() -> Result<World> {
    let mut job = Job::discover(&|_| None)?;
    job.engine.warn = Arc::new(warn);
    Ok(World::of(job.join()?))
}

/// The job that this process was started for.
pub(crate) fn discover() -> Result<Job> {
    sirtaki_engine::heap::keep();
    let mut job = Job::discover(&|name| std::env::var(name).ok())?;
    job.engine.warn = Arc::new(warn);
    Ok(job)
}

#[allow(clippy::print_stderr, reason = "warnings are for the people who started the program")]
fn warn(text: &str) {
    eprintln!("sirtaki: {text}");
}

impl World {
    pub(crate) fn of(joined: job::World) -> Self {
        let (local, communication) = (joined.local(), Arc::new(joined.communication().clone()));
        Self::new(joined.into_engine(), local, local.rank, communication)
    }

    fn new(engine: Engine, local: Position, seat: usize, communication: Arc<Settings>) -> Self {
        let (layers, splits) = Default::default();
        Self { engine: Arc::new(engine), local, seat, layers, splits, communication }
    }

    /// Which process this is.
    pub fn rank(&self) -> Rank {
        self.engine.group().rank()
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.engine.group().size()
    }

    /// Which process of its host this is.
    pub fn local_rank(&self) -> usize {
        self.local.rank
    }

    /// How many there are on this host.
    pub fn local_size(&self) -> usize {
        self.local.size
    }

    /// This process as one of those that share the samples.
    pub fn worker(&self) -> Worker {
        Worker { rank: self.rank(), world: self.size() }
    }

    /// The engine that runs the collectives, for whatever `World` does not offer.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The world of some ranks, ascending. All ranks call it; those that are not in it get `None`.
    pub fn subset(&self, name: &str, members: &[Rank]) -> Result<Option<World>> {
        let engine = self.engine.process_set(name, members)?;
        Ok(engine.map(|engine| {
            let local = Position::on_host(engine.group());
            World::new(engine, local, self.seat, self.communication.clone())
        }))
    }

    /// Which process of its host this is, whichever subset it is part of.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only GPUs are numbered"))]
    pub(crate) fn seat(&self) -> usize {
        self.seat
    }

    /// How the processes of the job communicate.
    #[cfg_attr(not(feature = "burn"), allow(dead_code, reason = "parameter servers are for modules here"))]
    pub(crate) fn communication(&self) -> &Settings {
        &self.communication
    }

    /// A number for a split. Ranks split in the same order.
    pub(crate) fn next_split(&self) -> usize {
        self.splits.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for a layer that communicates with its counterparts on other ranks. Ranks make their layers in the same
    /// order.
    #[cfg_attr(not(feature = "burn"), allow(dead_code, reason = "layers are Burn's"))]
    pub(crate) fn next_layer(&self) -> usize {
        self.layers.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends values to one rank, which receives them with the same tag; returns at once. `label` is what errors,
    /// timelines and warnings call them.
    pub fn send<T: Element + Send>(&self, to: Rank, tag: Tag, label: &str, shape: &[usize], values: Vec<T>) -> Ticket {
        self.engine.send(to, tag, label, shape, Tensor::from_vec(values))
    }

    /// Receives what one rank, or the first of any, sends with this tag; returns at once. The ticket's output is an
    /// [`Output::Message`].
    pub fn receive(&self, from: Source, tag: Tag, label: &str, expected: Expected) -> Ticket {
        self.engine.receive(from, tag, label, expected)
    }

    /// The mean of all ranks' values, such as a loss. All ranks call it.
    pub fn average(&self, value: f64) -> Result<f64> {
        Ok(self.reduce("average", Reduction::AVERAGE, vec![value])?[0])
    }

    /// The sum of all ranks' values, such as a number of samples. All ranks call it.
    pub fn sum(&self, value: f64) -> Result<f64> {
        Ok(self.reduce("sum", Reduction::SUM, vec![value])?[0])
    }

    /// The sums of several values; `name` distinguishes calls that ranks may make in different orders. All ranks call
    /// it.
    pub fn sums<const N: usize>(&self, name: &str, values: [f64; N]) -> Result<[f64; N]> {
        let sums = self.reduce(name, Reduction::SUM, values.to_vec())?;
        Ok(std::array::from_fn(|index| sums[index]))
    }

    /// The bytes that rank `root` has. All ranks call it.
    pub(crate) fn broadcast_bytes(&self, name: &str, root: Rank, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mine = if self.rank() == root { bytes.len() as f64 } else { 0.0 };
        let [length] = self.sums(&format!("{name}: length"), [mine])?;
        bytes.resize(length as usize, 0);
        let request = Request::new(name, Operation::Broadcast { root }, DType::U8, &[bytes.len()]);
        elements(name, self.engine.submit(request, Tensor::from_vec(bytes)).wait_one()?)
    }

    pub(crate) fn reduce(&self, name: &str, reduction: Reduction, values: Vec<f64>) -> Result<Vec<f64>> {
        let request = Request::new(name, Operation::AllReduce(reduction), DType::F64, &[values.len()]);
        elements(name, self.engine.submit(request, Tensor::from_vec(values)).wait_one()?)
    }
}

/// The elements of a result, which has the type that was asked for.
pub(crate) fn elements<T: sirtaki_comm::Element + Send>(name: &str, output: Output) -> Result<Vec<T>> {
    output.into_vec().ok_or_else(|| wrong_type(name))
}

/// A result is not what was asked for.
pub(crate) fn wrong_type(name: &str) -> crate::Error {
    EngineError::Invalid { tensor: name.into(), problem: "a result of another type".into() }.into()
}
