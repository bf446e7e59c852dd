//! The owner's part in a batch: tensors out of the jobs, through the communicator, and results to the tickets.

use std::sync::{Arc, atomic::Ordering};

use sirtaki_comm::{CommError, Rank};

use crate::{
    EngineError,
    message::{Batch, Knobs},
    owner::{Job, Owner},
    recorder::Phase,
    request::{Operation, Request},
    run::Item,
    shared::now,
    ticket::{Output, Promise},
};

impl Owner {
    pub(crate) fn execute(&mut self, batch: &Batch) {
        let shared = self.shared.clone();
        let sequence = shared.activity.sequence.load(Ordering::Relaxed) + 1;
        let mut requests = Vec::with_capacity(batch.entries.len());
        let mut jobs = Vec::with_capacity(batch.entries.len());
        for entry in &batch.entries {
            let Some(request) = self.member.request(entry.id).cloned() else {
                return self.trouble(&CommError::Invalid { problem: format!("tensor number {} is unknown", entry.id) });
            };
            let job = self.take_job(&request.name);
            if job.is_none() && !self.joined {
                return self.trouble(&CommError::Invalid { problem: format!("\"{}\" runs unasked", request.name) });
            }
            requests.push(request);
            jobs.push(job);
        }
        if let Some(Operation::ProcessSet { members }) = requests.first().map(|request| &request.operation) {
            let members = members.clone();
            return self.make_set(batch, &members, jobs.remove(0));
        }
        let began = now().as_nanos() as u64;
        shared.activity.waiting.store(true, Ordering::Relaxed);
        shared.activity.running_since.store(began, Ordering::Release);
        shared.recorder.note(
            Phase::Running,
            sequence,
            began,
            batch.entries.len() as u64,
            requests.first().map_or("", |request| &request.name),
        );
        let mut items = Vec::with_capacity(jobs.len());
        let mut parts = Vec::with_capacity(jobs.len());
        for ((job, request), entry) in jobs.into_iter().zip(&requests).zip(&batch.entries) {
            let (tensor, part) = match job {
                Some(job) => (Some(job.tensor), Some((job.promise, job.part))),
                None => (None, None),
            };
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
            None => self.runner.run(items),
        };
        shared.activity.running_since.store(0, Ordering::Release);
        self.finish(batch, &requests, parts, outcome);
    }

    fn finish(
        &mut self,
        batch: &Batch,
        requests: &[Arc<Request>],
        parts: Vec<Option<(Arc<Promise>, usize)>>,
        outcome: Result<Vec<Option<Output>>, CommError>,
    ) {
        let sequence = self.shared.activity.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let time = now();
        match outcome {
            Ok(outputs) => {
                for request in requests {
                    self.shared.recorder.note(
                        Phase::Done,
                        sequence,
                        time.as_nanos() as u64,
                        request.bytes() as u64,
                        &request.name,
                    );
                }
                self.member.ran(batch, time);
                for (part, output) in parts.into_iter().zip(outputs) {
                    if let (Some((promise, part)), Some(output)) = (part, output) {
                        promise.keep(part, output);
                    }
                }
            }
            Err(error) => {
                let parts = parts.into_iter().zip(requests);
                self.doomed.extend(parts.filter_map(|(part, request)| Some((request.clone(), part?.0))));
                self.trouble(&error);
            }
        }
    }

    /// A sub-group with a communicator, links and an engine of its own.
    fn make_set(&mut self, batch: &Batch, members: &[Rank], job: Option<Job>) {
        let inside = members.contains(&self.shared.group.rank());
        // What was found for all ranks need not be good for some of them.
        let split = self.runner.tune(Knobs::default()).and_then(|()| self.runner.comm.split(inside.then_some(1)));
        let made = split.map_err(EngineError::from).and_then(|comm| {
            let start = |comm| crate::Engine::start(comm, &self.comm_settings, self.shared.settings.clone());
            comm.map(start).transpose()
        });
        self.member.ran(batch, now());
        match (made, job) {
            (Ok(engine), Some(job)) => job.promise.keep(job.part, Output::Set(engine.map(Box::new))),
            (Ok(_), None) => {}
            (Err(error), job) => {
                self.doomed.extend(job.map(|job| (job.request, job.promise)));
                self.trouble(&match error {
                    EngineError::Comm(reason) => reason,
                    other => CommError::Stopped { reason: other.to_string() },
                });
            }
        }
    }
}
