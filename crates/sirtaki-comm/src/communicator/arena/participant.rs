//! One rank's part in the operations of a room: it counts them, enters them, and remembers the first failure.

use std::sync::Arc;

use super::{enter::Visit, layout::NOTE, room::Room};
use crate::{CommError, kernel, signature::Signature};

/// What every rank counts, in step. Both numbers wrap round to zero.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    /// Operations so far.
    pub(super) operations: u32,
    /// Steps so far.
    pub(super) steps: u32,
}

/// A rank in a room.
pub(super) struct Participant {
    pub(super) room: Arc<Room>,
    count: Count,
    failure: Option<CommError>,
}

impl Participant {
    /// All ranks begin with the same count, and none enters an operation before all have begun.
    pub(super) fn new(room: Arc<Room>, count: Count) -> Self {
        let lane = room.lane(room.rank());
        lane.posts.iter().for_each(|post| post.number.set(count.operations));
        lane.progress.0.set(count.steps);
        lane.status.0.finish(count.operations);
        Self { room, count, failure: None }
    }

    /// An error once this rank has failed.
    pub(super) fn check(&self) -> Result<(), CommError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Enters `call` together with all others, does `work`, and leaves.
    #[inline]
    pub(super) fn operate(
        &mut self,
        call: Signature,
        inline: &[u8],
        work: impl FnOnce(&mut Visit<'_>) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        self.check()?;
        self.count.operations = self.count.operations.wrapping_add(1);
        let outcome = Visit::enter(&self.room, call, self.count, inline)
            .and_then(|mut visit| work(&mut visit).map(|()| visit.leave()));
        match outcome {
            Ok(steps) => {
                self.count.steps = self.count.steps.wrapping_add(steps);
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Writes the note that goes with the next operation.
    pub(super) fn leave_note(&mut self, bytes: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        assert!(bytes.len() <= NOTE);
        let place = Visit::note(&self.room, self.room.rank(), self.count.operations.wrapping_add(1));
        // SAFETY: the last readers of this place were in the operation before the last. All ranks had finished that one
        // when all had entered the last one, which is over.
        let mut place = unsafe { self.room.memory.write(place, bytes.len()) };
        kernel::copy(&mut place, bytes);
    }

    /// Remembers the error and tells the others.
    #[cold]
    pub(super) fn fail(&mut self, error: CommError) -> CommError {
        let told = self.room.raise(error);
        self.failure.get_or_insert(told).clone()
    }
}
