//! A process of an elastic job: it joins one round after the other, each with an engine of its own, and keeps its memory.
//!
//! The launcher decides who is in a round. A process asks for the next one when the last has failed, or when the
//! launcher has announced that members change; between the two its engine is gone, so that nothing of one round is
//! mixed up with the next.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sirtaki_comm::{
    CommError, Rank,
    rendezvous::{Store, TcpStore},
};

use super::{
    Call, Job, JobError, LISTENED, Meeting, Position, RoundAnswer, World, answer_key, change_key, rounds::RoundStore,
};

/// How often the launcher is asked at most whether members change.
const LOOK: Duration = Duration::from_millis(50);
/// How long one question to the launcher's store waits for its answer. It is asked again for as long as the store is
/// there; without its launcher, this process is ended.
const SLICE: Duration = Duration::from_secs(60);

/// Where a timeline shows rounds.
const LANE: &str = "rounds";

/// This process as a member of an elastic job.
pub struct RoundMember {
    number: u64,
    store: Arc<dyn Store>,
    /// The last round that it was in.
    round: AtomicU64,
    holds: AtomicBool,
    leaving: AtomicBool,
    changed: AtomicBool,
    /// When the launcher was last asked.
    looked: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for RoundMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoundMember").field("number", &self.number).field("round", &self.round).finish_non_exhaustive()
    }
}

impl RoundMember {
    /// This process in an elastic job; `None` if its job has fixed ranks.
    pub fn of(job: &Job) -> Result<Option<Self>, JobError> {
        let Meeting::Rounds { address, secret, tls, member } = &job.place.meeting else { return Ok(None) };
        let (tls, patience) = (*tls || job.communication.tls, job.communication.start_timeout);
        let store = TcpStore::connect(*address, secret, tls, Instant::now() + patience)?;
        Ok(Some(Self::over(*member, Arc::new(store))))
    }

    fn over(number: u64, store: Arc<dyn Store>) -> Self {
        Self {
            number,
            store,
            round: AtomicU64::new(0),
            holds: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            looked: Mutex::default(),
        }
    }

    /// The number of the round that this process was in last; 0 for none.
    pub fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    /// Joins the next round: waits until the launcher says who is in it, meets them, and starts an engine. If one of
    /// them is lost meanwhile, the round after that. `blames` is the rank of the last round that was waited for in vain.
    pub fn join(&self, job: &Job, mut blames: Option<Rank>) -> Result<World, JobError> {
        loop {
            let (number, me, why) = self.next(blames.take())?;
            self.round.store(number, Ordering::Release);
            self.changed.store(false, Ordering::Release);
            match job.clone().join_round(RoundStore::of(&self.store, number), me) {
                Ok(world) => {
                    let _shown = world.engine().span(LANE, || why);
                    self.call(&Call::Joined { member: self.number, round: number })?;
                    return Ok(world);
                }
                // The launcher says why.
                Err(JobError::Comm(CommError::Stopped { .. })) => {}
                Err(error @ (JobError::Comm(_) | JobError::Engine(_))) => {
                    (job.engine.warn)(&format!("round {number} did not come about: {error}"));
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// This process has the state of the training from now on, so that others can get it from here.
    pub fn set_holding(&self) {
        self.holds.store(true, Ordering::Release);
    }

    /// Whether members change, so that this process is wanted in another round. The launcher is asked a few times a
    /// second at most.
    pub fn is_wanted_elsewhere(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.changed.load(Ordering::Acquire) && looked.is_none_or(|last| last.elapsed() >= LOOK) {
            *looked = Some(Instant::now());
            // A store that does not answer belongs to a launcher that is gone, and so is this process soon.
            let found = self.store.wait(&change_key(self.round()), Instant::now());
            self.changed.store(matches!(found, Ok(Some(_))), Ordering::Release);
        }
        self.changed.load(Ordering::Acquire)
    }

    /// This process has to end soon: it hands over at the next change of rounds, which the launcher brings about.
    pub fn leave(&self) -> Result<(), JobError> {
        if self.leaving.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.call(&Call::Leaves { member: self.number })
    }

    /// The next round, this process's place in it, and why there is one.
    fn next(&self, blames: Option<Rank>) -> Result<(u64, Position, String), JobError> {
        let (after, holds) = (self.round(), self.holds.load(Ordering::Acquire));
        let leaving = self.leaving.load(Ordering::Acquire);
        self.call(&Call::Asks { member: self.number, after, holds, leaving, blames })?;
        let key = answer_key(self.number, after);
        let answer = loop {
            if let Some(answer) = self.store.wait(&key, Instant::now() + SLICE)? {
                break answer;
            }
        };
        match postcard::from_bytes(&answer) {
            Ok(RoundAnswer::Round { number, rank, size, why }) if number > after && rank < size => {
                Ok((number, Position { rank, size }, why))
            }
            Ok(RoundAnswer::Leave) => Err(JobError::Dismissed),
            Ok(RoundAnswer::End { reason }) => Err(JobError::Over { reason }),
            Ok(RoundAnswer::Round { .. }) | Err(_) => {
                let problem = "the launcher's answer makes no sense; is it the same version of sirtaki?".to_owned();
                Err(CommError::Invalid { problem }.into())
            }
        }
    }

    fn call(&self, call: &Call) -> Result<(), JobError> {
        let bytes = postcard::to_stdvec(call).map_err(|error| CommError::Invalid { problem: error.to_string() })?;
        Ok(self.store.set(&format!("{LISTENED}{}", self.number), &bytes)?)
    }
}
