//! Long waits, explained on rank 0: which rank has not come, and what it is doing instead.
//!
//! A late rank is asked. Its watcher answers with what the kernel shows of the process and with what the front end
//! knows of the program, such as the line of Python it is in. An answer may never come, so rank 0 does not wait for
//! long.

use std::{
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sirtaki_comm::{Alarm, Rank};

use crate::{
    Settings,
    decide::{
        stall::{Whereabouts, explain_collective},
        waits::{explain_message, last_in_chain},
    },
    runtime::{
        channel::Reports,
        process,
        shared::{Activity, Shared},
    },
    telemetry::recorder::{FlightEntry, Recorder, Stage},
};

/// How long rank 0 waits for an answer.
const ANSWER: Duration = Duration::from_secs(1);
/// How many characters of an answer are shown.
const ANSWER_LENGTH: usize = 500;

/// What a rank that was asked says.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// What its process is doing, in words that follow "it is".
    state: String,
    /// Whether the answer is complete; the program may take longer to answer than the kernel.
    complete: bool,
}

/// Rank 0's part: what it has warned about, and whom it has asked.
#[derive(Debug, Default)]
pub(crate) struct Explainer {
    warned: Duration,
    asked: Option<(Rank, Duration)>,
    answer: Option<Answer>,
}

impl Explainer {
    /// Warns about long waits. Returns the reason to end when one has reached the hang timeout.
    pub(crate) fn explain(&mut self, shared: &Shared, now: Duration) -> Option<Alarm> {
        let Settings { hang_timeout, warn_after, warn, .. } = &shared.settings;
        let stalled = |limit: &Duration| waits_for(shared, now, *limit);
        let hangs = hang_timeout.filter(stalled);
        let due = warn_after.filter(|limit| now.saturating_sub(self.warned) >= *limit && stalled(limit));
        let Some(limit) = hangs.or(due) else {
            (self.asked, self.answer) = (None, None);
            return None;
        };
        if !self.has_asked(shared, now, limit) {
            return None;
        }
        let text = self.sentence(shared, now, limit)?;
        (self.asked, self.answer, self.warned) = (None, None, now);
        if hangs.is_none() {
            warn(&text);
            return None;
        }
        let hint = "hint: if it is only slow, allow more with --hang-timeout or SIRTAKI_HANG_TIMEOUT";
        let reason = format!("the timeout of {} s has passed: {text} {hint}", limit.as_secs_f64());
        Some(Alarm::Stopped { reason })
    }

    /// Asks the late rank; says whether it has answered or will not.
    fn has_asked(&mut self, shared: &Shared, now: Duration, limit: Duration) -> bool {
        let stall = shared.table().and_then(|table| table.stalled(now, limit));
        let late = stall.and_then(|stall| stall.missing.first().copied());
        let Some(late) = late.or_else(|| awaited_rank(shared, limit)) else { return true };
        match self.asked {
            Some((rank, asked)) if rank == late => {
                let mut answers = shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
                let heard = answers.drain(..).chain(shared.star().take_answers());
                self.answer = heard
                    .filter(|(rank, _)| *rank == late)
                    .map(|(_, answer)| answer)
                    .next_back()
                    .or(self.answer.take());
                let complete = self.answer.as_ref().is_some_and(|answer| answer.complete);
                complete || now.saturating_sub(asked) >= ANSWER
            }
            _ => {
                (self.asked, self.answer) = (Some((late, now)), None);
                match late == shared.group.rank() {
                    true => shared.asked.store(true, Ordering::Release),
                    false => shared.star().ask(late),
                }
                false
            }
        }
    }

    /// What has waited for `limit`, in words.
    fn sentence(&self, shared: &Shared, now: Duration, limit: Duration) -> Option<String> {
        let group = &shared.group;
        let told = |rank: Rank| self.asked.filter(|(late, _)| *late == rank).and(self.answer.as_ref());
        let seen = |rank: Rank| shared.is_here(rank).then(|| process::state(group.members()[rank].pid));
        let states = |rank: Rank| told(rank).map(|answer| answer.state.clone()).or_else(|| seen(rank));
        if let Some(stall) = shared.table().and_then(|table| table.stalled(now, limit)) {
            return Some(stall.explain(group, now, &states));
        }
        let reports = reports(shared);
        if let Some(rank) = reports.longest(limit) {
            return explain_message(group, rank, &|rank| reports.wait(rank), &states);
        }
        drop(reports);
        let sequence = shared.activity.sequence.load(Ordering::Relaxed) + 1;
        let last = |record: &Recorder| {
            record
                .read()
                .into_iter()
                .rev()
                .find(|record| record.stage != Stage::Submitted && !record.stage.is_message())
        };
        let tensor = last(&shared.recorder).map(|record| record.name).unwrap_or_default();
        let place =
            |record: &Recorder| last(record).map(|FlightEntry { stage, sequence, .. }| Whereabouts { stage, sequence });
        let places: Vec<_> = shared.records.iter().map(|record| record.as_ref().and_then(place)).collect();
        Some(explain_collective(group, (sequence, &tensor), in_collective(shared, now), &places, &states))
    }
}

/// Whether anything has waited for `limit`: a tensor at the table, a message, or this rank in a collective.
fn waits_for(shared: &Shared, now: Duration, limit: Duration) -> bool {
    let lasting = in_collective(shared, now);
    shared.table().is_some_and(|table| table.stalled(now, limit).is_some())
        || reports(shared).longest(limit).is_some()
        || (lasting >= limit && !lasting.is_zero())
}

/// The rank to ask about a message that has waited for `limit`.
fn awaited_rank(shared: &Shared, limit: Duration) -> Option<Rank> {
    let reports = reports(shared);
    let rank = reports.longest(limit)?;
    Some(last_in_chain(rank, &|rank| reports.wait(rank), shared.group.size()))
}

fn reports(shared: &Shared) -> MutexGuard<'_, Reports> {
    shared.channel.reports.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long this rank has been in a collective.
fn in_collective(shared: &Shared, now: Duration) -> Duration {
    let Activity { voting_since, running_since, .. } = &shared.activity;
    Activity::lasting(voting_since, now).max(Activity::lasting(running_since, now))
}

/// Answers if this rank was asked, in a thread of its own, since the program may be unable to answer: Python's lock,
/// for example, may be held for long.
pub(crate) fn answer(shared: &Arc<Shared>) {
    let asked = shared.asked.swap(false, Ordering::AcqRel) || shared.star().take_asked();
    if !asked || shared.answering.swap(true, Ordering::AcqRel) {
        return;
    }
    let answering = shared.clone();
    let work = move || {
        let state = process::state(std::process::id());
        send(&answering, Answer { state: state.clone(), complete: false });
        let state = match (answering.settings.current_work)() {
            Some(work) => format!("{state}, in {}", work.chars().take(ANSWER_LENGTH).collect::<String>()),
            None => state,
        };
        send(&answering, Answer { state, complete: true });
        answering.answering.store(false, Ordering::Release);
    };
    if thread::Builder::new().name("sirtaki-answer".into()).spawn(work).is_err() {
        shared.answering.store(false, Ordering::Release);
    }
}

fn send(shared: &Shared, answer: Answer) {
    match shared.group.rank() {
        0 => shared.answers.lock().unwrap_or_else(PoisonError::into_inner).push((0, answer)),
        _ => shared.star().answer(&answer),
    }
}
