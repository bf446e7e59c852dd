//! Whether the ranks of a host can really share memory: some containers forbid memory files, and some systems hide
//! processes from each other. All ranks come to the same answer, since all have to choose the same transport.

use serde::{Deserialize, Serialize};

use super::Exchange;
use crate::{CommError, Group, Rank, shm::Segment};

/// Bytes of the memory that is tried.
const BYTES: usize = 4096;

/// Where a rank's memory is, or why there is none.
type Offer = Result<(u32, i32), String>;

/// Opens another process's memory; a function, so that tests can have one that fails.
type Open<'a> = &'a dyn Fn(u32, i32) -> Result<Segment, CommError>;

/// What keeps ranks on one host from sharing memory, if anything: which ranks, and why. All ranks of `group` call it;
/// it needs two rounds of `exchange`.
pub(crate) fn obstacle(group: &Group, exchange: &mut dyn Exchange) -> Result<Option<String>, CommError> {
    try_with(group, exchange, &|pid, descriptor| Segment::open(pid, descriptor, BYTES))
}

/// Every rank makes some memory, and the rank before it on its host opens it.
fn try_with(group: &Group, exchange: &mut dyn Exchange, open: Open<'_>) -> Result<Option<String>, CommError> {
    let mine = Segment::create(BYTES);
    let offer: Offer = mine.as_ref().map(Segment::address).map_err(ToString::to_string);
    let offers: Vec<Offer> = round(group, exchange, &offer)?;
    let next = next_on_host(group);
    let outcome = match &offers[next] {
        Ok(_) if next == group.rank() => Ok(()),
        Ok((pid, descriptor)) => open(*pid, *descriptor).map(drop).map_err(|error| error.to_string()),
        Err(reason) => Err(reason.clone()),
    };
    let outcomes: Vec<Result<(), String>> = round(group, exchange, &outcome)?;
    let failed = outcomes.into_iter().enumerate().find_map(|(rank, outcome)| Some((rank, outcome.err()?)));
    Ok(failed.map(|(rank, reason)| format!("{}: {reason}", group.describe(rank))))
}

/// The rank after this one among those of its host, or itself.
fn next_on_host(group: &Group) -> Rank {
    let hosts = group.hosts();
    let ranks = hosts.iter().find(|ranks| ranks.contains(&group.rank()));
    let after =
        |ranks: &Vec<Rank>| ranks.iter().position(|&rank| rank == group.rank()).map(|at| (at + 1) % ranks.len());
    ranks.and_then(|ranks| Some(ranks[after(ranks)?])).unwrap_or(group.rank())
}

fn round<T: Serialize + for<'a> Deserialize<'a>>(
    group: &Group,
    exchange: &mut dyn Exchange,
    mine: &T,
) -> Result<Vec<T>, CommError> {
    let bad = |rank, error: postcard::Error| CommError::Refused {
        peer: group.describe(rank),
        reason: format!(
            "what it says about shared memory cannot be read ({error}); do all ranks run the same version?"
        ),
    };
    let bytes = postcard::to_stdvec(mine).map_err(|error| bad(group.rank(), error))?;
    let all = exchange.all(&bytes)?;
    all.iter().enumerate().map(|(rank, bytes)| postcard::from_bytes(bytes).map_err(|e| bad(rank, e))).collect()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use super::*;
    use crate::rendezvous::{MemoryStore, StoreExchange};

    fn everybody(open: impl Fn(Rank, u32, i32) -> Result<Segment, CommError> + Sync) -> Vec<Option<String>> {
        let store: Arc<MemoryStore> = Arc::default();
        let ask = |rank| {
            let mut exchange = StoreExchange::new(store.clone(), "shm", rank, 3, Duration::from_secs(60));
            try_with(&Group::local(rank, 3), &mut exchange, &|pid, fd| open(rank, pid, fd)).unwrap()
        };
        thread::scope(|threads| {
            let ranks: Vec<_> = (0..3).map(|rank| threads.spawn(move || ask(rank))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn one_rank_that_cannot_open_memory_is_named_by_all() {
        let works = |_, pid, fd| Segment::open(pid, fd, BYTES);
        assert_eq!(everybody(works), [None, None, None]);
        let answers = everybody(|rank, pid, fd| match rank {
            1 => Err(CommError::Invalid { problem: "processes are hidden".into() }),
            _ => works(rank, pid, fd),
        });
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        let answer = answers[0].as_ref().unwrap();
        assert!(answer.contains("rank 1") && answer.contains("processes are hidden"), "{answer}");
    }
}
