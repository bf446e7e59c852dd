//! The owner's part in failing: it reports what goes wrong, waits for the reason that all ranks give, and ends
//! everything with it. The watcher finds the reason; see [`crate::decide::blame`].

use std::{any::Any, time::Duration};

use sirtaki_comm::{Alarm, CommError, Group, Rank};

use crate::{
    EngineError,
    decide::message::{Spoken, Verdict, Word},
    runtime::{
        owner::{Owner, Submission},
        shared::now,
    },
    telemetry::recorder::{Culprit, Stage},
};

/// How long links may take to carry our last words.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why everything ends once this thread of this rank has panicked.
pub(crate) fn panicked(group: &Group, thread: &str, panic: &(dyn Any + Send)) -> Alarm {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it did not say why".into());
    let who = group.describe(group.rank());
    Alarm::Stopped {
        reason: format!("the {thread} thread of {who} panicked: {text}; hint: this is a bug, please report it"),
    }
}

impl Owner {
    /// This thread has panicked. Nothing more is done, and the other ranks are told.
    pub(crate) fn panicked(&mut self, panic: &(dyn Any + Send)) {
        let reason = panicked(&self.shared.group, "engine", panic).into();
        match self.troubled {
            false => self.trouble(&reason),
            // Even failing has failed: the rest ends when it is dropped.
            true => {
                self.submissions.clear();
                self.running.clear();
                self.failure.get_or_insert(reason);
            }
        }
    }

    /// Something went wrong here, and nothing more is done until the reason is known.
    pub(crate) fn trouble(&mut self, error: &CommError) {
        if !std::mem::replace(&mut self.troubled, true) {
            self.shared.complain(error.to_alarm());
        }
    }

    /// A rank has left in good order. That is a failure as soon as another rank needs it.
    pub(crate) fn someone_left(&mut self, rank: Rank) {
        self.released = true;
        if rank == self.shared.group.rank() {
            return;
        }
        self.left = Some(rank);
        self.shared.left_channel(rank);
        if !self.submissions.is_empty() {
            self.miss(rank);
        }
    }

    /// A rank that left in good order is needed.
    pub(crate) fn miss(&mut self, rank: Rank) {
        let group = &self.shared.group;
        let how = "it left the engine in good order, and others still need it".into();
        self.trouble(&CommError::PeerLost { rank: group.world_rank(rank), who: group.describe(rank), how });
    }

    /// Everything ends, for the reason that all ranks give.
    pub(crate) fn over(&mut self, reason: Alarm) {
        if let Some(culprit) = Culprit::of(&reason) {
            (self.shared.settings.accuse)(culprit);
        }
        let reason = CommError::from(reason);
        self.end_jobs(&reason);
        self.shared.fail_messages(&reason, true);
        self.runner.abort(&reason);
        self.failure = Some(reason);
    }

    fn end_jobs(&mut self, reason: &CommError) {
        let time = now().as_nanos() as u64;
        let stream = self.shared.telemetry.stream.clone();
        let submissions = self.submissions.drain().flat_map(|(_, submissions)| submissions).map(
            |Submission { request, promise, submitted, .. }| {
                stream.failed(&request.name, submitted.as_nanos() as u64, time);
                (request, promise)
            },
        );
        for (request, promise) in self.running.drain(..).chain(submissions) {
            self.shared.recorder.note(Stage::Failed, 0, time, 0, &request.name);
            promise.fail(EngineError::Failed { tensor: request.name.clone(), reason: reason.clone() });
        }
    }

    /// Leaves in good order. With a GPU, not before the table has said so: what it decided until then, other ranks have
    /// queued, and their GPUs wait for ours.
    pub(crate) fn leave(&mut self) {
        if self.shared.group.rank() == 0 || self.released || self.runner.device_way().is_none() {
            return self.say_goodbye();
        }
        self.tell_goodbye();
        self.rest();
    }

    /// Tells the others that this rank leaves, once.
    fn tell_goodbye(&mut self) {
        if std::mem::replace(&mut self.leaving, true) {
            return;
        }
        let goodbye = Spoken { epoch: self.member.epoch(), word: Word::Goodbye };
        let mut star = self.shared.star();
        match self.shared.group.rank() {
            0 => star.say(&[Verdict::Left(0)]),
            _ => star.say(&[goodbye]),
        }
    }

    fn say_goodbye(&mut self) {
        let reason = CommError::Stopped { reason: "the engine was closed on this rank".into() };
        self.end_jobs(&reason);
        self.shared.fail_messages(&reason, false);
        let memory = self.runner.close_device();
        self.shared.hand_in();
        self.tell_goodbye();
        self.shared.star().leave();
        self.shared.flush(PATIENCE);
        if let Some(memory) = memory {
            // If the others do not leave soon, it stays until the process ends, which nobody could change.
            let _ = memory.leave(&self.shared.stopper);
        }
        self.finished = true;
    }
}
