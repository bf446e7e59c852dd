//! The one thread that owns the communicator: takes requests, talks to the table, runs what is decided.
//!
//! It sleeps when there is nothing to do. After a result it first polls for a moment if the previous result was
//! followed by a request at once; otherwise, and after a request, it does not, because it would take the core from the
//! thread that computes the next tensor. With a GPU, which computes by itself, it polls after a request, too.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use sirtaki_comm::{CommError, Rank};

use crate::{
    EngineError,
    decide::{
        agree::Table,
        message::{Spoken, Verdict},
        order::{Member, Step},
        request::{ByName, Operation, Request},
    },
    runtime::{
        ballot::Ballot,
        inbox::Command,
        memory::Tensor,
        run::{Marks, Runner},
        shared::{Shared, now},
        ticket::{Output, Pledge},
    },
    telemetry::recorder::Stage,
};

/// One request in progress.
pub(crate) struct Submission {
    pub(crate) request: Arc<Request>,
    pub(crate) tensor: Tensor,
    pub(crate) promise: Arc<Pledge>,
    pub(crate) part: usize,
    /// When it was handed in.
    pub(crate) submitted: Duration,
    /// When each rank's request reached rank 0, where that is known and wanted.
    pub(crate) arrived: Vec<u64>,
}

/// The thread's state.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) comm_settings: sirtaki_comm::Settings,
    pub(crate) runner: Runner,
    pub(crate) member: Member,
    /// Requests that are not done, by name; of a name used several times, the oldest first.
    pub(crate) submissions: HashMap<ByName, VecDeque<Submission>>,
    pub(crate) sockets: Vec<(OwnedFd, bool)>,
    pub(crate) joined: bool,
    pub(crate) closing: bool,
    /// The table was told that this rank leaves, and has said so to all.
    pub(crate) leaving: bool,
    pub(crate) released: bool,
    /// Nothing more to do.
    pub(crate) finished: bool,
    /// Something went wrong, and the reason is still to come.
    pub(crate) troubled: bool,
    /// Requests whose collective is running or has failed.
    pub(crate) running: Vec<(Arc<Request>, Arc<Pledge>)>,
    /// Why everything fails from now on.
    pub(crate) failure: Option<CommError>,
    /// Which rank has left in good order, at the point this rank has reached in the verdicts.
    pub(crate) left: Option<Rank>,
    /// Whether something was done since the thread last polled.
    pub(crate) performed: bool,
    /// When the thread ran out of work after a result; cleared by the next request.
    pub(crate) idle_since: Option<Duration>,
    /// Whether the last request came right after a result.
    pub(crate) hurried: bool,
    /// When something last happened, while an adopted order is being followed.
    pub(crate) stirred: Duration,
    /// Every thread that submits was waiting when the watcher last looked.
    pub(crate) blocked: bool,
    /// When verdicts last came, and since when the batches to be run next are known.
    heard: Duration,
    pub(crate) agreed: Duration,
    /// The epoch and cycle of an adopted order in which ranks last compared how they spent their time.
    pub(crate) compared: Option<(u64, u64)>,
}

impl Owner {
    pub(crate) fn new(
        shared: Arc<Shared>,
        runner: Runner,
        comm_settings: sirtaki_comm::Settings,
    ) -> Result<Self, CommError> {
        let (sockets, rank) = (shared.star().sockets()?, shared.group.rank());
        Ok(Self {
            shared,
            comm_settings,
            runner,
            member: Member::new(rank),
            submissions: HashMap::new(),
            sockets,
            joined: false,
            closing: false,
            leaving: false,
            released: false,
            finished: false,
            troubled: false,
            running: Vec::new(),
            failure: None,
            left: None,
            performed: false,
            idle_since: None,
            hurried: true,
            stirred: Duration::ZERO,
            blocked: false,
            heard: Duration::ZERO,
            agreed: Duration::ZERO,
            compared: None,
        })
    }

    /// Works until the engine is closed. A panic is a failure like any other.
    pub(crate) fn run(mut self) {
        while !self.finished {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work())) {
                self.panicked(&*panic);
            }
        }
        self.shared.close_channel();
        self.shared.end_telemetry(self.failure.as_ref().map(ToString::to_string));
        self.shared.ended.store(true, Ordering::Release);
    }

    /// Does the next thing there is to do.
    fn work(&mut self) {
        self.take_commands();
        if self.troubled || self.failure.is_some() {
            return self.rest_in_failure();
        }
        self.speak();
        let mut step = self.next_step();
        if step.is_none() {
            self.listen();
            step = self.next_step();
        }
        match step {
            Some(step) => self.perform(step),
            None if self.closing && !self.member.is_following() => self.leave(),
            None => self.rest(),
        }
    }

    fn next_step(&mut self) -> Option<Step> {
        let known = self.member.has_batches();
        let step = self.member.next_step();
        if !known && matches!(step, Some(Step::Run(_))) {
            self.agreed = self.heard;
        }
        step
    }

    fn take_commands(&mut self) {
        for command in self.shared.inbox.take() {
            match command {
                Command::Submit(requests, promise, time) => self.submit(requests, &promise, time),
                Command::Heard(verdict) => {
                    self.heard = now();
                    self.member.hear(verdict);
                }
                Command::Listen => {}
                Command::Blocked => self.blocked = true,
                Command::Unblocked => self.member.withdraw_blocked(),
                Command::Over(reason) => self.over(reason),
                Command::Close => {
                    self.closing = true;
                    self.member.deviate();
                }
            }
        }
    }

    fn submit(&mut self, requests: Vec<(Request, Tensor)>, promise: &Arc<Pledge>, submitted: Duration) {
        if let (None, Some(rank)) = (&self.failure, self.left) {
            self.miss(rank);
        }
        let time = now();
        self.stirred = time;
        if let Some(since) = self.idle_since.take() {
            self.hurried = submitted.saturating_sub(since) < self.looking();
        }
        let sequence = self.shared.activity.sequence.load(Ordering::Relaxed) + 1;
        for (part, (request, tensor)) in requests.into_iter().enumerate() {
            if let Some(reason) = &self.failure {
                promise.fail(EngineError::Failed { tensor: request.name, reason: reason.clone() });
                continue;
            }
            if self.joined {
                let problem = "this rank has joined and cannot submit tensors until all ranks have joined".into();
                promise.fail(EngineError::Invalid { tensor: request.name, problem });
                continue;
            }
            self.joined = request.operation == Operation::Join;
            let bytes = tensor.byte_len() as u64;
            self.shared.recorder.note(Stage::Submitted, sequence, time.as_nanos() as u64, bytes, &request.name);
            let request = Arc::new(request);
            self.member.submit(request.clone(), time);
            let (promise, arrived) = (promise.clone(), Vec::new());
            let submission = Submission { request: request.clone(), tensor, promise, part, submitted, arrived };
            // A name is rarely used twice at a time, so there is room for one.
            self.submissions.entry(ByName(request)).or_insert_with(|| VecDeque::with_capacity(1)).push_back(submission);
        }
    }

    /// Says what there is to say, and on rank 0 lets the table decide.
    fn speak(&mut self) {
        let words = self.member.words();
        if words.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        match shared.table() {
            Some(mut table) => {
                words.into_iter().for_each(|spoken| table.hear(0, spoken, now()));
                self.decide(&mut table);
            }
            None => shared.star().say(&words),
        }
    }

    /// What follows from everything said, and when requests came if that is wanted.
    fn decide(&mut self, table: &mut Table) {
        table.set_noting_arrivals(self.shared.telemetry.stream.is_traced());
        let verdicts = table.decide();
        for (name, arrived) in table.take_arrivals() {
            if let Some(submission) = self.submissions.get_mut(name.as_str()).and_then(VecDeque::front_mut) {
                submission.arrived = arrived;
            }
        }
        self.proclaim(verdicts);
    }

    /// Tells all ranks, this one included.
    pub(crate) fn proclaim(&mut self, verdicts: Vec<Verdict>) {
        if verdicts.is_empty() {
            return;
        }
        self.heard = now();
        self.shared.star().say(&verdicts);
        verdicts.into_iter().for_each(|verdict| self.member.hear(verdict));
    }

    fn listen(&mut self) {
        let shared = self.shared.clone();
        match shared.table() {
            Some(mut table) => {
                let heard = shared.star().receive::<Vec<Spoken>>();
                let time = now();
                for (rank, words) in heard {
                    words.into_iter().for_each(|spoken| table.hear(rank, spoken, time));
                }
                self.decide(&mut table);
            }
            None => {
                let heard = shared.star().receive::<Vec<Verdict>>();
                self.heard = if heard.is_empty() { self.heard } else { now() };
                heard.into_iter().flat_map(|(_, verdicts)| verdicts).for_each(|verdict| self.member.hear(verdict));
            }
        }
        shared.read_posts();
    }

    fn perform(&mut self, step: Step) {
        self.performed = true;
        self.stirred = now();
        match step {
            Step::Run(batch) => self.execute(&batch),
            Step::Speak => self.speak(),
            Step::Vote { through, stay } => self.vote(through, stay),
            Step::Released(cycles) => {
                if let Some(mut table) = self.shared.table() {
                    table.released(cycles, now());
                }
            }
            Step::Refused(names, text) => {
                for name in names {
                    if let Some(submission) = self.take_submission(&name) {
                        submission.promise.fail(EngineError::Mismatch(text.clone()));
                    }
                }
            }
            Step::Joined(last) => {
                self.joined = false;
                let join = |submissions: &VecDeque<Submission>| {
                    submissions.front().is_some_and(|submission| submission.request.operation == Operation::Join)
                };
                let names: Vec<String> = self
                    .submissions
                    .iter()
                    .filter(|(_, submissions)| join(submissions))
                    .map(|(key, _)| key.0.name.clone())
                    .collect();
                for submission in names.iter().filter_map(|name| self.take_submission(name)).collect::<Vec<_>>() {
                    submission.promise.keep(submission.part, Output::Joined(last));
                }
            }
            Step::Left(rank) => self.someone_left(rank),
            Step::Fail(alarm) => self.trouble(&alarm.into()),
        }
    }

    pub(crate) fn take_submission(&mut self, name: &str) -> Option<Submission> {
        let submissions = self.submissions.get_mut(name)?;
        let submission = submissions.pop_front();
        if submissions.is_empty() {
            self.submissions.remove(name);
        }
        submission
    }

    fn vote(&mut self, through: i64, stay: bool) {
        let activity = &self.shared.activity;
        activity.epoch.store(self.member.epoch(), Ordering::Relaxed);
        activity.waiting.store(true, Ordering::Relaxed);
        activity.voting_since.store(self.stirred.as_nanos() as u64, Ordering::Release);
        self.shared.recorder.note(
            Stage::Met,
            activity.sequence.load(Ordering::Relaxed) + 1,
            self.stirred.as_nanos() as u64,
            0,
            "",
        );
        let mine = self.spent_for_vote();
        let mut ballot = Ballot::new(through, stay, mine.as_ref());
        let outcome = self.runner.vote(ballot.as_mut());
        let activity = &self.shared.activity;
        activity.voting_since.store(0, Ordering::Release);
        self.agreed = now();
        let Marks { entered, left, bytes, .. } = self.runner.comm.take_marks();
        self.shared.telemetry.stream.vote(entered, left, bytes);
        match outcome {
            Ok(()) => {
                self.member.voted(ballot.through(), ballot.stay());
                if let (Some(mine), Some(common)) = (mine, ballot.common()) {
                    self.shared.telemetry.stream.settle(&mine, &common);
                }
            }
            Err(error) => self.trouble(&error),
        }
    }
}
