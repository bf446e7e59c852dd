//! Joining a job and handing in tensors.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{Bound, Py, PyAny, PyRef, PyResult, Python, pybacked::PyBackedBytes, pyclass, pymethods, types::PyBytes};
use sirtaki_comm::{DType, Group, Rank, secure::Secret};
use sirtaki_engine::{
    Operation, Request, Tensor,
    job::{Meeting, Position, World},
    telemetry::Progress,
};

use crate::{
    error,
    hand_in::{HandIn, Thread},
    job::{Variables, discover, set_timeout},
    meeting::Foreign,
    memory::{self, Described, Events},
    name::Name,
    phase::Phase,
    reduce::{AllReduce, placed, reduction},
    registry::{self, Live},
    ticket::{self, Ticket, misuse},
};

/// The purpose of the codes for objects.
const OBJECTS: &str = "object";

/// All ranks of a job, or some of them, from the point of view of one.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct Engine {
    own: Mutex<Option<Arc<Live>>>,
    /// The process that may use it.
    process: u32,
    group: Group,
    local: Position,
    cross: Position,
    #[pyo3(get)]
    back_end: &'static str,
    /// What only its ranks know; `None` for a process set, which uses that of its job.
    secret: Option<Secret>,
}

impl Engine {
    /// The engine of a process set.
    pub(crate) fn of_set(engine: sirtaki_engine::Engine) -> Self {
        let group = engine.group();
        let (local, cross) = (Position::on_host(group), Position::of_host(group));
        Self::new(engine, local, cross, "set", None)
    }

    /// The engine of a job, or of a group that has met.
    pub(crate) fn of_world(world: World) -> Self {
        let (local, cross, back_end) = (world.local(), world.cross(), world.back_end());
        let secret = world.secret().clone();
        Self::new(world.into_engine(), local, cross, back_end, Some(secret))
    }

    fn new(
        engine: sirtaki_engine::Engine,
        local: Position,
        cross: Position,
        back_end: &'static str,
        secret: Option<Secret>,
    ) -> Self {
        let (group, process) = (engine.group().clone(), std::process::id());
        let own = Mutex::new(Some(Live::new(engine)));
        Self { own, process, group, local, cross, back_end, secret }
    }

    /// Its ranks, and where they are.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    pub(crate) fn secret(&self) -> PyResult<&Secret> {
        self.secret.as_ref().ok_or_else(|| misuse("a process set has no secret of its own"))
    }

    pub(crate) fn own(&self, py: Python<'_>) -> PyResult<Arc<Live>> {
        if self.process != std::process::id() {
            return Err(error::forked(py));
        }
        self.own.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(|| error::closed(py))
    }

    /// Hands in tensors for the same operation: a single one, or a group.
    fn submit(
        &self,
        py: Python<'_>,
        name: &Name,
        tensors: Vec<Described>,
        mut request: impl FnMut(&str, DType, &[usize]) -> Request,
        in_place: bool,
    ) -> PyResult<Ticket> {
        let own = self.own(py)?;
        let count = tensors.len();
        let (mut requests, mut events) = (Vec::with_capacity(count), Events::default());
        for (index, described) in tensors.into_iter().enumerate() {
            let (tensor, dtype, shape) = memory::tensor(described, &mut events)?;
            let request = match count {
                1 => request(name.text(), dtype, &shape),
                _ => request(&format!("{}.{index}", name.text()), dtype, &shape),
            };
            requests.push((name.complete(placed(request, &tensor)), tensor));
        }
        Ok(Ticket::new(own.submit(name.text(), requests), in_place))
    }

    fn without_data(&self, py: Python<'_>, name: &str, operation: Operation, in_place: bool) -> PyResult<Ticket> {
        let request = Request::new(name, operation, DType::U8, &[0]);
        let requests = vec![(request, Tensor::empty())];
        Ok(Ticket::new(self.own(py)?.submit(name, requests), in_place))
    }
}

#[pymethods]
impl Engine {
    /// Joins the job that this process was started for. `defaults` are `SIRTAKI_*` variables for those that the
    /// environment does not set; `round` counts how often this process has joined before. If `timeout` is given, the
    /// others have that many seconds to come, however long a launcher would wait.
    #[staticmethod]
    #[pyo3(signature = (defaults, round, timeout = None))]
    fn join_job(py: Python<'_>, defaults: Variables, round: usize, timeout: Option<f64>) -> PyResult<Engine> {
        let mut job = discover(py, &defaults)?;
        job.round = round;
        set_timeout(&mut job, timeout);
        let world = match job.place.meeting {
            // MPI has to be used from the program's own thread.
            Meeting::Mpi(_) => py.detach(|| job.join()),
            _ => ticket::interruptible(py, move || job.join())?,
        };
        Ok(Engine::of_world(world.map_err(|error| error::of_job(py, &error))?))
    }

    /// Meets the ranks of a group in `store`; see [`Foreign`]. `place` is rank and size, `whole` says that the group
    /// has all ranks; `defaults` and `timeout` are the same as for a job. What the ranks prove to each other is derived
    /// from what the ranks of `world` know.
    #[staticmethod]
    #[pyo3(signature = (store, place, whole, defaults, timeout = None, world = None))]
    fn meet(
        py: Python<'_>,
        store: Py<PyAny>,
        place: (Rank, usize),
        whole: bool,
        defaults: Variables,
        timeout: Option<f64>,
        world: Option<PyRef<'_, Engine>>,
    ) -> PyResult<Engine> {
        let mut job = discover(py, &defaults)?;
        set_timeout(&mut job, timeout);
        if !whole {
            // The files of the whole job have the same names.
            (job.engine.timeline, job.engine.profile) = (None, None);
            job.engine.device.subset = true;
        }
        let store = Arc::new(Foreign::new(store));
        let secret = world.and_then(|world| world.secret.clone());
        let met = py.detach(|| job.meet(store.clone(), Position { rank: place.0, size: place.1 }, secret.as_ref()));
        Ok(Engine::of_world(met.map_err(|error| store.raised().unwrap_or_else(|| error::of_job(py, &error)))?))
    }

    /// Has code without the interpreter find this engine by a number: that of its process set, 0 for all ranks.
    fn publish(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        registry::publish(number, &self.own(py)?);
        Ok(())
    }

    /// A code that proves that a rank of this engine sent these parts, in this order.
    fn seal<'py>(&self, py: Python<'py>, parts: Vec<PyBackedBytes>) -> PyResult<Bound<'py, PyBytes>> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
        Ok(PyBytes::new(py, &self.secret()?.tag(OBJECTS, &parts)))
    }

    /// Whether `code` is the one for these parts.
    fn is_sealed(&self, parts: Vec<PyBackedBytes>, code: &[u8]) -> PyResult<bool> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
        Ok(self.secret()?.verify(OBJECTS, &parts, code))
    }

    #[getter]
    fn rank(&self) -> Rank {
        self.group.rank()
    }

    #[getter]
    fn size(&self) -> usize {
        self.group.size()
    }

    /// This process's number on its host, and how many there are.
    #[getter]
    fn local(&self) -> (usize, usize) {
        (self.local.rank, self.local.size)
    }

    /// This host's number, and how many there are.
    #[getter]
    fn cross(&self) -> (usize, usize) {
        (self.cross.rank, self.cross.size)
    }

    /// How tensors of GPUs travel and why, in words; `None` before the first of them.
    #[getter]
    fn device_way(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.own(py)?.engine().device_way().map(str::to_owned))
    }

    /// Whether all hosts have the same number of ranks.
    #[getter]
    fn homogeneous(&self) -> bool {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        self.group.members().iter().for_each(|member| *counts.entry(&member.host_id).or_default() += 1);
        let mut counts = counts.values();
        counts.next().is_none_or(|first| counts.all(|count| count == first))
    }

    /// Reduces tensors in place. `op` is a word of `OPERATIONS`; `wire` is the type in which to travel.
    #[pyo3(signature = (name, tensors, op, before = 1.0, after = 1.0, wire = None))]
    #[allow(clippy::too_many_arguments, reason = "Python names them, and the interpreter is one of them")]
    fn all_reduce(
        &self,
        py: Python<'_>,
        name: Name,
        tensors: Vec<Described>,
        op: &str,
        before: f64,
        after: f64,
        wire: Option<&str>,
    ) -> PyResult<Ticket> {
        let kind = AllReduce::new(op, before, after, wire)?;
        self.submit(py, &name, tensors, |name, dtype, shape| kind.request(name, dtype, shape), true)
    }

    /// Reduces tensors in place, each under its own name, which must not be in use.
    #[pyo3(signature = (names, tensors, op, before = 1.0, after = 1.0, wire = None))]
    #[allow(clippy::too_many_arguments, reason = "Python names them, and the interpreter is one of them")]
    fn all_reduce_each(
        &self,
        py: Python<'_>,
        names: Vec<String>,
        tensors: Vec<Described>,
        op: &str,
        before: f64,
        after: f64,
        wire: Option<&str>,
    ) -> PyResult<Ticket> {
        let (own, kind) = (self.own(py)?, AllReduce::new(op, before, after, wire)?);
        if names.len() != tensors.len() {
            return Err(misuse(format!("{} names for {} tensors", names.len(), tensors.len())));
        }
        let (mut requests, mut events) = (Vec::with_capacity(names.len()), Events::default());
        for (name, described) in names.iter().zip(tensors) {
            let (tensor, dtype, shape) = memory::tensor(described, &mut events)?;
            requests.push((placed(kind.request(name, dtype, &shape), &tensor), tensor));
        }
        let submitted = own.submit_each(names, requests);
        let ticket = submitted.map_err(|name| misuse(format!("{name} is in use; wait for it first")))?;
        Ok(Ticket::new(ticket, true))
    }

    /// Gathers the rows of all ranks; `room` says how many from each rank there is room for, by tensor, if that is
    /// limited. With `of_all` a rank that has joined makes it fail; otherwise that rank brings none.
    #[pyo3(signature = (name, tensors, of_all = true, room = Vec::new()))]
    fn all_gather(
        &self,
        py: Python<'_>,
        name: Name,
        tensors: Vec<Described>,
        of_all: bool,
        room: Vec<Vec<usize>>,
    ) -> PyResult<Ticket> {
        let mut room = room.into_iter();
        let request = |name: &str, dtype, shape: &[usize]| {
            let request = Request::new(name, Operation::AllGather, dtype, shape);
            Request { of_all, room: room.next().unwrap_or_default(), ..request }
        };
        self.submit(py, &name, tensors, request, false)
    }

    /// Replaces tensors by those of `root`.
    fn broadcast(&self, py: Python<'_>, name: Name, tensors: Vec<Described>, root: Rank) -> PyResult<Ticket> {
        let operation = Operation::Broadcast { root };
        let request = |name: &str, dtype, shape: &[usize]| Request::new(name, operation.clone(), dtype, shape).of_all();
        self.submit(py, &name, tensors, request, true)
    }

    /// Sends rows to other ranks; `room` says how many from each there is room for, if that is limited.
    #[pyo3(signature = (name, tensor, splits, room = Vec::new()))]
    fn all_to_all(
        &self,
        py: Python<'_>,
        name: Name,
        tensor: Described,
        splits: Vec<usize>,
        room: Vec<usize>,
    ) -> PyResult<Ticket> {
        let operation = Operation::AllToAll { splits };
        let request = |name: &str, dtype, shape: &[usize]| {
            let request = Request::new(name, operation.clone(), dtype, shape).of_all();
            Request { room: room.clone(), ..request }
        };
        self.submit(py, &name, vec![tensor], request, false)
    }

    /// Reduces tensors and gives every rank its share of the rows. The input is overwritten.
    #[pyo3(signature = (name, tensors, op, before = 1.0, after = 1.0))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        name: Name,
        tensors: Vec<Described>,
        op: &str,
        before: f64,
        after: f64,
    ) -> PyResult<Ticket> {
        let operation = Operation::ReduceScatter(reduction(op)?.scaled(before, after));
        let request = |name: &str, dtype, shape: &[usize]| Request::new(name, operation.clone(), dtype, shape).of_all();
        self.submit(py, &name, tensors, request, false)
    }

    /// Meets all ranks.
    fn barrier(&self, py: Python<'_>, name: Name) -> PyResult<Ticket> {
        self.without_data(py, name.text(), Operation::Barrier, true)
    }

    /// Something will be submitted later for a thread, by whichever thread enters the result.
    fn hand_in(&self, py: Python<'_>, thread: &Thread) -> PyResult<HandIn> {
        Ok(HandIn::new(self.own(py)?.engine().hand_in_for(thread.0)))
    }

    /// Announces that this rank has no more data.
    fn join(&self, py: Python<'_>) -> PyResult<Ticket> {
        self.without_data(py, "join", Operation::Join, false)
    }

    /// Makes an engine for some of the ranks; the others get `None`.
    fn process_set(&self, py: Python<'_>, name: &str, members: Vec<Rank>) -> PyResult<Ticket> {
        self.without_data(py, name, Operation::ProcessSet { members }, false)
    }

    /// Has rank 0 write a timeline of all ranks to a new file.
    fn start_timeline(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let own = self.own(py)?;
        py.detach(|| own.engine().start_timeline(&path)).map_err(|error| error::of_engine(py, &error))
    }

    /// Ends the timeline; does nothing if there is none.
    fn stop_timeline(&self, py: Python<'_>) -> PyResult<()> {
        let own = self.own(py)?;
        py.detach(|| own.engine().stop_timeline());
        Ok(())
    }

    /// Reports how far this process has come. Whatever is not known is `None`.
    #[pyo3(signature = (step, steps, epoch, epochs, samples, learned))]
    #[allow(clippy::too_many_arguments, reason = "Python names them, and the interpreter is one of them")]
    fn progress(
        &self,
        py: Python<'_>,
        step: u64,
        steps: Option<u64>,
        epoch: Option<f64>,
        epochs: Option<u64>,
        samples: Option<u64>,
        learned: [Option<f64>; 4],
    ) -> PyResult<()> {
        let [loss, accuracy, test_loss, test_accuracy] = learned;
        let progress = Progress { step, steps, epoch, epochs, samples, loss, accuracy, test_loss, test_accuracy };
        self.own(py)?.engine().progress(&progress);
        Ok(())
    }

    /// Settings of the program, for the folder of its run.
    fn describe(&self, py: Python<'_>, settings: BTreeMap<String, String>) -> PyResult<()> {
        self.own(py)?.engine().describe(settings);
        Ok(())
    }

    /// This process is in a part of a training step (`input`, `forward`, `backward` or `optimizer`) until the result
    /// ends.
    fn phase(&self, py: Python<'_>, name: &str) -> PyResult<Phase> {
        let phase = sirtaki_engine::Phase::ALL.into_iter().find(|phase| phase.name() == name);
        let phase = phase.ok_or_else(|| misuse(format!("{name} is not a phase of a training step")))?;
        Ok(Phase::new(self.own(py)?.engine().phase(phase)))
    }

    /// Leaves the job in good order. Requests that are not done fail.
    fn close(&self, py: Python<'_>) {
        if self.process != std::process::id() {
            return;
        }
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(own));
    }
}
