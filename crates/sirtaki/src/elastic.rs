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

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{
    EngineError, Operation, Request, Tensor, Ticket,
    job::{Job, JobError, RoundMember},
};

use crate::{
    Error, Result, World,
    world::{discover, elements, wrong_type},
};

/// The name of the question whether workers change.
const CHANGE: &str = "elastic.change";

/// What a worker knows between two changes of workers.
#[derive(Debug)]
pub struct Session<T> {
    /// The state of the training, which is the same on all workers after every commit.
    pub state: T,
    saved: T,
    world: World,
    member: Option<Arc<RoundMember>>,
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
    let job = discover()?;
    let member = RoundMember::of(&job)?.map(Arc::new);
    let (mut kept, mut blames) = (state, None);
    loop {
        let world = match join(&job, member.as_deref(), blames.take()) {
            Err(Error::Job(JobError::Dismissed)) => return Ok(None),
            world => world?,
        };
        let mut session = Session { saved: kept.clone(), state: kept, world, member: member.clone(), asked: None };
        let ended = session.sync().and_then(|()| train(&mut session));
        match ended {
            Ok(result) => return Ok(Some(result)),
            Err(Error::Changing) => kept = session.state,
            Err(Error::Engine(error)) if session.member.is_some() && !error.is_recoverable() => {
                (kept, blames) = (session.saved, error.rank());
            }
            Err(error) => return Err(error),
        }
    }
}

fn join(job: &Job, member: Option<&RoundMember>, blames: Option<usize>) -> Result<World> {
    let joined = match member {
        Some(member) => member.join(job, blames)?,
        None => job.clone().join()?,
    };
    Ok(World::of(joined))
}

impl<T: Clone + Serialize + DeserializeOwned> Session<T> {
    /// Those who work together now. Another session has another world, so do not keep copies of it.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The number of this session's round, from one; zero in a job with fixed ranks.
    pub fn round(&self) -> u64 {
        self.member.as_ref().map_or(0, |member| member.round())
    }

    /// Lets this worker leave.
    pub fn leaver(&self) -> Leaver {
        Leaver(self.member.clone())
    }

    /// Keeps a copy of the state, to be taken back after a loss. All workers call it after the same steps. If workers
    /// come or leave, this commit or the next returns [`Error::Changing`], which the training function passes on.
    pub fn commit(&mut self) -> Result<()> {
        self.saved = self.state.clone();
        let Some(member) = &self.member else { return Ok(()) };
        if let Some(asked) = self.asked.take()
            && elements::<f64>(CHANGE, asked.wait_one()?)?.iter().any(|&answer| answer > 0.0)
        {
            return Err(Error::Changing);
        }
        let wanted = self.world.rank() == 0 && member.is_wanted_elsewhere();
        let request = Request::new(CHANGE, Operation::AllReduce(Reduction::SUM), DType::F64, &[1]);
        let says = Tensor::from_vec(vec![f64::from(u8::from(wanted))]);
        self.asked = Some(self.world.engine().submit(request, says));
        Ok(())
    }

    /// Takes over the state of the first worker, which has it.
    fn sync(&mut self) -> Result<()> {
        let Some(member) = &self.member else { return Ok(()) };
        if self.world.size() > 1 {
            let garbled = |_| {
                Error::from(EngineError::Invalid {
                    tensor: "elastic.state".into(),
                    problem: "the state cannot be turned into bytes and back".into(),
                })
            };
            let is_first = self.world.rank() == 0;
            let mine = if is_first { postcard::to_stdvec(&self.state).map_err(garbled)? } else { Vec::new() };
            let bytes = self.broadcast(mine)?;
            if !is_first {
                self.state = postcard::from_bytes(&bytes).map_err(garbled)?;
            }
        }
        self.saved = self.state.clone();
        member.set_holding();
        Ok(())
    }

    fn broadcast(&self, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let size = self.world.reduce("elastic.size", Reduction::SUM, vec![bytes.len() as f64])?;
        bytes.resize(size[0] as usize, 0);
        let name = "elastic.state";
        let request = Request::new(name, Operation::Broadcast { root: 0 }, DType::U8, &[bytes.len()]);
        let output = self.world.engine().submit(request, Tensor::from_vec(bytes)).wait_one()?;
        elements(name, output).map_err(|_| wrong_type(name))
    }
}
