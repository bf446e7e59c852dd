//! The engine as its users see it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
    thread::{self, JoinHandle, ThreadId},
    time::Duration,
};

use sirtaki_comm::{CommError, Communicator, DType, Group, Rank};

use crate::{
    EngineError, Settings,
    decide::{
        agree::Table,
        channel::Tag,
        request::{Bundle, Operation, Request},
    },
    runtime::{
        callers::{Callers, Doing, HandIn},
        channel::{Channel, Expected, Source},
        control::Star,
        device::DeviceSettings,
        ending,
        inbox::{Command, Inbox},
        memory::Tensor,
        owner::Owner,
        run::Runner,
        shared::{Activity, Shared, now},
        ticket::{Observers, Output, Pledge, Promise, Ticket},
        watch,
    },
    telemetry::{InPhase, InSpan, Progress, Stream, Telemetry, counts::Phase, profile::Profile, recorder::Recorder},
};

/// Takes named tensors from any thread and runs collectives on them in an order all ranks agree on.
///
/// Dropping it leaves the other ranks in good order; requests that are not done fail.
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
        world: Box<dyn Communicator>,
        comm: &sirtaki_comm::Settings,
        settings: Settings,
        recorder: Recorder,
    ) -> Result<Engine, EngineError> {
        let engine = Self::start_within(world, comm, settings, recorder, None)?;
        let Settings { timeline, warn, .. } = &engine.shared.settings;
        if let (Some(path), Err(error)) = (timeline, engine.shared.start_first_timeline()) {
            warn(&no_timeline(path, &error).to_string());
        }
        engine.shared.start_listeners();
        engine.shared.check_profile();
        Ok(engine)
    }

    /// As [`Engine::start_recording`]; what happens goes into the stream of another engine of this process, if this one
    /// is inside that.
    pub(crate) fn start_within(
        mut world: Box<dyn Communicator>,
        comm: &sirtaki_comm::Settings,
        settings: Settings,
        recorder: Recorder,
        outer: Option<Arc<Stream>>,
    ) -> Result<Engine, EngineError> {
        let group = world.group().clone();
        let star = Star::connect(&mut *world, comm)?;
        let recorder = Arc::new(if settings.record { recorder } else { recorder.silenced() });
        let processes = ending::watch(&group);
        let records = watch::exchange_records(&mut *world, &recorder)?;
        let table = (group.rank() == 0).then(|| {
            let mut table = Table::new(group.size(), settings.limits);
            table.set_adopting(settings.adopt);
            table.set_names_limit(settings.names_limit);
            Mutex::new(table)
        });
        let carries = outer.is_none();
        let counted = settings.wants_counts();
        let stream = outer.unwrap_or_else(|| Arc::new(Stream::new(recorder.clone(), counted)));
        let inbox = Arc::new(Inbox::new()?);
        let shared = Arc::new(Shared {
            callers: Callers::new(inbox.clone()),
            telemetry: Telemetry::new(stream, carries, group.size()),
            group,
            inbox,
            table,
            star: Mutex::new(star),
            recorder,
            records,
            processes,
            settings,
            comm: comm.clone(),
            channel: Channel::default(),
            silence: comm.timeout,
            activity: Activity::default(),
            stopper: world.stopper(),
            complaints: Mutex::default(),
            asked: AtomicBool::new(false),
            answering: AtomicBool::new(false),
            answers: Mutex::default(),
            watcher: OnceLock::new(),
            ended: AtomicBool::new(false),
            device: OnceLock::new(),
        });
        let device = DeviceSettings { encrypted: comm.tls, ..shared.settings.device.clone() };
        let (warn, stream) = (shared.settings.warn.clone(), shared.telemetry.stream.clone());
        let owner = Owner::new(shared.clone(), Runner::new(world, device, warn, stream), comm.clone())?;
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
        self.submit_all(vec![(request, tensor)])
    }

    /// Hands in several tensors that are done together or not at all.
    pub fn submit_group(&self, name: &str, requests: Vec<(Request, Tensor)>) -> Ticket {
        self.submit_all(bundled(name, requests))
    }

    /// Hands in several tensors that have nothing to do with each other; the ticket is done when all of them are, or one
    /// has failed.
    pub fn submit_each(&self, requests: Vec<(Request, Tensor)>) -> Ticket {
        self.submit_all(requests)
    }

    fn submit_all(&self, requests: Vec<(Request, Tensor)>) -> Ticket {
        let promise = self.promise(&requests);
        if !promise.is_done() {
            let pledge = Arc::new(Pledge(promise.clone()));
            self.shared.inbox.send(Command::Submit(requests, pledge, now()));
        }
        Ticket(promise)
    }

    /// As [`Engine::submit`], but not before an earlier request of this engine is done: the way to reuse its name.
    pub fn submit_after(&self, before: &Ticket, request: Request, tensor: Tensor) -> Ticket {
        self.submit_all_after(before, vec![(request, tensor)])
    }

    /// As [`Engine::submit_group`], but not before an earlier request of this engine is done.
    pub fn submit_group_after(&self, before: &Ticket, name: &str, requests: Vec<(Request, Tensor)>) -> Ticket {
        self.submit_all_after(before, bundled(name, requests))
    }

    fn submit_all_after(&self, before: &Ticket, requests: Vec<(Request, Tensor)>) -> Ticket {
        let promise = self.promise(&requests);
        if !promise.is_done() {
            let (shared, later) = (self.shared.clone(), Pledge(promise.clone()));
            // An engine that has ended no longer looks at commands.
            before.0.when_settled(Box::new(move |over| match over {
                Some(error) => later.fail(error),
                None => shared.inbox.send(Command::Submit(requests, Arc::new(later), now())),
            }));
        }
        Ticket(promise)
    }

    /// A promise for these requests, already broken if one of them cannot be right.
    fn promise(&self, requests: &[(Request, Tensor)]) -> Arc<Promise> {
        let (stream, callers) = (self.shared.telemetry.stream.clone(), self.shared.callers.clone());
        callers.submit();
        let promise = Promise::new(requests.len(), Some(Observers { stream, callers, helper: None }));
        let size = self.group().size();
        if let Some(error) = requests.iter().find_map(|(request, tensor)| problem(request, tensor, size)) {
            promise.fail(error);
        }
        promise
    }

    /// Announces that this thread, or another one for it, will submit something later, for example once a device has
    /// copied it. Without this, a rank whose threads all wait counts as one that will submit nothing more.
    pub fn hand_in(&self) -> HandIn {
        self.hand_in_for(thread::current().id())
    }

    /// As [`Engine::hand_in`], for a thread that could not do so itself, for example because there was no engine yet.
    pub fn hand_in_for(&self, thread: ThreadId) -> HandIn {
        HandIn::new(&self.shared.callers, thread, None)
    }

    /// Until the result is dropped, what this thread submits and waits for counts as done by `thread`, which is blocked
    /// meanwhile: a framework may compute in threads of its own while the one that asked for the results waits.
    pub fn act_for(&self, thread: ThreadId) -> Doing {
        Doing::for_thread(&self.shared.callers, thread)
    }

    /// Sends a tensor to one rank, which receives it with the same tag. Messages of one tag arrive in the order in which
    /// they were sent. Returns at once; the ticket gives the tensor back when its memory may be used again, and that is
    /// not before the other rank has asked for it: nobody keeps messages that nobody wants. `label` is what errors,
    /// timelines and warnings call it.
    pub fn send(&self, to: Rank, tag: Tag, label: &str, shape: &[usize], tensor: Tensor) -> Ticket {
        self.shared.send_message(to, tag, label, shape, tensor)
    }

    /// Receives a message of this tag from one rank or from any; the output is an [`Output::Message`]. Receives of one
    /// tag are answered in the order in which they were made.
    pub fn receive(&self, from: Source, tag: Tag, label: &str, expected: Expected) -> Ticket {
        self.shared.receive_message(from, tag, label, expected)
    }

    /// Returns once all ranks have called it.
    pub fn barrier(&self, name: &str) -> Result<(), EngineError> {
        let request = Request::new(name, Operation::Barrier, DType::U8, &[0]);
        self.submit(request, Tensor::empty()).wait().map(drop)
    }

    /// Announces that this rank has no more data. Until all ranks have done so, it helps the others with whatever they
    /// do; returns the rank that was last.
    pub fn join(&self) -> Result<Rank, EngineError> {
        let request = Request::new("join", Operation::Join, DType::U8, &[0]);
        match self.submit(request, Tensor::empty()).wait_one()? {
            Output::Joined(last) => Ok(last),
            other => Err(strange("join", &other)),
        }
    }

    /// Makes an engine for some of the ranks, given in ascending order. All ranks call it; non-members get `None`. It
    /// has a thread and links of its own, so both engines can be used at the same time.
    pub fn process_set(&self, name: &str, members: &[Rank]) -> Result<Option<Engine>, EngineError> {
        let operation = Operation::ProcessSet { members: members.to_vec() };
        let request = Request::new(name, operation, DType::U8, &[0]);
        match self.submit(request, Tensor::empty()).wait_one()? {
            Output::Set(engine) => Ok(engine.map(|engine| *engine)),
            other => Err(strange(name, &other)),
        }
    }

    /// How other processes on this host find this rank's flight record: process id and descriptor; see
    /// [`Recorder::open`].
    pub fn record_address(&self) -> (u32, i32) {
        self.shared.recorder.address()
    }

    /// Has rank 0 write a timeline of all ranks to a new file, in the Chrome trace format, until
    /// [`Engine::stop_timeline`] or the end; a timeline already being written ends first. All ranks may call it, and
    /// only rank 0 does anything. The file is valid JSON at any moment, whichever process is killed.
    pub fn start_timeline(&self, path: &Path) -> Result<(), EngineError> {
        self.shared.start_timeline(path).map_err(|error| no_timeline(path, &error))
    }

    /// Ends the timeline, with what all ranks have recorded until now; does nothing if there is none.
    pub fn stop_timeline(&self) {
        self.shared.stop_timeline(true);
    }

    /// Whether this process records what it does for a timeline.
    pub fn is_traced(&self) -> bool {
        self.shared.telemetry.stream.is_traced()
    }

    /// This process is in a part of a training step until the result is dropped. It is counted, and shown in a timeline.
    pub fn phase(&self, phase: Phase) -> InPhase {
        InPhase::begin(self.shared.telemetry.stream.clone(), phase)
    }

    /// Weights came from parameter servers that lacked so many steps of the slowest worker, after that long. It is counted.
    pub fn served(&self, lacking: u64, waited: Duration) {
        self.shared.telemetry.stream.served(lacking, waited);
    }

    /// This process does something of that name until the result is dropped; only for a timeline, where it is shown in a
    /// lane of its own.
    pub fn span(&self, lane: &'static str, name: impl FnOnce() -> String) -> Option<InSpan> {
        self.is_traced().then(|| InSpan::begin(self.shared.telemetry.stream.clone(), lane, name()))
    }

    /// Reports how far this process has come. The launcher shows it, and rank 0 writes it down where a run is recorded.
    pub fn progress(&self, progress: &Progress) {
        self.shared.progress(progress);
    }

    /// Settings of the program, such as its learning rate, for the folder of the run. They are added to those given
    /// before; only those of rank 0 count.
    pub fn describe(&self, settings: BTreeMap<String, String>) {
        self.shared.describe(settings);
    }

    /// Where the run is recorded, on rank 0.
    pub fn run_folder(&self) -> Option<PathBuf> {
        self.shared.kept_in()
    }

    /// How tensors of GPUs travel and why, in words, once there have been any.
    pub fn device_way(&self) -> Option<&str> {
        self.shared.device.get().map(String::as_str)
    }

    /// What ranks have done in numbers, as far as this one knows: itself, the ranks of its host and, on rank 0 with
    /// [`Settings::profile`], those of other hosts.
    pub fn profile(&self) -> Profile {
        self.shared.telemetry.stream.refresh();
        self.shared.profile()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.inbox.send(Command::Close);
        for thread in self.threads.drain(..) {
            // The watcher looks only from time to time; this wakes it at once.
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The requests, to be done together.
fn bundled(name: &str, mut requests: Vec<(Request, Tensor)>) -> Vec<(Request, Tensor)> {
    let bundle = Bundle { name: name.into(), size: requests.len() };
    requests.iter_mut().for_each(|(request, _)| request.bundle = Some(bundle.clone()));
    requests
}

fn problem(request: &Request, tensor: &Tensor, size: usize) -> Option<EngineError> {
    let brings = (tensor.dtype(), tensor.len());
    let placed = || {
        let differs = tensor.place() != request.place;
        differs.then(|| format!("it lies {}, not {}", tensor.place().describe(), request.place.describe()))
    };
    let problem = request.problem(size).or_else(placed).or_else(|| {
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

fn no_timeline(path: &Path, error: &std::io::Error) -> EngineError {
    let hint = "hint: name a file in a folder that exists on rank 0's host and may be written to";
    EngineError::Timeline { path: path.into(), problem: format!("{error}; {hint}") }
}
