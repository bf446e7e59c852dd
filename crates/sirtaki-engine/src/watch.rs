//! The second thread: sees what the owner cannot see because it is busy or waiting.

use std::{sync::atomic::Ordering, thread, time::Duration};

use sirtaki_comm::{Alarm, CommError, Communicator, Group, Rank};

use crate::{
    inbox::Command,
    message::{Spoken, Verdict, Word},
    process,
    recorder::{Phase, Record, Recorder},
    shared::{Activity, Shared, now},
    stall::{Whereabouts, explain_collective},
};

/// How often it looks.
const TICK: Duration = Duration::from_millis(100);

/// How often other hosts are greeted.
const GREETING: Duration = Duration::from_millis(500);

/// Everybody's flight record on this host, by rank. All ranks call it.
pub(crate) fn exchange_records(
    world: &mut dyn Communicator,
    mine: &Recorder,
) -> Result<Vec<Option<Recorder>>, CommError> {
    let group = world.group().clone();
    let (pid, descriptor) = mine.address();
    let mut addresses = vec![0_i64; 2 * group.size()];
    addresses[2 * group.rank()] = i64::from(pid);
    addresses[2 * group.rank() + 1] = i64::from(descriptor);
    world.all_gather((&mut addresses).into(), &vec![2; group.size()])?;
    let here = &group.members()[group.rank()].host_id;
    let open = |rank: usize| match &group.members()[rank].host_id == here {
        // A record that cannot be opened is only missing from explanations.
        true => Recorder::open(addresses[2 * rank] as u32, addresses[2 * rank + 1] as i32).ok(),
        false => None,
    };
    let records = (0..group.size()).map(open).collect();
    world.barrier()?;
    Ok(records)
}

/// Looks until the owner has ended.
pub(crate) fn run(shared: &Shared) {
    let mut told = None;
    let mut warned = Duration::ZERO;
    let mut greeted = Duration::ZERO;
    while !shared.ended.load(Ordering::Acquire) {
        shared.recorder.beat(now().as_nanos() as u64);
        call_others(shared, &mut told);
        notice_silence(shared);
        greet_other_hosts(shared, &mut greeted);
        if shared.table.is_some() {
            explain(shared, &mut warned);
        }
        thread::park_timeout(TICK);
    }
}

/// A process whose watcher does not beat is stopped or gone; with something to wait for, that is an error. Only ranks
/// of this host are seen.
fn notice_silence(shared: &Shared) {
    if !shared.activity.waiting.load(Ordering::Acquire) {
        return;
    }
    let (now, group) = (now(), &shared.group);
    let silent = |record: &Recorder| match record.last_beat() {
        0 => false,
        beat => now.saturating_sub(Duration::from_nanos(beat)) > shared.silence,
    };
    let records = shared.records.iter().enumerate();
    if let Some((rank, _)) =
        records.filter_map(|(rank, record)| Some((rank, record.as_ref()?))).find(|(_, r)| silent(r))
    {
        shared.inbox.send(Command::Fail(silence(group, rank, shared.silence)));
    }
}

/// While somebody waits, other hosts are sent a few bytes now and then. One that is cut off or switched off does not
/// acknowledge them, and the link breaks; without, nobody would ever notice.
fn greet_other_hosts(shared: &Shared, greeted: &mut Duration) {
    let now = now();
    if shared.group.hosts().len() == 1 || now.saturating_sub(*greeted) < GREETING {
        return;
    }
    *greeted = now;
    let waiting = shared.activity.waiting.load(Ordering::Acquire);
    let table_waits = shared.table().map(|table| table.is_waited_at());
    // An error shows in the owner's next look at the link.
    let _ = match table_waits {
        None if waiting => shared.star().send(0, &Vec::<Spoken>::new()),
        Some(waited_at) if waiting || waited_at => shared.star().send_all(&Vec::<Verdict>::new()),
        _ => Ok(()),
    };
}

/// The reason for giving up a rank that is there but does nothing.
pub(crate) fn silence(group: &Group, rank: Rank, waited: Duration) -> Alarm {
    let (rank, who) = (group.world_rank(rank), group.describe(rank));
    Alarm::Timeout { rank, who, operation: "its part of the work".into(), waited }
}

/// Warns of what waits for long, and ends everything after the shutdown time.
fn explain(shared: &Shared, warned: &mut Duration) {
    let (now, settings) = (now(), &shared.settings);
    if let Some(limit) = settings.shutdown_after
        && let Some(text) = sentence(shared, now, limit)
    {
        shared.inbox.send(Command::Fail(Alarm::Stopped { reason: text.clone() }));
        shared.stopper.stop(text);
        return;
    }
    if let Some(limit) = settings.warn_after
        && now.saturating_sub(*warned) >= limit
        && let Some(text) = sentence(shared, now, limit)
    {
        *warned = now;
        (settings.warn)(&text);
    }
}

/// What has waited for `limit`, in words.
fn sentence(shared: &Shared, now: Duration, limit: Duration) -> Option<String> {
    let group = &shared.group;
    let here = &group.members()[group.rank()].host_id;
    let states = |rank: usize| {
        let member = &group.members()[rank];
        (member.host_id == *here).then(|| process::state(member.pid))
    };
    if let Some(stall) = shared.table().and_then(|table| table.stalled(now, limit)) {
        return Some(stall.explain(group, now, &states));
    }
    let activity = &shared.activity;
    let lasting = Activity::lasting(&activity.voting_since, now).max(Activity::lasting(&activity.running_since, now));
    if lasting < limit || lasting.is_zero() {
        return None;
    }
    let sequence = activity.sequence.load(Ordering::Relaxed) + 1;
    let last = |record: &Recorder| record.read().into_iter().rev().find(|record| record.phase != Phase::Submitted);
    let tensor = last(&shared.recorder).map(|record| record.name).unwrap_or_default();
    let place = |record: &Recorder| last(record).map(|Record { phase, sequence, .. }| Whereabouts { phase, sequence });
    let places: Vec<_> = shared.records.iter().map(|record| record.as_ref().and_then(place)).collect();
    Some(explain_collective(group, (sequence, &tensor), lasting, &places, &states))
}

/// A rank that waits long in a vote calls for agreement again, so that the missing ones come to the vote: they may be
/// late because they want something else, or need longer than a collective may take.
fn call_others(shared: &Shared, told: &mut Option<u32>) {
    let waiting = Activity::lasting(&shared.activity.voting_since, now());
    let epoch = shared.activity.epoch.load(Ordering::Relaxed);
    if waiting < shared.settings.patience || *told == Some(epoch) {
        return;
    }
    *told = Some(epoch);
    let spoken = Spoken { epoch, word: Word::Deviate };
    match shared.table() {
        None => drop(shared.star().send(0, &vec![spoken])),
        Some(mut table) => {
            table.hear(0, spoken, now());
            let verdicts = table.decide();
            let _ = shared.star().send_all(&verdicts);
            verdicts.into_iter().for_each(|verdict| shared.inbox.send(Command::Heard(verdict)));
        }
    }
}
