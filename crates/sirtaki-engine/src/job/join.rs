//! From a place to a world with a running engine.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use sirtaki_comm::{
    CommError, Communicator, Group, Rank, ReduceOp, Reduction,
    communicator::Solo,
    rendezvous::{Connected, Store, TcpStore, connect_over_mpi, connect_with_report, this_member},
    secure::{Secret, fresh_id},
};

use super::{
    JobError, Lookup, Meeting, Place, Position, discover, ending, folder,
    parse::optional,
    rounds::RoundStore,
    settings::{communication, engine},
    starter, variables,
};
use crate::{
    Engine, Settings,
    telemetry::recorder::{Culprit, Recorder},
};

/// The key under which the ranks of a group find its name. It is not secret: anybody can read a framework's store.
const GROUP: &str = "group";

/// How long the ranks of a round may take to meet. All of them have said that they are there.
const ROUND: Duration = Duration::from_secs(20);

/// Everything that variables say about a job, before it is joined. Programs apply their flags to this.
#[derive(Debug, Clone)]
pub struct Job {
    /// This process's place in it.
    pub place: Place,
    /// How its processes communicate. The secret is that of the place where it has one, and agreed on otherwise.
    pub communication: sirtaki_comm::Settings,
    /// What its engine does.
    pub engine: Settings,
    /// Process and descriptor of the memory to record in, if it is not our own.
    pub record: Option<(u32, i32)>,
    /// How often this process has joined and left before; the same on all ranks.
    pub round: usize,
    /// How many ranks each process is.
    devices: usize,
    /// The user's folder for files that can be lost.
    cache: Result<PathBuf, JobError>,
}

/// All ranks, connected.
pub struct Met {
    /// What connects them.
    pub communicator: Box<dyn Communicator>,
    /// Which network it uses between hosts and why, in one line; `None` on a single host.
    pub network: Option<String>,
    /// The launcher's store, where there is one.
    pub store: Option<Arc<dyn Store>>,
}

/// A job that this process has joined.
#[derive(Debug)]
pub struct World {
    engine: Engine,
    local: Position,
    cross: Position,
    back_end: &'static str,
    network: Option<String>,
    communication: sirtaki_comm::Settings,
}

impl Job {
    /// The job in these variables; a world of one where they specify none.
    pub fn discover(get: Lookup<'_>) -> Result<Job, JobError> {
        let place = discover(get)?;
        let secret = match &place.meeting {
            Meeting::Store { secret, .. } | Meeting::Rounds { secret, .. } => secret.clone(),
            _ => Secret::random()?,
        };
        let record = optional(get, variables::RECORD, |text| {
            let (process, descriptor) = text.split_once(':')?;
            Some((process.parse().ok()?, descriptor.parse().ok().filter(|&descriptor: &i32| descriptor >= 0)?))
        })?;
        let (communication, engine, cache) = (communication(get, secret)?, engine(get)?, starter::cache(get));
        Ok(Job { place, communication, engine, record, round: 0, devices: 1, cache })
    }

    /// The same job where every process is `devices` ranks, each of them a thread: that of this process's thread `device`.
    /// The launcher knows processes only; it sees the first of each.
    #[must_use]
    pub fn of_device(mut self, device: usize, devices: usize) -> Job {
        let Place { rank, size, local, cross, .. } = &mut self.place;
        (*rank, *size) = (*rank * devices + device, *size * devices);
        (*local, *cross, self.devices) = (None, None, devices);
        self.record = self.record.filter(|_| device == 0);
        self
    }

    /// Meets the other ranks, which all call it, once.
    pub fn connect(&mut self) -> Result<Met, JobError> {
        let Place { rank, size, meeting, .. } = &self.place;
        let (rank, size, settings) = (*rank, *size, &mut self.communication);
        match meeting {
            Meeting::Alone => {
                let communicator = Box::new(Solo::new(Group::new(0, vec![this_member(0)?]))?);
                Ok(Met { communicator, network: None, store: None })
            }
            Meeting::Store { address, secret, tls } => {
                let (deadline, tls) = (Instant::now() + settings.start_timeout, *tls || settings.tls);
                let store: Arc<dyn Store> = Arc::new(TcpStore::connect(*address, secret, tls, deadline)?);
                let meeting = RoundStore::again(&store, self.round);
                let Connected { communicator, network } = connect_with_report(meeting, rank, size, settings.clone())?;
                Ok(Met { communicator, network, store: Some(store) })
            }
            Meeting::Rounds { .. } => {
                let problem =
                    "the workers of this job come and go, and the program does not say how to go on: it has to use \
                               `sirtaki::elastic`, or its job must not have --min-ranks"
                        .to_owned();
                Err(CommError::Invalid { problem }.into())
            }
            Meeting::Mpi(choice) => {
                let mut communicator = connect_over_mpi(settings, choice)?;
                let wanted = somebody(&mut *communicator, settings.tls)?;
                refuse_tls(wanted, communicator.group().hosts().len())?;
                settings.secret = share(&mut *communicator, &settings.secret)?;
                Ok(Met { communicator, network: None, store: None })
            }
            Meeting::Folder { cache, key, by_parent } => {
                let again = if self.round > 0 { format!("{key} round {}", self.round) } else { key.clone() };
                let key = folder::file_key(&again, *by_parent)?;
                in_folder(cache, &key, Position { rank, size }, settings)
            }
        }
    }

    /// Meets the other ranks and starts the engine.
    pub fn join(mut self) -> Result<World, JobError> {
        // Until the memory is adopted below.
        self.tell_the_launcher().inspect(|record| record.set_meeting());
        let met = self.connect()?;
        self.start(met)
    }

    /// Meets the ranks of a round of an elastic job as the one at `me`, and starts the engine.
    pub(super) fn join_round(mut self, store: RoundStore, me: Position) -> Result<World, JobError> {
        self.tell_the_launcher().inspect(|record| record.set_meeting());
        let settings = &mut self.communication;
        settings.start_timeout = settings.start_timeout.min(ROUND);
        store.name_files(&mut self.engine);
        let store: Arc<dyn Store> = Arc::new(store);
        let Connected { communicator, network } =
            connect_with_report(store.clone(), me.rank, me.size, settings.clone())?;
        self.start(Met { communicator, network, store: Some(store) })
    }

    /// Meets ranks other than those of the place, in an unused store of the caller's, and starts an engine for them.
    ///
    /// The store may be one that anybody can read and write, so no secret is left there. The group's secret is derived
    /// from that of `world`, the job its ranks are in, or from that of the place. Where there is neither, as in
    /// processes that a script has started itself, the ranks meet in the user's private folder.
    pub fn meet(mut self, store: Arc<dyn Store>, me: Position, world: Option<&Secret>) -> Result<World, JobError> {
        // Ranks of a smaller group have other numbers there.
        if me.size == self.place.size {
            let _ = self.tell_the_launcher();
        }
        let settings = &mut self.communication;
        let group = agree_on_group(&*store, me, settings.start_timeout)?;
        let secret = match (world, &self.place.meeting) {
            (None, Meeting::Store { secret, .. }) => Some(secret),
            (world, _) => world,
        };
        let met = match secret {
            Some(secret) => {
                settings.secret = secret.derive(&[group.as_bytes(), &(me.size as u64).to_le_bytes()]);
                let Connected { communicator, network } =
                    connect_with_report(store, me.rank, me.size, settings.clone())?;
                Met { communicator, network, store: None }
            }
            None => in_folder(&self.cache.clone()?, &folder::file_key(&group, false)?, me, settings)?,
        };
        (self.place.local, self.place.cross, self.record) = (None, None, None);
        self.start(met)
    }

    /// Lets the launcher see, in its memory, which rank this one will have waited for in vain. Returns that memory.
    fn tell_the_launcher(&mut self) -> Option<Arc<Recorder>> {
        let (process, descriptor) = self.record?;
        let record = Arc::new(Recorder::open(process, descriptor).ok()?);
        let kept = record.clone();
        let devices = self.devices;
        self.engine.accuse = Arc::new(move |culprit| kept.accuse(Culprit { rank: culprit.rank / devices, ..culprit }));
        Some(record)
    }

    fn start(mut self, met: Met) -> Result<World, JobError> {
        let Met { communicator, network, store } = met;
        if let Some(store) = store {
            let (of_process, devices) = (ending(store), self.devices);
            self.engine.ending = Arc::new(move |rank| of_process(rank / devices));
        }
        let (group, back_end) = (communicator.group().clone(), communicator.name());
        // If the launcher is gone, or isolated by a container, it merely loses its view of us.
        let adopted = self.record.and_then(|(process, descriptor)| Recorder::adopt(process, descriptor).ok());
        let recorder = adopted.map_or_else(Recorder::create, Ok)?;
        let engine = Engine::start_recording(communicator, &self.communication, self.engine, recorder)?;
        let local = self.place.local.unwrap_or_else(|| Position::on_host(&group));
        let cross = self.place.cross.unwrap_or_else(|| Position::of_host(&group));
        Ok(World { engine, local, cross, back_end, network, communication: self.communication })
    }
}

/// Meets the others in a folder that all of them see, with a secret that is made there.
fn in_folder(cache: &Path, key: &str, me: Position, settings: &mut sirtaki_comm::Settings) -> Result<Met, JobError> {
    let hall = folder::meet(cache, key, me, settings.start_timeout)?;
    settings.secret = hall.secret();
    let Connected { mut communicator, network } =
        connect_with_report(hall.store(), me.rank, me.size, settings.clone())?;
    // A rank may still be reading; after this none is.
    communicator.barrier()?;
    Ok(Met { communicator, network, store: None })
}

/// A name that no other group has, drawn by the group's first rank.
fn agree_on_group(store: &dyn Store, me: Position, patience: Duration) -> Result<String, JobError> {
    if me.rank == 0 {
        let name: String = fresh_id()?.iter().map(|byte| format!("{byte:02x}")).collect();
        store.set(GROUP, name.as_bytes())?;
        return Ok(name);
    }
    let found = store.wait(GROUP, Instant::now() + patience)?.ok_or_else(|| CommError::Timeout {
        rank: 0,
        who: "rank 0".into(),
        operation: "start-up".into(),
        waited: patience,
    })?;
    Ok(String::from_utf8_lossy(&found).into_owned())
}

/// Whether any rank says yes; the same answer on all of them.
fn somebody(communicator: &mut dyn Communicator, yes: bool) -> Result<bool, JobError> {
    let mut votes = vec![i32::from(yes)];
    communicator.all_reduce((&mut votes).into(), Reduction::new(ReduceOp::Max))?;
    Ok(votes[0] > 0)
}

/// MPI carries the data between hosts unencrypted, and the secret too: a user who wants encryption must be told.
fn refuse_tls(wanted: bool, hosts: usize) -> Result<(), JobError> {
    if wanted && hosts > 1 { Err(JobError::TlsOverMpi { hosts }) } else { Ok(()) }
}

/// Rank 0's secret, on all ranks.
fn share(communicator: &mut dyn Communicator, mine: &Secret) -> Result<Secret, JobError> {
    let mut digits = mine.to_hex().as_bytes().to_vec();
    communicator.broadcast((&mut digits).into(), 0)?;
    Ok(Secret::from_hex(&String::from_utf8_lossy(&digits))?)
}

impl World {
    /// The engine over all ranks.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine alone, for callers that need nothing else of this.
    pub fn into_engine(self) -> Engine {
        self.engine
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
    pub fn local(&self) -> Position {
        self.local
    }

    /// Which host of the job it is on.
    pub fn cross(&self) -> Position {
        self.cross
    }

    /// What only its ranks know: for proofs of who has sent something, and for the secrets of groups.
    pub fn secret(&self) -> &Secret {
        &self.communication.secret
    }

    /// How its processes communicate.
    pub fn communication(&self) -> &sirtaki_comm::Settings {
        &self.communication
    }

    /// What connects the ranks, such as "arena".
    pub fn back_end(&self) -> &'static str {
        self.back_end
    }

    /// Which network is used between hosts and why, in one line; `None` on a single host and over MPI.
    pub fn network(&self) -> Option<&str> {
        self.network.as_deref()
    }
}

#[cfg(test)]
mod tests;
