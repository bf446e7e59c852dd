//! The owner's part in a batch: takes tensors out of the submissions, passes them through the communicator, and gives
//! results to the tickets.

use std::sync::{Arc, atomic::Ordering};

use sirtaki_comm::{CommError, Communicator, Rank};

use crate::{
    Engine, EngineError, Settings,
    decide::{
        message,
        request::{Operation, Request},
    },
    runtime::{
        memory::Tensor,
        owner::{Owner, Submission},
        run::Item,
        shared::now,
        ticket::{Output, Pledge},
    },
    telemetry::{
        counts::{CollectiveKind, Counted},
        nanos,
        record::{FinishedBatch, Times, Traced},
        recorder::{Recorder, Stage},
    },
};

/// What is left of a submission while its tensor is away.
struct Part {
    promise: Arc<Pledge>,
    part: usize,
    bytes: u64,
    submitted: u64,
    arrived: Vec<u64>,
}

impl Part {
    fn of(submission: Submission) -> (Tensor, Part) {
        let Submission { tensor, promise, part, submitted, arrived, .. } = submission;
        let (bytes, submitted) = (tensor.byte_len() as u64, submitted.as_nanos() as u64);
        (tensor, Part { promise, part, bytes, submitted, arrived })
    }
}

impl Owner {
    pub(crate) fn execute(&mut self, batch: &message::Batch) {
        let shared = self.shared.clone();
        let sequence = shared.activity.sequence.load(Ordering::Relaxed) + 1;
        let mut requests = Vec::with_capacity(batch.entries.len());
        let mut submissions = Vec::with_capacity(batch.entries.len());
        for entry in &batch.entries {
            let Some(request) = self.member.request(entry.id).cloned() else {
                return self.trouble(&CommError::Invalid { problem: format!("tensor number {} is unknown", entry.id) });
            };
            let submission = self.take_submission(&request.name);
            self.running
                .extend(submission.iter().map(|submission| (submission.request.clone(), submission.promise.clone())));
            if submission.is_none() && !self.joined {
                return self.trouble(&CommError::Invalid {
                    problem: format!("this rank never asked for \"{}\"", request.name),
                });
            }
            requests.push(request);
            submissions.push(submission);
        }
        if let Some(Operation::ProcessSet { members }) = requests.first().map(|request| &request.operation) {
            let members = members.clone();
            return self.make_set(batch, &members, submissions.remove(0));
        }
        let began = now().as_nanos() as u64;
        shared.telemetry.stream.running(true);
        shared.activity.waiting.store(true, Ordering::Relaxed);
        shared.activity.running_since.store(began, Ordering::Release);
        shared.recorder.note(
            Stage::Running,
            sequence,
            began,
            batch.entries.len() as u64,
            requests.first().map_or("", |request| &request.name),
        );
        let mut items = Vec::with_capacity(submissions.len());
        let mut parts = Vec::with_capacity(submissions.len());
        for ((submission, request), entry) in submissions.into_iter().zip(&requests).zip(&batch.entries) {
            let (tensor, part) = submission.map(Part::of).unzip();
            items.push(Item { request, rows: &entry.rows, tensor });
            parts.push(part);
        }
        let group = &shared.group;
        let outcome = match items.iter().find(|item| !item.fits(group.rank(), group.size())) {
            Some(item) => {
                let problem =
                    format!("\"{}\" is not what this rank has; do all run the same version?", item.request.name);
                Err(CommError::Invalid { problem })
            }
            None => self.runner.run(items, sequence),
        };
        if let Some(way) = self.runner.device_way() {
            shared.device.get_or_init(|| way.to_owned());
        }
        shared.telemetry.stream.running(false);
        self.note(&requests, &mut parts, began);
        self.shared.activity.running_since.store(0, Ordering::Release);
        self.finish(batch, &requests, parts, outcome);
    }

    /// Reports the batch that was just run to telemetry.
    fn note(&mut self, requests: &[Arc<Request>], parts: &mut [Option<Part>], began: u64) {
        let marks = self.runner.comm.take_marks();
        let Some(kind) = requests.first().map(|request| CollectiveKind::of(&request.operation)) else { return };
        let (stream, ended) = (&self.shared.telemetry.stream, nanos());
        parts.iter().flatten().for_each(|part| stream.tensor(kind, part.bytes));
        stream.network(ended, || self.runner.comm.round_trips());
        let copying = ended.saturating_sub(began).saturating_sub(marks.inside);
        let counted = Counted { kind, bytes: marks.bytes, inside: marks.inside, copying };
        stream.collective(&counted, || {
            // With a single rank there may be nothing to call.
            let (entered, left) = if marks.entered == 0 { (began, ended) } else { (marks.entered, marks.left) };
            let agreed = self.agreed.as_nanos() as u64;
            let traced = |(request, part): (&Arc<Request>, &mut Option<Part>)| {
                let part = part.as_mut()?;
                let (arrived, name) = (std::mem::take(&mut part.arrived), request.name.clone());
                Some(Traced { name, bytes: part.bytes, submitted: part.submitted, agreed, arrived })
            };
            FinishedBatch {
                number: self.shared.activity.sequence.load(Ordering::Relaxed) + 1,
                kind,
                algorithm: marks.algorithm,
                bytes: marks.bytes,
                times: Times { began, entered, left, ended },
                tensors: requests.iter().zip(parts).filter_map(traced).collect(),
            }
        });
    }

    fn finish(
        &mut self,
        batch: &message::Batch,
        requests: &[Arc<Request>],
        parts: Vec<Option<Part>>,
        outcome: Result<Vec<Option<Output>>, CommError>,
    ) {
        let sequence = self.shared.activity.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let time = now();
        match outcome {
            Ok(outputs) => {
                for request in requests {
                    self.shared.recorder.note(
                        Stage::Done,
                        sequence,
                        time.as_nanos() as u64,
                        request.bytes() as u64,
                        &request.name,
                    );
                }
                self.member.ran(batch, time);
                self.running.clear();
                for (part, output) in parts.into_iter().zip(outputs) {
                    if let (Some(Part { promise, part, .. }), Some(output)) = (part, output) {
                        promise.keep(part, output);
                    }
                }
            }
            Err(error) => self.trouble(&error),
        }
    }

    /// A sub-group with a communicator, links and an engine of its own.
    fn make_set(&mut self, batch: &message::Batch, members: &[Rank], submission: Option<Submission>) {
        let inside = members.contains(&self.shared.group.rank());
        let split = self.runner.comm.split(inside.then_some(1));
        let made = split.map_err(EngineError::from).and_then(|comm| {
            let start = |comm| {
                let mut settings = Settings { timeline: None, profile: None, ..self.shared.settings.clone() };
                settings.device.subset = true;
                let stream = Some(self.shared.telemetry.stream.clone());
                Engine::start_within(comm, &self.comm_settings, settings, Recorder::create()?, stream)
            };
            comm.map(start).transpose()
        });
        self.member.ran(batch, now());
        match made {
            Ok(engine) => {
                self.running.clear();
                if let Some(submission) = submission {
                    submission.promise.keep(submission.part, Output::Set(engine.map(Box::new)));
                }
            }
            Err(EngineError::Comm(reason)) => self.trouble(&reason),
            Err(other) => self.trouble(&CommError::Stopped { reason: other.to_string() }),
        }
    }
}
