//! From a place to a world with a running engine.

use std::{sync::Arc, time::Instant};

use sirtaki_comm::{
    CommError, Communicator, Group, Rank,
    communicator::Solo,
    rendezvous::{Connected, Store, TcpStore, connect_over_mpi, connect_with_report, this_member},
    secure::Secret,
};

use super::{
    JobError, Lookup, Meeting, Place, Position, discover, ending, folder,
    parse::optional,
    settings::{communication, engine},
    variables,
};
use crate::{Engine, Settings, telemetry::recorder::Recorder};

/// Where ranks that have no secret yet find one.
const SECRET: &str = "secret";

/// Everything variables say about a job, before it is joined. Whoever reads flags as well changes what they change.
#[derive(Debug, Clone)]
pub struct Job {
    /// This process's place in it.
    pub place: Place,
    /// How its processes talk. The secret is the one of the place where that has one, and agreed on otherwise.
    pub communication: sirtaki_comm::Settings,
    /// What its engine does.
    pub engine: Settings,
    /// Process and descriptor of the memory to record in, if it is not our own.
    pub record: Option<(u32, i32)>,
    /// How often this process has joined and left before; the same on all ranks.
    pub round: usize,
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
}

impl Job {
    /// The job in these variables; a world of one where they have none.
    pub fn discover(get: Lookup<'_>) -> Result<Job, JobError> {
        let place = discover(get)?;
        let secret = match &place.meeting {
            Meeting::Store { secret, .. } => secret.clone(),
            _ => Secret::random()?,
        };
        let record = optional(get, variables::RECORD, |text| {
            let (process, descriptor) = text.split_once(':')?;
            Some((process.parse().ok()?, descriptor.parse().ok().filter(|&descriptor: &i32| descriptor >= 0)?))
        })?;
        Ok(Job { place, communication: communication(get, secret)?, engine: engine(get)?, record, round: 0 })
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
            Meeting::Store { address, secret } => {
                let deadline = Instant::now() + settings.start_timeout;
                let store: Arc<dyn Store> = Arc::new(TcpStore::connect(*address, secret, settings.tls, deadline)?);
                let meeting = Round::of(&store, self.round);
                let Connected { communicator, network } = connect_with_report(meeting, rank, size, settings.clone())?;
                Ok(Met { communicator, network, store: Some(store) })
            }
            Meeting::Mpi(choice) => {
                let mut communicator = connect_over_mpi(settings, choice)?;
                settings.secret = share(&mut *communicator, &settings.secret)?;
                Ok(Met { communicator, network: None, store: None })
            }
            Meeting::Folder { cache, key, by_parent } => {
                let again = if self.round > 0 { format!("{key} round {}", self.round) } else { key.clone() };
                let key = folder::file_key(&again, *by_parent)?;
                let hall = folder::meet(cache, &key, Position { rank, size }, settings.start_timeout)?;
                settings.secret = hall.secret();
                let Connected { mut communicator, network } =
                    connect_with_report(hall.store(), rank, size, settings.clone())?;
                // Somebody may still be reading; after this nobody is.
                communicator.barrier()?;
                Ok(Met { communicator, network, store: None })
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

    /// Meets other ranks than those of the place, in a store of the caller's that nobody has used, and starts an engine
    /// for them. Where the place has no secret, the first of them makes one.
    pub fn meet(mut self, store: Arc<dyn Store>, me: Position) -> Result<World, JobError> {
        // Ranks of a smaller group have other numbers there.
        if me.size == self.place.size {
            let _ = self.tell_the_launcher();
        }
        let settings = &mut self.communication;
        match (&self.place.meeting, me.rank) {
            (Meeting::Store { .. }, _) => {}
            (_, 0) => store.set(SECRET, settings.secret.to_hex().as_bytes())?,
            _ => {
                let found = store.wait(SECRET, Instant::now() + settings.start_timeout)?;
                let digits = found.ok_or_else(|| CommError::Timeout {
                    rank: 0,
                    who: "rank 0".into(),
                    operation: "start-up".into(),
                    waited: settings.start_timeout,
                })?;
                settings.secret = Secret::from_hex(&String::from_utf8_lossy(&digits))?;
            }
        }
        let Connected { communicator, network } = connect_with_report(store, me.rank, me.size, settings.clone())?;
        (self.place.local, self.place.cross, self.record) = (None, None, None);
        self.start(Met { communicator, network, store: None })
    }

    /// Lets the launcher see, in its memory, whom this rank will have waited for in vain. Returns that memory.
    fn tell_the_launcher(&mut self) -> Option<Arc<Recorder>> {
        let (process, descriptor) = self.record?;
        let record = Arc::new(Recorder::open(process, descriptor).ok()?);
        let kept = record.clone();
        self.engine.accuse = Arc::new(move |culprit| kept.accuse(culprit));
        Some(record)
    }

    fn start(mut self, met: Met) -> Result<World, JobError> {
        let Met { communicator, network, store } = met;
        if let Some(store) = store {
            self.engine.ending = ending(store);
        }
        let (group, back_end) = (communicator.group().clone(), communicator.name());
        // A launcher that is gone, or on the other side of a container's wall, only loses its view of us.
        let adopted = self.record.and_then(|(process, descriptor)| Recorder::adopt(process, descriptor).ok());
        let recorder = adopted.map_or_else(Recorder::create, Ok)?;
        let engine = Engine::start_recording(communicator, &self.communication, self.engine, recorder)?;
        let local = self.place.local.unwrap_or_else(|| Position::on_host(&group));
        let cross = self.place.cross.unwrap_or_else(|| Position::of_host(&group));
        Ok(World { engine, local, cross, back_end, network })
    }
}

/// A store in which earlier rounds have left their words.
struct Round {
    store: Arc<dyn Store>,
    prefix: String,
}

impl Round {
    fn of(store: &Arc<dyn Store>, round: usize) -> Arc<dyn Store> {
        match round {
            0 => store.clone(),
            round => Arc::new(Round { store: store.clone(), prefix: format!("round-{round}/") }),
        }
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

impl Store for Round {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError> {
        self.store.set(&self.key(key), value)
    }

    fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError> {
        self.store.wait(&self.key(key), deadline)
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64, CommError> {
        self.store.add(&self.key(key), amount)
    }
}

/// Rank 0's secret, on all ranks.
fn share(communicator: &mut dyn Communicator, mine: &Secret) -> Result<Secret, JobError> {
    let mut digits = mine.to_hex().into_bytes();
    communicator.broadcast((&mut digits).into(), 0)?;
    Ok(Secret::from_hex(&String::from_utf8_lossy(&digits))?)
}

impl World {
    /// The engine over all ranks.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The engine alone, for whoever needs nothing else of this.
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
mod tests {
    use std::thread;

    use sirtaki_comm::rendezvous::MemoryStore;

    use super::*;

    #[test]
    fn processes_that_nobody_started_together_meet_in_a_store() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let join = |rank| {
            let store = store.clone();
            thread::spawn(move || {
                let job = Job::discover(&|_| None).unwrap();
                let world = job.meet(store, Position { rank, size: 3 }).unwrap();
                world.engine().barrier("all").unwrap();
                (world.rank(), world.size(), world.local())
            })
        };
        let ranks = [2, 0, 1].map(join);
        let found = ranks.map(|rank| rank.join().unwrap());
        assert_eq!(found, [2, 0, 1].map(|rank| (rank, 3, Position { rank, size: 3 })));
    }

    #[test]
    fn a_first_rank_that_does_not_come_is_named() {
        let mut job = Job::discover(&|_| None).unwrap();
        job.communication.start_timeout = std::time::Duration::from_millis(20);
        let failed = job.meet(Arc::new(MemoryStore::new()), Position { rank: 1, size: 2 }).unwrap_err();
        assert!(failed.to_string().contains("rank 0"), "{failed}");
    }
}
