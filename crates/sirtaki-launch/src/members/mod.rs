//! Who takes part in a job whose workers come and go. Pure; the time is passed in.
//!
//! A *member* is a process with a number that no other ever gets. It sits on a *seat*, which belongs to a host and is
//! taken again by the process that replaces it; people know it by that. Members work together in *rounds*: a round is
//! one engine over a fixed list of members, and their place in the list is their rank. Whatever changes about the
//! members ends the round; those that are left ask for the next one, and get it as soon as all of them have asked:
//! nobody waits for a process that is still starting. It is announced when it asks as well, and then the others come
//! to the next round at their next commit, with nothing lost.
//!
//! State travels in memory, from the first rank of a round. So those that have it come first, in the order of the round
//! before; a job in which nobody is left who has it is over.

mod hosts;
mod leaving;
mod state;
#[cfg(test)]
mod tests;
mod words;

use std::{
    collections::BTreeSet,
    ops::Range,
    time::{Duration, Instant},
};

pub use self::words::{Ask, Decision, MemberId, Policy, Reason};
use self::{
    hosts::Hosts,
    state::{Member, Round, State},
};

/// How long a newcomer waits for others that are starting, so that they are announced together.
const GATHER: Duration = Duration::from_secs(2);
/// This many rounds in a row that not all of their members reached are too many.
const UNMET: u32 = 5;

/// The members of a job.
#[derive(Debug)]
pub struct Members {
    policy: Policy,
    hosts: Hosts,
    members: Vec<Member>,
    /// Seats whose process has ended, but not its output.
    closing: BTreeSet<usize>,
    next: MemberId,
    round: Round,
    /// Whether a member has ended with success, so that the others will end, too.
    finished: bool,
    /// Whether a member ever said that it had the state of the training.
    held: bool,
    /// Since when there are too few.
    below: Option<Instant>,
    /// How many rounds in a row not all members have reached.
    unmet: u32,
    over: bool,
    now: Instant,
}

impl Members {
    /// Nobody yet. Each host has some of the seats, of which `slots` may be taken.
    pub fn new(policy: Policy, seats: &[Range<usize>], slots: &[usize], now: Instant) -> Self {
        Self {
            hosts: Hosts::new(seats, slots, policy.cooldown),
            policy,
            members: Vec::new(),
            closing: BTreeSet::new(),
            next: 1,
            round: Round::default(),
            finished: false,
            held: false,
            below: None,
            unmet: 0,
            over: false,
            now,
        }
    }

    /// Nobody is left and nobody will come.
    pub fn is_over(&self) -> bool {
        self.members.is_empty() && (self.over || self.finished)
    }

    /// Whether a member has ended with success.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The seat of a member that is there.
    pub fn seat(&self, member: MemberId) -> Option<usize> {
        self.of(member).map(|known| known.seat)
    }

    /// The member on a seat, if there is one.
    pub fn on_seat(&self, seat: usize) -> Option<MemberId> {
        self.members.iter().find(|member| member.seat == seat).map(|member| member.id)
    }

    /// Whether a member takes part in no further round.
    pub fn is_leaving(&self, member: MemberId) -> bool {
        self.of(member).is_some_and(|known| known.leaving)
    }

    /// Whether a member was told that it may leave.
    pub fn is_dismissed(&self, member: MemberId) -> bool {
        self.of(member).is_some_and(|known| matches!(known.state, State::Dismissed { .. }))
    }

    /// The current round, and its members in the order of their ranks.
    pub fn round(&self) -> (u64, &[MemberId]) {
        (self.round.number, &self.round.members)
    }

    /// Members that are waiting for a round.
    pub fn waiting(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.members.iter().filter(|member| member.is_asking()).map(|member| member.id)
    }

    /// Each host may take this many seats now.
    pub fn slots(&mut self, slots: &[usize], now: Instant) -> Vec<Decision> {
        self.hosts.set_slots(slots);
        self.tick(now)
    }

    /// A host is gone; that its members are is reported separately.
    pub fn host_lost(&mut self, host: usize) {
        self.hosts.lose(host);
    }

    /// A member asks for the next round.
    pub fn asks(&mut self, id: MemberId, ask: Ask, now: Instant) -> Vec<Decision> {
        let was = if ask.after == self.round.number { self.round.members.clone() } else { Vec::new() };
        let Some(member) = self.of_mut(id).filter(|member| !member.is_asking()) else { return Vec::new() };
        let knew = matches!(member.state, State::In { .. });
        member.state = State::Asking { since: now, knew };
        (member.holds, member.leaving) = (ask.holds, member.leaving || ask.leaving);
        self.held |= ask.holds;
        // Its engine is closed, which ends the round of the others even if it is gone before they ask.
        self.round.broken |= knew;
        if let Some(&blamed) = ask.blames.and_then(|rank| was.get(rank))
            && let Some(member) = self.of_mut(blamed)
        {
            member.blamed = true;
        }
        self.tick(now)
    }

    /// A member has met all others of a round.
    pub fn joined(&mut self, id: MemberId, round: u64, now: Instant) -> Vec<Decision> {
        if round == self.round.number
            && let Some(Member { state: State::In { joined }, .. }) = self.of_mut(id)
        {
            let first = !std::mem::replace(joined, true);
            self.round.met += usize::from(first);
        }
        self.tick(now)
    }

    /// A member will leave, for it was told that its time is over.
    pub fn leaves(&mut self, id: MemberId, now: Instant) -> Vec<Decision> {
        if let Some(member) = self.of_mut(id) {
            member.leaving = true;
        }
        self.tick(now)
    }

    /// A member's process has ended. Its seat is taken until [`Members::closed`].
    pub fn ended(&mut self, id: MemberId, success: bool, now: Instant) -> Vec<Decision> {
        let Some(at) = self.members.iter().position(|member| member.id == id) else { return Vec::new() };
        let member = self.members.remove(at);
        self.closing.insert(member.seat);
        let mut decisions = Vec::new();
        if member.leaving || !success {
            self.hosts.failed(member.seat, now);
        }
        self.finished |= success && !member.leaving;
        if matches!(member.state, State::In { .. }) {
            if !self.round.has_formed() && !self.round.void {
                self.round.void = true;
                decisions.push(Decision::Void { round: self.round.number });
            }
            self.round.broken |= !success || member.leaving;
        }
        decisions.extend(self.tick(now));
        decisions
    }

    /// Everything that a process wrote has arrived, so its seat is free.
    pub fn closed(&mut self, seat: usize, now: Instant) -> Vec<Decision> {
        self.closing.remove(&seat);
        self.tick(now)
    }

    /// No more rounds, and no more processes.
    pub fn stop(&mut self) {
        self.over = true;
    }

    /// Whether the job has been ended.
    pub fn is_stopped(&self) -> bool {
        self.over
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Vec<Decision> {
        self.now = now;
        let mut decisions = Vec::new();
        if self.over {
            return decisions;
        }
        self.shrink(&mut decisions);
        if let Err(reason) = self.verdict() {
            self.over = true;
            decisions.push(Decision::End(reason));
            return decisions;
        }
        self.dismiss(&mut decisions);
        self.end_late(&mut decisions);
        self.start(&mut decisions);
        match self.publish() {
            Ok(Some(published)) => decisions.push(published),
            Ok(None) => decisions.extend(self.interrupt()),
            Err(reason) => {
                self.over = true;
                decisions.push(Decision::End(reason));
            }
        }
        decisions
    }

    /// When [`Members::tick`] has something to do.
    pub fn alarm(&self) -> Option<Instant> {
        if self.over {
            return None;
        }
        let first = self.first_ask();
        let below = self.below.map(|since| since + self.policy.wait);
        let start = first.map(|since| since + self.policy.start);
        let gathered = self.members.iter().filter_map(Member::asking_since).map(|since| since + GATHER);
        let late = self.members.iter().filter_map(|member| self.deadline(member, first));
        let times = gathered.chain(late).chain(self.hosts.cooled()).chain(below).chain(start);
        times.filter(|&time| time > self.now).min()
    }

    fn of(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    fn of_mut(&mut self, id: MemberId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    /// Since when somebody who was in the round is waiting for the next one, or anybody if there was none.
    fn first_ask(&self) -> Option<Instant> {
        let begun = self.round.number > 0;
        self.members.iter().filter(|member| !begun || member.knew()).filter_map(Member::asking_since).min()
    }

    /// When a member that has not come to the next round is ended.
    fn deadline(&self, member: &Member, first: Option<Instant>) -> Option<Instant> {
        if member.killed {
            return None;
        }
        match member.state {
            State::In { .. } => Some(first? + if member.blamed { self.policy.patience } else { self.policy.wait }),
            State::Dismissed { since } => Some(since + self.policy.wait),
            State::Starting | State::Asking { .. } => None,
        }
    }

    /// Whether the job can go on.
    fn verdict(&mut self) -> Result<(), Reason> {
        if self.finished {
            return Ok(());
        }
        if self.members.is_empty() && self.next > 1 {
            return Err(Reason::Nobody);
        }
        if self.hands_over_to_nobody() {
            return Err(Reason::AllLeave);
        }
        let left = self.members.iter().filter(|member| member.is_present() && !member.leaving).count();
        if left >= self.policy.min {
            self.below = None;
            return Ok(());
        }
        let since = *self.below.get_or_insert(self.now);
        let waited = self.now.saturating_duration_since(since);
        match waited >= self.policy.wait {
            true => Err(Reason::TooFew { left, min: self.policy.min, waited }),
            false => Ok(()),
        }
    }

    /// Starts processes while there may be more of them.
    fn start(&mut self, decisions: &mut Vec<Decision>) {
        let staying = |members: &[Member]| members.iter().filter(|member| !member.leaving).count();
        while !self.finished && staying(&self.members) < self.policy.max {
            let taken = self.members.iter().map(|member| member.seat).chain(self.closing.iter().copied());
            let Some(seat) = self.hosts.free_seat(&taken.collect(), self.now) else { return };
            let member = self.next;
            self.next += 1;
            self.members.push(Member::new(member, seat));
            decisions.push(Decision::Start { member, seat });
        }
    }

    /// Whoever has asked makes the next round, if all who were in the last one have asked.
    fn publish(&mut self) -> Result<Option<Decision>, Reason> {
        let asking: Vec<&Member> = self.members.iter().filter(|member| member.is_asking()).collect();
        let pending = self.members.iter().any(|member| matches!(member.state, State::In { .. }));
        let need = if self.finished { 1 } else { self.policy.min };
        if pending || asking.len() < need {
            return Ok(None);
        }
        let starting = self.members.iter().any(|member| member.state == State::Starting && !member.leaving);
        let awaits = self.first_ask().is_some_and(|since| self.now < since + self.policy.start);
        if self.round.number == 0 && starting && awaits {
            return Ok(None);
        }
        if !self.finished && !asking.iter().any(|member| member.holds) && self.had_state(&asking) {
            return Err(Reason::StateLost);
        }
        self.unmet = if self.round.has_formed() { 0 } else { self.unmet + 1 };
        if self.unmet > UNMET {
            return Err(Reason::Unmet(UNMET));
        }
        if let Some(limit) = self.policy.resets.filter(|&limit| self.round.number > u64::from(limit)) {
            return Err(Reason::Resets(limit));
        }
        let place = |id: MemberId| self.round.members.iter().position(|&known| known == id).unwrap_or(usize::MAX);
        let mut order: Vec<_> = asking.iter().map(|member| (!member.holds, place(member.id), member.id)).collect();
        order.sort_unstable();
        let members: Vec<MemberId> = order.into_iter().map(|(.., id)| id).take(self.policy.max).collect();
        for member in self.members.iter_mut().filter(|member| members.contains(&member.id)) {
            (member.state, member.blamed) = (State::In { joined: false }, false);
        }
        let number = self.round.number + 1;
        self.round = Round { number, members: members.clone(), ..Round::default() };
        Ok(Some(Decision::Publish { round: number, members }))
    }

    /// Whether there was a state, though none of those who are asking has it. After a round in which all met, only one of its
    /// members could know that there was none yet.
    fn had_state(&self, asking: &[&Member]) -> bool {
        let met = self.round.number > 0 && self.round.has_formed();
        self.held || met && !asking.iter().any(|member| member.knew())
    }

    /// Announces newcomers and those who want to leave to a round that knows nothing of them yet.
    fn interrupt(&mut self) -> Option<Decision> {
        let Round { number, interrupted, broken, .. } = self.round;
        if number == 0
            || interrupted
            || broken
            || self.finished
            || !self.round.has_formed()
            || self.first_ask().is_some()
        {
            return None;
        }
        let mut inside = self.members.iter().filter(|member| matches!(member.state, State::In { .. }));
        let size = inside.clone().count();
        let leaving = inside.any(|member| member.leaving);
        let first = self.members.iter().filter_map(Member::asking_since).min();
        let starting = self.members.iter().any(|member| member.state == State::Starting && !member.leaving);
        let came = first.is_some_and(|since| !starting || self.now >= since + GATHER);
        if size == 0 || !(leaving || came && size < self.policy.max) {
            return None;
        }
        self.round.interrupted = true;
        Some(Decision::Interrupt { round: number })
    }
}
