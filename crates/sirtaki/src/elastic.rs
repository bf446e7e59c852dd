//! Training that goes on when workers are lost, leave or come, in a job of `sirtaki run --min-ranks`.
//!
//! The training is a function of a [`Session`], which has the state and the world of those who are there. It says now and
//! then that a step is done, with [`Session::commit`]. When a worker is lost, the others take back what they committed
//! last, get a world without it, and the function is called again; when workers come or leave, that happens at a commit,
//! and nothing is taken back. The state comes from the memory of a worker that has it, never from a disk.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use sirtaki::elastic;
//!
//! #[derive(Clone, Serialize, Deserialize)]
//! struct Training {
//!     step: u64,
//!     weight: f64,
//! }
//!
//! # fn main() -> sirtaki::Result<()> {
//! let weight = elastic::run(Training { step: 0, weight: 1.0 }, |session| {
//!     while session.state.step < 3 {
//!         let gradient = session.world().average(session.state.weight)?;
//!         session.state.weight -= 0.5 * gradient;
//!         session.state.step += 1;
//!         session.commit()?;
//!     }
//!     Ok(session.state.weight)
//! })?;
//! assert_eq!(weight, Some(0.125));
//! # Ok(())
//! # }
//! ```
//!
//! Programs whose state is not copied, such as tensors that are large or on a GPU, are built on [`Rounds`] instead.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use sirtaki_comm::{DType, Rank, Reduction};
use sirtaki_engine::{
    EngineError, Operation, Request, Tensor, Ticket,
    job::{Job, JobError, RoundMember},
};

use crate::{
    Error, Result, World,
    world::{discover, elements},
};

/// The name of the question whether workers change.
const CHANGE: &str = "elastic.change";

/// The worlds in which this process takes part one after the other. [`run`] is built on it; programs that keep and hand
/// over their state in a way of their own use it directly, as `sirtaki train` does.
#[derive(Debug)]
pub struct Rounds {
    job: Job,
    member: Option<Arc<RoundMember>>,
    blames: Option<Rank>,
}

impl Rounds {
    /// Those of the job that this process was started for.
    pub fn new() -> Result<Self> {
        let job = discover()?;
        let member = RoundMember::of(&job)?.map(Arc::new);
        Ok(Self { job, member, blames: None })
    }

    /// Whether workers come and go; otherwise there is one world, with fixed ranks.
    pub fn is_elastic(&self) -> bool {
        self.member.is_some()
    }

    /// The number of the round, from one; zero in a job with fixed ranks.
    pub fn number(&self) -> u64 {
        self.member.as_ref().map_or(0, |member| member.round())
    }

    /// Those who work together next, once the launcher has said who they are; nobody if this worker was told to leave.
    /// The world before must be gone, with all that holds it: its engine ends with it. A job that cannot go on is
    /// [`JobError::Over`].
    pub fn next_world(&mut self) -> Result<Option<World>> {
        let blames = self.blames.take();
        let joined = match &self.member {
            Some(member) => member.join(&self.job, blames),
            None => self.job.clone().join(),
        };
        match joined {
            Err(JobError::Dismissed) => Ok(None),
            joined => Ok(Some(World::of(joined?))),
        }
    }

    /// Whether training goes on in another world after this error, because workers are lost, come or leave.
    pub fn goes_on_after(&mut self, error: &Error) -> bool {
        match error {
            Error::Changing => self.is_elastic(),
            Error::Engine(error) if self.is_elastic() && !error.is_recoverable() => {
                self.blames = error.rank();
                true
            }
            _ => false,
        }
    }

    /// This worker has the state from now on, so that others can get it from here.
    pub fn set_holding(&self) {
        self.member.iter().for_each(|member| member.set_holding());
    }

    /// Whether workers come or leave, so that all of a round are wanted in the next one. They have to learn it in the same
    /// step, so one of them asks and tells the others.
    pub fn is_changing(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.is_wanted_elsewhere())
    }

    /// Lets this worker leave.
    pub fn leaver(&self) -> Leaver {
        Leaver(self.member.clone())
    }
}

/// What a worker knows between two changes of workers.
#[derive(Debug)]
pub struct Session<T> {
    /// The state of the training, which is the same on all workers after every commit.
    pub state: T,
    saved: T,
    world: World,
    rounds: Rounds,
    /// Whether workers change, as asked at the last commit: the answer travels along with the step in between.
    asked: Option<Ticket>,
}

/// Lets a worker leave, from any thread; for programs that hear of their end, such as by a signal.
#[derive(Debug, Clone)]
pub struct Leaver(Option<Arc<RoundMember>>);

impl Leaver {
    /// This worker leaves at the next commit, and the others go on. In a job with fixed ranks it does nothing.
    pub fn leave(&self) -> Result<()> {
        Ok(self.0.as_ref().map_or(Ok(()), |member| member.leave())?)
    }
}

/// Trains until the function ends well, in as many worlds as it takes. Returns its result, or nothing if this worker was
/// told to leave before. An error of the function that is not about lost workers ends the training; so does a job that
/// cannot go on, with [`JobError::Over`], and then the state is lost unless the function has saved it.
///
/// In a job with fixed ranks, the function is called once.
pub fn run<T, R>(state: T, mut train: impl FnMut(&mut Session<T>) -> Result<R>) -> Result<Option<R>>
where
    T: Clone + Serialize + DeserializeOwned,
{
    let (mut rounds, mut kept) = (Rounds::new()?, state);
    while let Some(world) = rounds.next_world()? {
        let mut session = Session { saved: kept.clone(), state: kept, world, rounds, asked: None };
        match session.sync().and_then(|()| train(&mut session)) {
            Ok(result) => return Ok(Some(result)),
            Err(error) if session.rounds.goes_on_after(&error) => {
                let Session { state, saved, rounds: left, .. } = session;
                (rounds, kept) = (left, if matches!(error, Error::Changing) { state } else { saved });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

impl<T: Clone + Serialize + DeserializeOwned> Session<T> {
    /// Those who work together now. Another session has another world, so do not keep copies of it.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The number of this session's round, from one; zero in a job with fixed ranks.
    pub fn round(&self) -> u64 {
        self.rounds.number()
    }

    /// Lets this worker leave.
    pub fn leaver(&self) -> Leaver {
        self.rounds.leaver()
    }

    /// Keeps a copy of the state, to be taken back after a loss. All workers call it after the same steps. If workers
    /// come or leave, this commit or the next returns [`Error::Changing`], which the training function passes on.
    pub fn commit(&mut self) -> Result<()> {
        self.saved = self.state.clone();
        if !self.rounds.is_elastic() {
            return Ok(());
        }
        if let Some(asked) = self.asked.take()
            && elements::<f64>(CHANGE, asked.wait_one()?)?.iter().any(|&answer| answer > 0.0)
        {
            return Err(Error::Changing);
        }
        let wanted = self.world.rank() == 0 && self.rounds.is_changing();
        let request = Request::new(CHANGE, Operation::AllReduce(Reduction::SUM), DType::F64, &[1]);
        let says = Tensor::from_vec(vec![f64::from(u8::from(wanted))]);
        self.asked = Some(self.world.engine().submit(request, says));
        Ok(())
    }

    /// Takes over the state of the first worker, which has it.
    fn sync(&mut self) -> Result<()> {
        if !self.rounds.is_elastic() {
            return Ok(());
        }
        if self.world.size() > 1 {
            let garbled = |_| {
                Error::from(EngineError::Invalid {
                    tensor: "elastic.state".into(),
                    problem: "the state cannot be turned into bytes and back".into(),
                })
            };
            let is_first = self.world.rank() == 0;
            let mine = if is_first { postcard::to_stdvec(&self.state).map_err(garbled)? } else { Vec::new() };
            let bytes = self.world.broadcast_bytes("elastic.state", 0, mine)?;
            if !is_first {
                self.state = postcard::from_bytes(&bytes).map_err(garbled)?;
            }
        }
        self.saved = self.state.clone();
        self.rounds.set_holding();
        Ok(())
    }
}
