//! Who takes part: every process describes itself, and all descriptions are exchanged through MPI.

use super::{
    raw::{Comm, Parts, Type},
    session::Session,
};
use crate::{CommError, Group, Member, Rank, rendezvous::this_member};

/// Most bytes of one encoded member.
const RECORD: usize = 512;

/// All ranks' `mine`, one after another; all give the same number of bytes. Blocks until all ranks call it.
pub(super) fn share(session: &Session, comm: Comm, rank: Rank, size: usize, mine: &[u8]) -> Result<Vec<u8>, CommError> {
    let mut all = vec![0; mine.len() * size];
    all[rank * mine.len()..][..mine.len()].copy_from_slice(mine);
    let counts = vec![mine.len() as i32; size];
    let starts: Vec<_> = (0..size).map(|rank| (rank * mine.len()) as i32).collect();
    let parts = Parts { counts: &counts, starts: &starts };
    session.ask("exchange descriptions", |mpi| mpi.all_gather(&mut all, parts, Type::U8, comm))?;
    Ok(all)
}

/// The group of all processes of `comm`.
pub(super) fn gather(session: &Session, comm: Comm) -> Result<Group, CommError> {
    let rank = session.ask("ask for the rank", |mpi| mpi.rank(comm))?;
    let size = session.ask("ask for the size", |mpi| mpi.size(comm))?;
    let mut record = postcard::to_stdvec(&this_member(rank)?).unwrap_or_default();
    if record.len() > RECORD {
        return Err(CommError::Invalid { problem: format!("the host's name is longer than {RECORD} bytes") });
    }
    record.resize(RECORD, 0);
    let all = share(session, comm, rank, size, &record)?;
    let members: Result<Vec<Member>, _> = all.chunks(RECORD).map(postcard::from_bytes).collect();
    match members {
        Ok(members) => Ok(Group::new(rank, members)),
        Err(_) => Err(CommError::Refused {
            peer: "the other ranks of the MPI job".into(),
            reason: "a rank did not describe itself as this version of sirtaki does; start the same program everywhere"
                .into(),
        }),
    }
}
