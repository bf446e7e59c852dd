//! The second thread: sees what the owner cannot see while it is busy or waiting, and finds out why an engine ends.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError, atomic::Ordering},
    thread,
    time::Duration,
};

use sirtaki_comm::{Alarm, CommError, Communicator, Rank};

use crate::{
    decide::{
        blame::{Act, Blame, Ending, Sign, View},
        message::{Spoken, Word},
    },
    runtime::{
        ending::Watched,
        explain::{self, Explainer},
        fail,
        inbox::Command,
        shared::{Activity, Shared, now},
    },
    telemetry::{Carrier, recorder::Recorder},
};

/// How often it looks.
const TICK: Duration = Duration::from_millis(100);
/// How often it looks while something is wrong.
const SHORT_TICK: Duration = Duration::from_millis(20);
/// How many signs of life other hosts get within the time a rank may be silent.
const SIGNS: u32 = 8;
/// How long every thread that submits must have been waiting before other ranks are told.
const BLOCKED: Duration = Duration::from_millis(500);
/// How long links may take to carry the reason.
const PATIENCE: Duration = Duration::from_millis(200);

/// The flight records of all ranks on this host, by rank. All ranks call it.
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
        // Without this record only explanations are poorer.
        true => Recorder::open(addresses[2 * rank] as u32, addresses[2 * rank + 1] as i32).ok(),
        false => None,
    };
    let records = (0..group.size()).map(open).collect();
    world.barrier()?;
    Ok(records)
}

/// The thread's state.
struct Watcher<'a> {
    shared: &'a Arc<Shared>,
    blame: Blame,
    /// The epoch in which others were called to a vote.
    called: Option<u64>,
    explainer: Explainer,
    /// Since when every thread that submits has been waiting, and whether the owner knows.
    blocked: Option<(u64, Duration, bool)>,
    /// When other hosts were last shown that this rank is alive.
    shown: Duration,
    carrier: Carrier,
}

/// Looks until the owner has ended. If it panics, the engine ends too, on all ranks.
pub(crate) fn run(shared: &Arc<Shared>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| watch(shared))) {
        let reason = fail::panicked(&shared.group, "watching", &*panic);
        shared.star().fail(&reason);
        end(shared, reason);
    }
}

fn watch(shared: &Arc<Shared>) {
    let _ = shared.watcher.set(thread::current());
    let blame = Blame::new(shared.group.clone(), shared.silence);
    let mut watcher = Watcher {
        shared,
        blame,
        called: None,
        explainer: Explainer::default(),
        blocked: None,
        shown: Duration::ZERO,
        carrier: Carrier::default(),
    };
    while !shared.ended.load(Ordering::Acquire) {
        shared.recorder.beat(now().as_nanos() as u64);
        watcher.show_life();
        watcher.call_others();
        watcher.look_at_callers();
        shared.report_waits();
        watcher.explain();
        watcher.judge();
        explain::answer(shared);
        let soon = watcher.carrier.carry(shared);
        thread::park_timeout(if soon || watcher.blame.is_open() { SHORT_TICK } else { TICK });
    }
}

impl Watcher<'_> {
    /// Ranks of other hosts do not see this rank's beat in shared memory.
    fn show_life(&mut self) {
        let now = now();
        if now.saturating_sub(self.shown) >= self.shared.silence / SIGNS {
            self.shown = now;
            self.shared.star().show_life(|rank| !self.shared.is_here(rank));
        }
    }

    /// Finds out whether everything ends, and why.
    fn judge(&mut self) {
        let (shared, time) = (self.shared, now());
        let (fails, words) = {
            let mut star = shared.star();
            let words = star.fill();
            (star.take_fails(), words)
        };
        shared.read_posts();
        if words {
            shared.inbox.send(Command::Listen);
        }
        for alarm in fails {
            match shared.group.rank() {
                0 => self.blame.complain(alarm, time),
                _ => self.blame.hear(alarm),
            }
        }
        for alarm in mem::take(&mut *shared.complaints.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.blame.complain(alarm, time);
        }
        let waiting = shared.activity.waiting.load(Ordering::Acquire)
            || shared.has_messages()
            || shared.table().is_some_and(|table| table.is_waited_at());
        let view = View { now: time, waiting, sign: &|rank| sign(shared, rank), ending: &|rank| ending(shared, rank) };
        match self.blame.look(&view) {
            Act::Wait => {}
            Act::Tell(alarm) => shared.star().fail(&alarm),
            Act::Over(reason) => end(shared, reason),
        }
    }

    /// Rank 0 explains long waits, and ends everything when one has lasted too long.
    fn explain(&mut self) {
        if self.shared.table.is_none() || self.blame.is_open() || self.blame.is_over() {
            return;
        }
        if let Some(alarm) = self.explainer.explain(self.shared, now()) {
            self.blame.complain(alarm, now());
        }
    }

    /// Has the owner tell the other ranks when this one will submit nothing more, but only after a while: it costs a
    /// message, and most waits are short.
    fn look_at_callers(&mut self) {
        let now = now();
        let version = self.shared.callers.blocked().map(|version| version + self.shared.channel.moves());
        self.blocked = match (version, self.blocked) {
            (None, _) => None,
            (Some(version), Some((before, since, told))) if version == before => {
                let tell = !told && now.saturating_sub(since) >= BLOCKED;
                if tell {
                    self.shared.inbox.send(Command::Blocked);
                }
                Some((version, since, told || tell))
            }
            (Some(version), _) => Some((version, now, false)),
        };
    }

    /// A rank that waits long in a vote asks for agreement again, so that the missing ranks come to the vote: they may
    /// be late because they want something else, or need longer than a collective may take.
    fn call_others(&mut self) {
        let shared = self.shared;
        let waiting = Activity::lasting(&shared.activity.voting_since, now());
        let epoch = shared.activity.epoch.load(Ordering::Relaxed);
        if waiting < shared.settings.patience || self.called == Some(epoch) {
            return;
        }
        self.called = Some(epoch);
        let spoken = Spoken { epoch, word: Word::Deviate };
        match shared.table() {
            None => shared.star().say(&[spoken]),
            Some(mut table) => {
                table.hear(0, spoken, now());
                let verdicts = table.decide();
                shared.star().say(&verdicts);
                verdicts.into_iter().for_each(|verdict| shared.inbox.send(Command::Heard(verdict)));
            }
        }
    }
}

/// Ends everything here.
fn end(shared: &Shared, reason: Alarm) {
    if shared.group.rank() == 0 {
        // Before anything here ends, and perhaps the process with it.
        shared.star().fail(&reason);
        shared.flush(PATIENCE);
    }
    shared.stopper.stop(CommError::from(reason.clone()).to_string());
    shared.inbox.send(Command::Over(reason));
}

/// What is seen of a rank: its beat on this host, signs of life over the link from others, and the link's end.
fn sign(shared: &Shared, rank: Rank) -> Sign {
    match shared.star().sign(rank) {
        Sign::Quiet(_) if shared.is_here(rank) => {
            let beat = shared.records[rank].as_ref().map_or(0, Recorder::last_beat);
            // A rank whose record cannot be read is left to the collectives.
            let quiet = if beat == 0 { Duration::ZERO } else { now().saturating_sub(Duration::from_nanos(beat)) };
            Sign::Quiet(quiet)
        }
        sign => sign,
    }
}

/// How a rank ended. Where each rank finds the reason by itself, only what all of them can know counts.
fn ending(shared: &Shared, rank: Rank) -> Ending {
    let ours_to_say = shared.group.rank() == 0 || shared.group.hosts().len() == 1;
    let kernel = shared.processes[rank].as_ref().filter(|_| ours_to_say).map(Watched::ending);
    match kernel {
        Some(Ending::Known(ending)) => Ending::Known(ending),
        other => match (shared.settings.ending)(shared.group.world_rank(rank)) {
            Some(ending) => Ending::Known(ending),
            None => other.unwrap_or(Ending::Unknown),
        },
    }
}
