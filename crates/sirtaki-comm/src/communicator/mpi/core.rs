//! One MPI communicator and how its ranks come together before every operation.
//!
//! MPI has no deadlines and does not notice ranks that call different things. So the ranks first exchange what they are
//! about to call, by a non-blocking all-gather of [`Signature::SIZE`] bytes each, which can be watched while it is
//! under way. Only when all are there and agree does the operation itself run, as a blocking call of the library's fast
//! paths. What remains uncovered: a rank that is stopped in the middle of the blocking part keeps the others there
//! until it continues; a rank that dies is handled by the launcher, which ends the whole job.
//!
//! A rank that waits for long tells all others, so that all of them name the same absent rank in the end.

use std::{sync::Arc, time::Duration};

use super::{
    control::Control,
    lent::Lent,
    pace::Pace,
    raw::{Answer, Comm, Mpi, MpiRequest},
    session::Session,
};
use crate::{CommError, Group, Rank, Stopper, signature::Signature};

/// How long a rank waits before it tells the others, unless a quarter of the limit is shorter.
const ANNOUNCE: Duration = Duration::from_millis(100);
/// How long to listen, once the limit has passed, for ranks that have only just come.
const GRACE: Duration = Duration::from_millis(500);

/// The state all operations share.
pub(super) struct Core {
    pub(super) session: Arc<Session>,
    pub(super) comm: Comm,
    pub(super) group: Group,
    pub(super) timeout: Duration,
    pub(super) stopper: Stopper,
    /// Elements that one MPI call may move.
    pub(super) limit: usize,
    control: Control,
    sequence: u64,
    failed: Option<CommError>,
    /// My signature, then those of all ranks; gone once a wait has failed, because MPI may still write to it.
    calls: Option<Lent>,
}

impl Core {
    /// The state for `comm`, which is owned from now on.
    pub(super) fn new(
        session: Arc<Session>,
        comm: Comm,
        group: Group,
        timeout: Duration,
        limit: usize,
    ) -> Result<Self, CommError> {
        session.ask("set up a communicator", |mpi| mpi.return_errors(comm))?;
        let (control, calls) = (Control::new(group.size()), vec![0; Signature::SIZE * (1 + group.size())]);
        let (stopper, calls) = (Stopper::new(), Some(Lent::new(calls)));
        Ok(Self { session, comm, group, timeout, stopper, limit, control, sequence: 0, failed: None, calls })
    }

    /// Meets all ranks in this call, then runs `operation`. Any failure is final and reported to the others.
    pub(super) fn together<T>(
        &mut self,
        call: Signature,
        operation: impl FnOnce(&mut Self) -> Result<T, CommError>,
    ) -> Result<T, CommError> {
        self.guarded(|core| {
            core.meet(call)?;
            operation(core)
        })
    }

    /// Runs something unless this communicator has failed or is stopped, and remembers its failure.
    pub(super) fn guarded<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, CommError>) -> Result<T, CommError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.stopper.check().and_then(|()| run(self));
        if let Err(error) = &result {
            self.fail(error);
        }
        result
    }

    /// Fails for a reason that lies elsewhere.
    pub(super) fn abort(&mut self, error: &CommError) {
        if self.failed.is_none() {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: &CommError) {
        if !matches!(error, CommError::Mismatch { .. }) {
            self.session.set_broken();
        }
        self.control.alarm(&self.session, self.comm, self.group.rank(), error);
        self.failed = Some(error.clone());
    }

    /// One call of the library for this communicator.
    pub(super) fn ask<T>(&self, action: &str, call: impl FnOnce(&dyn Mpi, Comm) -> Answer<T>) -> Result<T, CommError> {
        self.session.ask(action, |mpi| call(mpi, self.comm))
    }

    fn meet(&mut self, call: Signature) -> Result<(), CommError> {
        const SIZE: usize = Signature::SIZE;
        self.sequence += 1;
        let size = Signature::SIZE * (1 + self.group.size());
        let mut lent = self.calls.take().unwrap_or_else(|| Lent::new(vec![0; size]));
        // SAFETY: there is no request yet.
        let bytes = unsafe { lent.bytes() };
        bytes[..SIZE].copy_from_slice(&call.encode());
        let mine = lent.start();
        // SAFETY: both parts lie in `lent`, which is neither touched nor taken back before the request is done.
        let mut request = self.ask("compare calls", |mpi, comm| unsafe {
            mpi.start_all_gather(mine, SIZE as i32, mine.add(SIZE), comm)
        })?;
        self.wait(&mut request, &call, None)?;
        // SAFETY: the request is done.
        let bytes = unsafe { lent.bytes() };
        let calls: Vec<_> = bytes[SIZE..].as_chunks::<SIZE>().0.iter().map(Signature::decode).collect();
        self.calls = Some(lent);
        // Another rank may have given up waiting for this one just before it came.
        self.control.poll(&self.session, self.comm)?;
        Signature::compare_all(&self.group, &calls)
    }

    /// Waits until `request` is done: for `partner` alone, or else for all ranks.
    pub(super) fn wait(
        &mut self,
        request: &mut MpiRequest,
        call: &Signature,
        partner: Option<Rank>,
    ) -> Result<(), CommError> {
        let limit = self.timeout;
        let mut pace = Pace::new();
        while !self.ask("wait for other ranks", |mpi, _| mpi.test(request))? {
            if !pace.pause() {
                continue;
            }
            self.stopper.check()?;
            self.control.poll(&self.session, self.comm)?;
            let waited = pace.waited();
            if partner.is_none() && waited >= ANNOUNCE.min(limit / 4) {
                self.control.announce(&self.session, self.comm, self.group.rank(), self.sequence);
            }
            if waited >= limit + GRACE
                && let Some(rank) = partner.or_else(|| self.absent(waited))
            {
                return Err(CommError::Timeout {
                    rank: self.group.world_rank(rank),
                    who: self.group.describe(rank),
                    operation: call.describe(),
                    waited,
                });
            }
        }
        Ok(())
    }

    /// Whom to blame. If all have come in the meantime, they get the same time once more to finish.
    fn absent(&self, waited: Duration) -> Option<Rank> {
        let me = self.group.rank();
        let anyone = || (waited > self.timeout * 2 + GRACE).then_some(usize::from(me == 0));
        let anyone = || anyone().filter(|&rank| rank < self.group.size());
        self.control.silent(me, self.sequence).or_else(anyone)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some(calls) = self.calls.take() {
            // SAFETY: memory that was lent is put back here only when its request is done.
            drop(unsafe { calls.back() });
        }
        if self.failed.is_none() && !self.session.is_over() {
            self.control.close(&self.session, self.comm);
            self.session.release(self.comm);
        }
    }
}
