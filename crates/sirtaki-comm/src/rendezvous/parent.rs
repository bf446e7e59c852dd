//! Splitting a group: an existing communicator carries the messages its new groups need to connect.
//!
//! All ranks take part in every round of the parent, even ranks that join no group and ranks that are done, because
//! only the parent's collectives exist at that point. Each rank reads what its own group said.

use crate::{CommError, Communicator, DType, Group, Rank, SliceMut};

use super::Exchange;

/// What a rank is doing in a round.
const SPEAKS: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// An [`Exchange`] among some ranks of a communicator, all of whose ranks are in [`split_with`].
struct ParentExchange<'a> {
    parent: &'a mut dyn Communicator,
    members: &'a [Rank],
    /// A rank failed, and all know: there are no more rounds.
    over: bool,
}

impl ParentExchange<'_> {
    /// One round of all ranks: what each rank does, and what it says.
    fn round(&mut self, state: u8, mine: &[u8]) -> Result<Vec<(u8, Vec<u8>)>, CommError> {
        let (rank, size) = (self.parent.group().rank(), self.parent.group().size());
        let mut lengths = vec![0_i64; size];
        lengths[rank] = mine.len() as i64;
        self.parent.all_gather((&mut lengths).into(), &vec![1; size])?;
        let counts: Vec<usize> = lengths.iter().map(|&length| length as usize + 1).collect();
        let mut all = vec![0_u8; counts.iter().sum()];
        let begin: usize = counts[..rank].iter().sum();
        all[begin] = state;
        all[begin + 1..begin + counts[rank]].copy_from_slice(mine);
        self.parent.all_gather(SliceMut::new(DType::U8, &mut all)?, &counts)?;
        let mut rest = all.as_slice();
        let parts = counts.iter().map(|&count| {
            let (part, after) = rest.split_at(count);
            rest = after;
            (part[0], part[1..].to_vec())
        });
        Ok(parts.collect())
    }

    fn failure(&mut self, said: &[(u8, Vec<u8>)]) -> Result<(), CommError> {
        match said.iter().position(|&(state, _)| state == FAILED) {
            None => Ok(()),
            Some(rank) => {
                self.over = true;
                let peer = self.parent.group().describe(rank);
                Err(CommError::Refused { peer, reason: String::from_utf8_lossy(&said[rank].1).into_owned() })
            }
        }
    }

    /// Takes part until all ranks are done, so that all leave the parent in the same state.
    fn finish(mut self, outcome: Result<(), &CommError>) -> Result<(), CommError> {
        let (state, text) = match outcome {
            Ok(()) => (DONE, String::new()),
            Err(error) => (FAILED, error.to_string()),
        };
        while !self.over {
            let said = self.round(state, text.as_bytes())?;
            self.failure(&said)?;
            self.over = said.iter().all(|&(state, _)| state == DONE);
        }
        Ok(())
    }
}

impl Exchange for ParentExchange<'_> {
    fn all(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let mut said = self.round(SPEAKS, mine)?;
        self.failure(&said)?;
        Ok(self.members.iter().map(|&rank| std::mem::take(&mut said[rank].1)).collect())
    }
}

/// Splits `parent` by colour and makes something for each new group with `connect`, which every member runs and which
/// may communicate within the group. A failure anywhere is an error everywhere; `None` in, `None` out.
pub fn split_with<T>(
    parent: &mut dyn Communicator,
    colour: Option<u64>,
    connect: impl FnOnce(&Group, &mut dyn Exchange) -> Result<T, CommError>,
) -> Result<Option<T>, CommError> {
    let whole = parent.group().clone();
    let mut colours = vec![0_i64; 2 * whole.size()];
    colours[2 * whole.rank()..][..2].copy_from_slice(&[i64::from(colour.is_some()), colour.unwrap_or(0) as i64]);
    parent.all_gather((&mut colours).into(), &vec![2; whole.size()])?;
    let mine = &colours[2 * whole.rank()..][..2];
    let joins = |rank: &Rank| colour.is_some() && &colours[2 * rank..][..2] == mine;
    let members: Vec<Rank> = (0..whole.size()).filter(joins).collect();
    let mut exchange = ParentExchange { parent, members: &members, over: false };
    let Some(group) = whole.subset(&members) else {
        exchange.finish(Ok(()))?;
        return Ok(None);
    };
    let made = connect(&group, &mut exchange);
    let told = exchange.finish(made.as_ref().map(drop));
    let made = made?;
    told.map(|()| Some(made))
}
