//! A job whose workers come and go: what [`Members`] decides, carried out, and what happens, reported to it.
//!
//! Processes speak to the launcher through the job's store, which the agent of the first host serves. So that host has to
//! stay; all others may come and go.

use std::{
    collections::HashMap,
    sync::mpsc::Sender,
    time::{Duration, Instant},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
use sirtaki_engine::job::{Call, RoundAnswer, answer_key, change_key, exit_key, round_prefix, void_key};

use super::{
    Job, Outcome,
    links::{Heard, Links},
    share,
    supervisor::Supervisor,
};
use crate::{
    Advice, RoundReport,
    discovery::Discovery,
    ended::{Ended, signal_name},
    hosts::HostSlots,
    members::{Ask, Decision, MemberId, Members, Policy, Reason},
    placement::is_here,
    protocol::Order,
};

/// The workers of a job, and what people have not been told about them yet.
pub(super) struct Rounds {
    members: Members,
    /// The round after which each process has asked for the next.
    asked: HashMap<MemberId, u64>,
    /// What has changed since the last round met, and since when.
    report: RoundReport,
    since: Option<Instant>,
    /// The last process that failed.
    failure: Option<(usize, Ended)>,
    /// A process that ended with an error, and nobody has gone on without it yet.
    unheeded: Option<(usize, Ended)>,
    /// Why processes that ask get no further round.
    over: Option<String>,
    /// Keeps looking for hosts until it is dropped.
    _discovery: Option<Sender<()>>,
}

impl Rounds {
    /// Those of this job, if its workers may come and go.
    pub(super) fn of(job: &Job, links: &Links, now: Instant) -> Option<Self> {
        let elastic = job.spec.elastic.as_ref()?;
        let seats: Vec<_> = job.hosts().iter().map(|host| host.ranks.clone()).collect();
        let all = job.placement.plan.size();
        let policy = Policy {
            min: elastic.min.get(),
            max: elastic.max.map_or(all, |max| max.get().min(all)),
            wait: elastic.wait,
            patience: job.spec.timeout,
            start: job.spec.start_timeout,
            resets: elastic.resets,
            cooldown: elastic.cooldown,
        };
        let follow = |program| {
            let (to, discovery) = (links.sender(), Discovery { program, slots: elastic.slots });
            // The first answer counts as news, so that it need not be the one from before the start.
            discovery.follow(Vec::new(), move |found| drop(to.send(Heard::Hosts(found))))
        };
        let slots: Vec<usize> = match &elastic.discovered {
            Some(found) => job.hosts().iter().map(|host| slots_of(found, &host.host)).collect(),
            None => seats.iter().map(ExactSizeIterator::len).collect(),
        };
        Some(Self {
            members: Members::new(policy, &seats, &slots, now),
            asked: HashMap::new(),
            report: RoundReport::default(),
            since: None,
            failure: None,
            unheeded: None,
            over: None,
            _discovery: elastic.discover.clone().map(follow),
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.members.is_over()
    }

    /// Something has changed that leads to another round.
    fn changed(&mut self, now: Instant) -> &mut RoundReport {
        self.since.get_or_insert(now);
        &mut self.report
    }
}

/// The slots of a host among those that were discovered; this machine has several names.
fn slots_of(found: &[HostSlots], host: &str) -> usize {
    let same = |known: &&HostSlots| known.host == host || is_here(&known.host, host) || is_here(host, &known.host);
    found.iter().filter(same).map(|known| known.slots).sum()
}

impl Supervisor<'_> {
    pub(super) fn members_alarm(&self) -> Option<Instant> {
        self.rounds.as_ref().and_then(|rounds| rounds.members.alarm())
    }

    pub(super) fn members_tick(&mut self) {
        self.heed(|members, now| members.tick(now));
    }

    /// Reports something to the members and does what they decide.
    fn heed(&mut self, happens: impl FnOnce(&mut Members, Instant) -> Vec<Decision>) {
        let Some(rounds) = &mut self.rounds else { return };
        let now = Instant::now();
        for decision in happens(&mut rounds.members, now) {
            self.carry_out(decision, now);
        }
    }

    fn carry_out(&mut self, decision: Decision, now: Instant) {
        let Some(rounds) = &mut self.rounds else { return };
        match decision {
            Decision::Start { member, seat } => self.start_member(member, seat),
            Decision::Publish { round, members } => {
                (rounds.report.number, rounds.report.size) = (round, members.len());
                rounds.since.get_or_insert(now);
                rounds.unheeded = None;
                let size = members.len();
                let took = rounds.since.map_or(Duration::ZERO, |since| since.elapsed());
                let why = RoundReport { took, ..rounds.report.clone() }.to_string();
                for (rank, member) in members.into_iter().enumerate() {
                    self.answer(member, &RoundAnswer::Round { number: round, rank, size, why: why.clone() });
                }
                if let Some(old) = round.checked_sub(2).filter(|&old| old > 0) {
                    self.links.order(0, Order::Forget(round_prefix(old)));
                }
            }
            Decision::Void { round } => {
                let why = rounds
                    .failure
                    .as_ref()
                    .map_or("a worker has left".to_owned(), |(seat, how)| format!("worker {seat} {how}"));
                self.publish(void_key(round), why.into_bytes());
            }
            Decision::Interrupt { round } => {
                rounds.since.get_or_insert(now);
                self.publish(change_key(round), Vec::new());
            }
            Decision::Dismiss { member } => {
                if let Some(seat) = rounds.members.seat(member) {
                    let host = self.job.hosts()[self.job.host_of(seat)].host.clone();
                    rounds.changed(now).left.push((seat, host));
                }
                self.answer(member, &RoundAnswer::Leave);
            }
            Decision::Kill { member } => {
                if let Some(seat) = rounds.members.seat(member) {
                    let text = format!("worker {seat} did not come back to the others and is ended");
                    self.observer.note(&text);
                    self.links.order(self.host_of(seat), Order::End { rank: seat });
                }
            }
            Decision::End(reason) => self.end_members(&reason, now),
        }
    }

    fn start_member(&mut self, member: MemberId, seat: usize) {
        let host = self.host_of(seat);
        let start = share::of_member(self.job, self.found, host, seat, member);
        self.course.began(seat);
        self.links.order(host, Order::Add(Box::new(start)));
    }

    fn host_of(&self, seat: usize) -> usize {
        self.job.host_of(seat)
    }

    fn publish(&mut self, key: String, value: Vec<u8>) {
        self.links.order(0, Order::Publish { key, value });
    }

    fn answer(&mut self, member: MemberId, answer: &RoundAnswer) {
        let after = self.rounds.as_ref().and_then(|rounds| rounds.asked.get(&member).copied()).unwrap_or(0);
        let value = postcard::to_stdvec(answer).unwrap_or_default();
        self.publish(answer_key(member, after), value);
    }

    /// A process said something. Whatever makes no sense is ignored: it may come from anybody who knows the secret.
    pub(super) fn member_said(&mut self, bytes: &[u8]) {
        let (Some(rounds), Ok(call)) = (&mut self.rounds, postcard::from_bytes(bytes)) else { return };
        match call {
            Call::Asks { member, after, holds, leaving, blames } => {
                let Some(seat) = rounds.members.seat(member) else { return };
                rounds.asked.insert(member, after);
                if let Some(reason) = rounds.over.clone() {
                    return self.answer(member, &RoundAnswer::End { reason });
                }
                if after == 0 {
                    let host = self.host(self.host_of(seat)).to_owned();
                    let now = Instant::now();
                    self.rounds.iter_mut().for_each(|rounds| rounds.changed(now).came.push((seat, host.clone())));
                }
                self.heed(|members, now| members.asks(member, Ask { after, holds, leaving, blames }, now));
            }
            Call::Joined { member, round } => {
                let is_first = rounds.members.round().1.first() == Some(&member) && rounds.report.number == round;
                self.heed(|members, now| members.joined(member, round, now));
                if is_first {
                    self.report_round();
                }
            }
            Call::Leaves { member } => self.heed(|members, now| members.leaves(member, now)),
        }
    }

    /// The first rank of a round has met the others.
    fn report_round(&mut self) {
        let Some(rounds) = &mut self.rounds else { return };
        let took = rounds.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let report = RoundReport { took, ..std::mem::take(&mut rounds.report) };
        self.observer.round(&report);
    }

    pub(super) fn member_ended(&mut self, seat: usize, how: &Ended) {
        self.course.left(seat);
        let host = self.host(self.host_of(seat)).to_owned();
        let Some(rounds) = &mut self.rounds else { return };
        let Some(member) = rounds.members.on_seat(seat) else { return };
        rounds.asked.remove(&member);
        let (now, success, leaves) = (Instant::now(), how.is_success(), rounds.members.is_leaving(member));
        if !success && !rounds.members.is_dismissed(member) {
            rounds.changed(now).lost.push((seat, host, how.clone()));
            rounds.failure = Some((seat, how.clone()));
            if matches!(how, Ended::Code(_)) && !leaves {
                rounds.unheeded = Some((seat, how.clone()));
            }
        }
        let (round, ranks) = rounds.members.round();
        let rank = ranks.iter().position(|&known| known == member);
        if let Some(rank) = rank {
            let key = format!("{}{}", round_prefix(round), exit_key(rank));
            self.publish(key, how.to_string().into_bytes());
        }
        self.links.order(0, Order::Forget(format!("answer/{member}/")));
        self.heed(|members, now| members.ended(member, success, now));
        // A program that fails while others end well has failed; a host that goes away then has not.
        if let Some(Rounds { members, unheeded: Some((rank, how)), .. }) = &self.rounds
            && members.is_finished()
        {
            let outcome = Outcome::Failed { rank: *rank, how: how.clone() };
            self.end(outcome, now);
        }
    }

    pub(super) fn member_closed(&mut self, seat: usize) {
        self.heed(|members, now| members.closed(seat, now));
    }

    pub(super) fn members_lose(&mut self, host: usize) {
        let Some(rounds) = &mut self.rounds else { return };
        rounds.members.host_lost(host);
        if host == 0 {
            let name = self.host(host).to_owned();
            self.stop_members(&format!("host {name}, which the workers meet on, is lost"));
            self.end(Outcome::Stuck(format!("host {name} is lost, and workers meet there")), Instant::now());
        }
    }

    /// A signal that ends the job leaves no time for further rounds.
    pub(super) fn members_signalled(&mut self, signal: i32) {
        if [SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM].contains(&signal) {
            self.stop_members(&format!("it was interrupted by {}", signal_name(signal)));
        }
    }

    /// There are no further rounds: whoever asks learns why, at the next commit at the latest.
    pub(super) fn stop_members(&mut self, reason: &str) {
        let Some(rounds) = &mut self.rounds else { return };
        rounds.members.stop();
        let round = rounds.members.round().0;
        rounds.over.get_or_insert(reason.to_owned());
        let waiting: Vec<MemberId> = rounds.members.waiting().collect();
        for member in waiting {
            self.answer(member, &RoundAnswer::End { reason: reason.to_owned() });
        }
        self.publish(change_key(round), Vec::new());
    }

    fn end_members(&mut self, reason: &Reason, now: Instant) {
        let failure = self.rounds.as_mut().and_then(|rounds| rounds.failure.take());
        let outcome = match (reason, failure) {
            (Reason::Nobody, Some((rank, how))) => Outcome::Failed { rank, how },
            (Reason::StateLost, Some((rank, how))) => {
                self.observer.note(&reason.to_string());
                Outcome::Failed { rank, how }
            }
            _ => Outcome::Stuck(reason.to_string()),
        };
        self.stop_members(&reason.to_string());
        self.end(outcome, now);
    }

    fn end(&mut self, outcome: Outcome, now: Instant) {
        self.course.end(outcome, now);
        self.ending.failed_after.get_or_insert(self.started.elapsed());
    }

    /// Other hosts were discovered than before.
    pub(super) fn discovered(&mut self, found: Result<Vec<HostSlots>, Advice>) {
        let hosts = self.job.hosts();
        match found {
            Ok(found) => {
                let unknown =
                    |known: &&HostSlots| hosts.iter().all(|host| slots_of(&[(*known).clone()], &host.host) == 0);
                let unknown: Vec<&str> = found.iter().filter(unknown).map(|known| known.host.as_str()).collect();
                if !unknown.is_empty() {
                    let text = "new since the start of the job, and not used: hosts have to be there from the start";
                    self.observer.note(&format!("hosts {} are {text}", unknown.join(", ")));
                }
                let slots: Vec<usize> = hosts.iter().map(|host| slots_of(&found, &host.host)).collect();
                self.heed(|members, now| members.slots(&slots, now));
            }
            Err(advice) => self.observer.note(&format!("{} (hint: {})", advice.message, advice.hint)),
        }
    }
}
