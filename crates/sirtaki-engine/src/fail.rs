//! The one way in which things end: whatever happens, every rank fails everything for the same reason, which rank 0
//! chooses while it is there.

use std::{os::fd::OwnedFd, time::Duration};

use sirtaki_comm::{CommError, Rank};

use crate::{
    EngineError,
    control::Lost,
    message::{Spoken, Verdict, Word},
    owner::Owner,
    recorder::Phase,
    request::ByName,
    shared::now,
    watch::silence,
};

/// How long a link may take to carry our last words.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long rank 0 may take to say what the reason is. It may still be in the collective that failed here.
const REASON_PATIENCE: Duration = Duration::from_secs(3);

impl Owner {
    /// A link is gone. That of a rank which left in good order is not missed.
    pub(crate) fn lost(&mut self, Lost { rank, how }: Lost) {
        self.shared.star().drop_link(rank);
        self.watch_links();
        if !self.goodbyes.contains(&rank) {
            let group = &self.shared.group;
            let (who, rank) = (group.describe(rank), group.world_rank(rank));
            self.fail(CommError::PeerLost { rank, who, how });
        }
    }

    /// A rank has left in good order. That is a failure as soon as somebody needs it.
    pub(crate) fn someone_left(&mut self, rank: Rank) {
        if rank == self.shared.group.rank() {
            return;
        }
        self.left = Some(rank);
        if !self.jobs.is_empty() {
            self.fail(self.departed(rank));
        }
    }

    pub(crate) fn departed(&self, rank: Rank) -> CommError {
        let group = &self.shared.group;
        let how = "it left the engine in good order, and others still need it".into();
        CommError::PeerLost { rank: group.world_rank(rank), who: group.describe(rank), how }
    }

    /// It is over.
    pub(crate) fn fail(&mut self, error: CommError) {
        if self.failure.is_some() {
            return;
        }
        let error = self.common_reason(error);
        self.runner.comm.abort(&error);
        let time = now().as_nanos() as u64;
        for (ByName(request), jobs) in self.jobs.drain() {
            self.shared.recorder.note(Phase::Failed, 0, time, 0, &request.name);
            for job in jobs {
                job.promise.fail(EngineError::Failed { tensor: request.name.clone(), reason: error.clone() });
            }
        }
        self.failure = Some(error);
    }

    /// The reason all ranks give: rank 0's, or ours where rank 0 is the one to blame or does not answer.
    fn common_reason(&mut self, error: CommError) -> CommError {
        let alarm = error.to_alarm();
        if self.shared.table.is_some() {
            let _ = self.shared.star().send_all(&vec![Verdict::Fail(alarm.clone())]);
            self.flush_for(PATIENCE);
            return alarm.into();
        }
        if error.rank() == Some(self.shared.group.world_rank(0)) {
            // It may have told why just before it went.
            return self.hear_reason().0.unwrap_or_else(|| self.without_rank_0(&error));
        }
        let word = Spoken { epoch: self.member.epoch(), word: Word::Fail(alarm.clone()) };
        if self.shared.star().send(0, &vec![word]).is_err() {
            return alarm.into();
        }
        self.await_reason().unwrap_or_else(|| alarm.into())
    }

    /// Rank 0 cannot tell the others what is wrong with it. They notice in different ways, so what they say is fixed.
    fn without_rank_0(&self, error: &CommError) -> CommError {
        let group = &self.shared.group;
        match error {
            CommError::Timeout { .. } => silence(group, 0, self.shared.silence).into(),
            CommError::PeerLost { rank, who, .. } => {
                let how = "its process ended or cannot be reached".into();
                CommError::PeerLost { rank: *rank, who: who.clone(), how }
            }
            other => other.clone(),
        }
    }

    /// The reason among the words that have arrived, and whether more can come.
    fn hear_reason(&mut self) -> (Option<CommError>, bool) {
        let (heard, lost) = self.shared.star().receive::<Vec<Verdict>>();
        let reason = heard.into_iter().flat_map(|(_, verdicts)| verdicts).find_map(|verdict| match verdict {
            Verdict::Fail(alarm) => Some(alarm.into()),
            _ => None,
        });
        (reason, lost.is_none())
    }

    fn await_reason(&mut self) -> Option<CommError> {
        let deadline = now() + REASON_PATIENCE;
        while now() < deadline {
            let (reason, more) = self.hear_reason();
            if reason.is_some() || !more {
                return reason;
            }
            let sockets: Vec<(OwnedFd, bool)> = self.shared.star().sockets().unwrap_or_default();
            wait_for(&sockets, deadline.saturating_sub(now()));
        }
        None
    }

    fn flush_for(&mut self, limit: Duration) {
        let deadline = now() + limit;
        loop {
            let outcome = self.shared.star().flush();
            match outcome {
                Ok(true) => return,
                // Its words are not needed any more, those of the others are.
                Err(lost) => self.shared.star().drop_link(lost.rank),
                Ok(false) if now() >= deadline => return,
                Ok(false) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Leaves in good order.
    pub(crate) fn say_goodbye(&mut self) {
        let error = CommError::Stopped { reason: "the engine was closed on this rank".into() };
        for (ByName(request), jobs) in self.jobs.drain() {
            for job in jobs {
                job.promise.fail(EngineError::Failed { tensor: request.name.clone(), reason: error.clone() });
            }
        }
        let rank = self.shared.group.rank();
        let goodbye = Spoken { epoch: self.member.epoch(), word: Word::Goodbye };
        let _ = match rank {
            0 => self.shared.star().send_all(&vec![Verdict::Left(0)]),
            _ => self.shared.star().send(0, &vec![goodbye]),
        };
        self.flush_for(PATIENCE);
        self.finished = true;
    }
}

fn wait_for(sockets: &[(OwnedFd, bool)], limit: Duration) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds: Vec<PollFd<'_>> = sockets.iter().map(|(socket, _)| PollFd::new(socket, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    let _ = poll(&mut fds, Some(&limit));
}
