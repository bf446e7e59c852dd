//! Small messages alongside the collectives: "I wait in call number n", and alarms.
//!
//! They are sent without waiting, from buffers owned here, and read only when a rank looks. Every message names its
//! sender and marks its own end, so MPI's status objects, whose layout differs between families, are not needed.

use serde::{Deserialize, Serialize};

use super::{
    lent::Lent,
    raw::{Comm, MpiRequest, Route, Type},
    session::Session,
};
use crate::{Alarm, CommError, Rank};

/// Tag of these messages.
const TAG: i32 = 1;
/// Most bytes of an encoded message: an alarm and its frame.
const LIMIT: usize = Alarm::LIMIT + 64;

#[derive(Serialize, Deserialize)]
enum Notice {
    Here { rank: Rank, sequence: u64 },
    Alarm { alarm: Vec<u8> },
}

/// The messages of one communicator.
pub(super) struct Control {
    /// The last call in which each rank said it waits.
    heard: Vec<u64>,
    announced: u64,
    outbox: Vec<(MpiRequest, Lent)>,
}

impl Control {
    pub(super) fn new(size: usize) -> Self {
        Self { heard: vec![0; size], announced: 0, outbox: Vec::new() }
    }

    /// Tells all ranks, once per call, that `rank` waits in call `sequence`.
    pub(super) fn announce(&mut self, session: &Session, comm: Comm, rank: Rank, sequence: u64) {
        if self.announced < sequence {
            self.announced = sequence;
            self.tell_all(session, comm, rank, &Notice::Here { rank, sequence });
        }
    }

    /// Tells all ranks why this rank gives up.
    pub(super) fn alarm(&mut self, session: &Session, comm: Comm, rank: Rank, error: &CommError) {
        self.tell_all(session, comm, rank, &Notice::Alarm { alarm: error.to_alarm().encode() });
    }

    /// Reads what has arrived; an alarm is returned as the error it tells of.
    pub(super) fn poll(&mut self, session: &Session, comm: Comm) -> Result<(), CommError> {
        while session.ask("look for messages", |mpi| mpi.probe_any(TAG, comm))? {
            let mut bytes = vec![0; LIMIT];
            session.ask("receive a message", |mpi| mpi.receive_any(&mut bytes, TAG, comm))?;
            match postcard::from_bytes(&bytes) {
                Ok(Notice::Here { rank, sequence }) => {
                    if let Some(last) = self.heard.get_mut(rank) {
                        *last = sequence.max(*last);
                    }
                }
                Ok(Notice::Alarm { alarm }) => {
                    let unknown = || Alarm::Stopped { reason: "another rank failed and did not say why".into() };
                    return Err(Alarm::decode(&alarm).unwrap_or_else(unknown).into());
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// The lowest rank but `me` that has not said it waits in call `sequence`.
    pub(super) fn silent(&self, me: Rank, sequence: u64) -> Option<Rank> {
        (0..self.heard.len()).find(|&rank| rank != me && self.heard[rank] < sequence)
    }

    /// Failures to send are ignored: a rank that misses this message finds out by its own deadline.
    fn tell_all(&mut self, session: &Session, comm: Comm, me: Rank, notice: &Notice) {
        self.take_back(session);
        let Ok(message) = postcard::to_stdvec(notice) else { return };
        for rank in (0..self.heard.len()).filter(|&rank| rank != me) {
            let bytes = Lent::new(message.clone());
            let (count, route) = (bytes.len() as i32, Route { tag: TAG, comm });
            // SAFETY: the bytes are lent until the request is done, or for ever.
            if let Ok(request) = unsafe { session.mpi.start_send(bytes.start(), count, Type::U8, rank, route) } {
                self.outbox.push((request, bytes));
            }
        }
    }

    /// Takes back the bytes of messages that have been sent.
    fn take_back(&mut self, session: &Session) {
        for (mut request, bytes) in std::mem::take(&mut self.outbox) {
            if session.mpi.test(&mut request) == Ok(true) {
                // SAFETY: their only request is done.
                drop(unsafe { bytes.back() });
            } else {
                self.outbox.push((request, bytes));
            }
        }
    }

    /// Reads what is left and forgets what was sent.
    pub(super) fn close(&mut self, session: &Session, comm: Comm) {
        let _ = self.poll(session, comm);
        self.take_back(session);
    }
}
