//! The engine as its users see it.

use std::{
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
    thread::{self, JoinHandle},
};

use sirtaki_comm::{CommError, Communicator, DType, Group, Rank};

use crate::{
    EngineError, Settings,
    agree::Table,
    control::Star,
    ending,
    inbox::{Command, Inbox},
    memory::Tensor,
    owner::Owner,
    recorder::Recorder,
    request::{Bundle, Operation, Request},
    run::Runner,
    shared::{Activity, Shared},
    ticket::{Output, Promise, Ticket},
    watch,
};

/// Takes named tensors from any thread and runs collectives on them in an order all ranks agree on.
///
/// Dropping it leaves the other ranks in good order; what was not done fails.
pub struct Engine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("rank", &self.group().rank()).field("size", &self.group().size()).finish()
    }
}

impl Engine {
    /// Starts an engine over all ranks of `world`, which all call it. `comm` is what the links between them use.
    pub fn start(
        world: Box<dyn Communicator>,
        comm: &sirtaki_comm::Settings,
        settings: Settings,
    ) -> Result<Engine, EngineError> {
        Self::start_recording(world, comm, settings, Recorder::create()?)
    }

    /// As [`Engine::start`], with the memory to record in.
    pub fn start_recording(
        mut world: Box<dyn Communicator>,
        comm: &sirtaki_comm::Settings,
        settings: Settings,
        recorder: Recorder,
    ) -> Result<Engine, EngineError> {
        let group = world.group().clone();
        let star = Star::connect(&mut *world, comm)?;
        let recorder = if settings.record { recorder } else { recorder.silenced() };
        let processes = ending::watch(&group);
        let records = watch::exchange_records(&mut *world, &recorder)?;
        let table = (group.rank() == 0).then(|| {
            let mut table = Table::new(group.size(), settings.limits);
            table.set_adopting(settings.adopt);
            table.set_recording(settings.record);
            Mutex::new(table)
        });
        let shared = Arc::new(Shared {
            group,
            inbox: Inbox::new()?,
            table,
            star: Mutex::new(star),
            recorder,
            records,
            processes,
            settings,
            silence: comm.timeout,
            activity: Activity::default(),
            stopper: world.stopper(),
            complaints: Mutex::default(),
            watcher: OnceLock::new(),
            ended: AtomicBool::new(false),
            tuned: Mutex::default(),
        });
        let owner = Owner::new(shared.clone(), Runner::new(world, comm.algorithm), comm.clone())?;
        let mut engine = Engine { shared: shared.clone(), threads: Vec::new() };
        engine.spawn("sirtaki-engine", move || owner.run())?;
        engine.spawn("sirtaki-watch", move || watch::run(&shared))?;
        Ok(engine)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), CommError> {
        let thread = thread::Builder::new().name(name.into()).spawn(work);
        self.threads.push(thread.map_err(|error| CommError::io("cannot start a thread", error))?);
        Ok(())
    }

    /// All ranks, and which one this is.
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// Hands in one tensor. Returns at once; the ticket tells when it is done.
    pub fn submit(&self, request: Request, tensor: Tensor) -> Ticket {
        self.hand_in(vec![(request, tensor)])
    }

    /// Hands in several tensors that are done together or not at all.
    pub fn submit_group(&self, name: &str, mut requests: Vec<(Request, Tensor)>) -> Ticket {
        let bundle = Bundle { name: name.into(), size: requests.len() };
        requests.iter_mut().for_each(|(request, _)| request.bundle = Some(bundle.clone()));
        self.hand_in(requests)
    }

    fn hand_in(&self, requests: Vec<(Request, Tensor)>) -> Ticket {
        let promise = Promise::new(requests.len());
        let size = self.group().size();
        match requests.iter().find_map(|(request, tensor)| problem(request, tensor, size)) {
            Some(error) => promise.fail(error),
            None => self.shared.inbox.send(Command::Submit(requests, promise.clone())),
        }
        Ticket(promise)
    }

    /// Returns once all ranks have called it.
    pub fn barrier(&self, name: &str) -> Result<(), EngineError> {
        let request = Request::new(name, Operation::Barrier, DType::U8, &[0]);
        self.submit(request, Tensor::empty()).wait().map(drop)
    }

    /// Says that this rank has no more data. Until all ranks have said so it helps the others with whatever they do;
    /// returns the last one to say it.
    pub fn join(&self) -> Result<Rank, EngineError> {
        let request = Request::new("join", Operation::Join, DType::U8, &[0]);
        match self.submit(request, Tensor::empty()).wait_one()? {
            Output::Joined(last) => Ok(last),
            other => Err(strange("join", &other)),
        }
    }

    /// Makes an engine for some of the ranks, ascending. All ranks call it; the others get `None`. It has a thread and
    /// links of its own, so both can be used at the same time.
    pub fn process_set(&self, name: &str, members: &[Rank]) -> Result<Option<Engine>, EngineError> {
        let operation = Operation::ProcessSet { members: members.to_vec() };
        let request = Request::new(name, operation, DType::U8, &[0]);
        match self.submit(request, Tensor::empty()).wait_one()? {
            Output::Set(engine) => Ok(engine.map(|engine| *engine)),
            other => Err(strange(name, &other)),
        }
    }

    /// How others on this host find this rank's flight record: process id and descriptor; see [`Recorder::open`].
    pub fn record_address(&self) -> (u32, i32) {
        self.shared.recorder.address()
    }

    /// Who came late, what this rank did last, and what tuning found.
    pub fn report(&self) -> crate::report::Report {
        crate::report::make(&self.shared)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.inbox.send(Command::Close);
        for thread in self.threads.drain(..) {
            // Watchers look up from time to time; this one need not wait for that.
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn problem(request: &Request, tensor: &Tensor, size: usize) -> Option<EngineError> {
    let brings = (tensor.dtype(), tensor.len());
    let problem = request.problem(size).or_else(|| {
        (brings != (request.dtype, request.elements())).then(|| {
            let (dtype, shape) = (request.dtype.name(), &request.shape);
            format!("{} {} do not make {dtype} of shape {shape:?}", brings.1, brings.0.name())
        })
    })?;
    Some(EngineError::Invalid { tensor: request.name.clone(), problem })
}

fn strange(tensor: &str, output: &Output) -> EngineError {
    EngineError::Invalid { tensor: tensor.into(), problem: format!("an unexpected result: {output:?}") }
}
