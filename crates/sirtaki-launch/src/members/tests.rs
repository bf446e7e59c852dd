use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn policy(min: usize, max: usize) -> Policy {
    Policy {
        min,
        max,
        wait: 600 * SECOND,
        patience: 60 * SECOND,
        start: 60 * SECOND,
        resets: None,
        cooldown: (SECOND, 60 * SECOND),
    }
}

/// A job on one host whose first round has formed.
fn running(min: usize, max: usize) -> (Members, Instant) {
    let now = Instant::now();
    let (all, end) = (0..max, max as u64);
    let mut members = Members::new(policy(min, max), &[all], &[max], now);
    assert_eq!(members.tick(now).len(), max);
    let asked: Vec<_> = (1..=end).flat_map(|id| members.asks(id, Ask::default(), now)).collect();
    assert_eq!(asked, [Decision::Publish { round: 1, members: (1..=end).collect() }]);
    (1..=end).for_each(|id| assert!(members.joined(id, 1, now).is_empty()));
    (members, now)
}

fn after(round: u64) -> Ask {
    Ask { after: round, holds: true, ..Ask::default() }
}

#[test]
fn survivors_go_on_at_once_and_the_newcomer_is_announced() {
    let (mut members, now) = running(2, 3);
    assert!(members.ended(1, false, now).is_empty());
    assert!(members.asks(3, after(1), now).is_empty());
    let published = Decision::Publish { round: 2, members: vec![2, 3] };
    assert_eq!(members.asks(2, after(1), now), [published]);
    members.joined(2, 2, now);
    members.joined(3, 2, now);
    assert!(members.closed(0, now).is_empty());
    assert_eq!(members.alarm(), Some(now + SECOND));
    assert_eq!(members.tick(now + SECOND), [Decision::Start { member: 4, seat: 0 }]);
    assert_eq!(members.asks(4, Ask::default(), now + SECOND), [Decision::Interrupt { round: 2 }]);
    members.asks(3, after(2), now + SECOND);
    let published = Decision::Publish { round: 3, members: vec![2, 3, 4] };
    assert_eq!(members.asks(2, after(2), now + SECOND), [published]);
}

#[test]
fn below_the_minimum_the_job_waits_and_then_ends() {
    let (mut members, now) = running(2, 2);
    members.slots(&[1], now);
    members.asks(1, after(1), now);
    let dismissed = Decision::Dismiss { member: 2 };
    assert_eq!(members.asks(2, after(1), now), [dismissed]);
    assert!(members.ended(2, true, now).is_empty());
    assert!(!members.is_finished());
    let end = Decision::End(Reason::TooFew { left: 1, min: 2, waited: 600 * SECOND });
    assert_eq!(members.tick(now + 600 * SECOND), [end]);
}

#[test]
fn who_leaves_hands_over_at_the_next_commit() {
    let (mut members, now) = running(1, 3);
    assert_eq!(members.leaves(1, now), [Decision::Interrupt { round: 1 }]);
    members.asks(2, after(1), now);
    members.asks(3, after(1), now);
    let dismissed = Decision::Dismiss { member: 1 };
    assert_eq!(members.asks(1, after(1), now), [dismissed, Decision::Publish { round: 2, members: vec![2, 3] }]);
}

#[test]
fn if_all_leave_the_job_ends_while_they_have_the_state() {
    let (mut members, now) = running(1, 2);
    assert_eq!(members.leaves(1, now), [Decision::Interrupt { round: 1 }]);
    assert!(members.leaves(2, now).is_empty());
    assert_eq!(members.asks(2, after(1), now), [Decision::End(Reason::AllLeave)]);
    assert_eq!(members.waiting().collect::<Vec<_>>(), [2], "it is told so, and can save");
}

#[test]
fn whoever_does_not_come_back_is_ended_sooner_if_it_is_to_blame() {
    let (mut members, now) = running(1, 3);
    members.asks(1, Ask { blames: Some(1), ..after(1) }, now);
    assert_eq!(members.tick(now + 60 * SECOND), [Decision::Kill { member: 2 }]);
    assert_eq!(members.tick(now + 600 * SECOND), [Decision::Kill { member: 3 }]);
}

#[test]
fn a_round_that_loses_a_member_before_it_begins_is_void() {
    let (mut members, now) = running(1, 3);
    members.ended(3, false, now);
    members.asks(1, after(1), now);
    members.asks(2, after(1), now);
    members.joined(1, 2, now);
    assert_eq!(members.ended(2, false, now), [Decision::Void { round: 2 }]);
    assert_eq!(members.asks(1, after(2), now), [Decision::Publish { round: 3, members: vec![1] }]);
}

#[test]
fn nobody_goes_on_without_the_state() {
    let (mut members, now) = running(1, 2);
    members.ended(2, false, now);
    members.closed(1, now);
    members.asks(1, after(1), now);
    members.joined(1, 2, now);
    members.tick(now + SECOND);
    assert_eq!(members.asks(3, Ask::default(), now + SECOND), [Decision::Interrupt { round: 2 }]);
    assert_eq!(members.ended(1, false, now + SECOND), [Decision::End(Reason::StateLost)]);
}

#[test]
fn a_round_that_loses_all_its_members_is_not_followed_by_a_new_beginning() {
    let (mut members, now) = running(1, 2);
    members.ended(2, false, now);
    members.closed(1, now);
    members.tick(now + SECOND);
    members.ended(1, false, now + SECOND);
    assert_eq!(members.asks(3, Ask::default(), now + SECOND), [Decision::End(Reason::StateLost)]);
}

#[test]
fn a_survivor_without_state_goes_on_from_the_beginning() {
    let (mut members, now) = running(1, 2);
    members.ended(2, false, now);
    let empty = Ask { holds: false, ..after(1) };
    assert_eq!(members.asks(1, empty, now), [Decision::Publish { round: 2, members: vec![1] }]);
}

#[test]
fn success_ends_the_job_once_all_have_ended() {
    let (mut members, now) = running(2, 2);
    assert!(members.ended(1, true, now).is_empty());
    assert!(members.closed(0, now).is_empty() && !members.is_over());
    assert!(members.ended(2, true, now).is_empty());
    assert!(members.is_over() && members.is_finished());
}

#[test]
fn changes_may_be_limited() {
    let now = Instant::now();
    let limited = Policy { resets: Some(0), ..policy(1, 2) };
    let seats = 0..2;
    let mut members = Members::new(limited, &[seats], &[2], now);
    members.tick(now);
    members.asks(1, Ask::default(), now);
    members.asks(2, Ask::default(), now);
    members.ended(2, false, now);
    assert_eq!(members.asks(1, after(1), now).last(), Some(&Decision::End(Reason::Resets(0))));
}

/// What may happen to a job, in any order; numbers choose among those to whom it can happen.
#[derive(Debug, Clone)]
enum Happening {
    Pass(u64),
    Ask(usize, bool),
    Join(usize),
    Fail(usize),
    Finish(usize),
    Leave(usize),
    Close(usize),
    Slots(Vec<usize>),
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::{Ask, Close, Fail, Finish, Join, Leave, Pass, Slots};
    prop_oneof![
        2 => (0..5000u64).prop_map(Pass),
        8 => (any::<usize>(), any::<bool>()).prop_map(|(who, blames)| Ask(who, blames)),
        6 => any::<usize>().prop_map(Join),
        2 => any::<usize>().prop_map(Fail),
        1 => any::<usize>().prop_map(Leave),
        3 => any::<usize>().prop_map(Close),
        1 => prop::collection::vec(0..5usize, 3).prop_map(Slots),
        1 => any::<usize>().prop_map(|who| if who % 8 == 0 { Finish(who) } else { Join(who) }),
    ]
}

/// The processes of a job as they are outside of [`Members`].
struct Outside {
    members: Members,
    now: Instant,
    /// Who runs, on which seat, and for which round it waits or works, whether it waits, and has state.
    alive: Vec<(MemberId, usize, u64, bool, bool)>,
    closing: Vec<usize>,
    last: Vec<MemberId>,
    failed: Vec<Option<(Instant, u32)>>,
    ended: bool,
    published: u64,
    /// Whether all members of a round have met, so that they have state.
    met: bool,
}

const SEATS: [std::ops::Range<usize>; 3] = [0..4, 4..6, 6..9];

impl Outside {
    fn new(policy: Policy) -> Self {
        let now = Instant::now();
        let mut members = Members::new(policy, &SEATS, &[4, 2, 3], now);
        let first = members.tick(now);
        let (alive, closing, last, failed) = (Vec::new(), Vec::new(), Vec::new(), vec![None; 3]);
        let mut outside = Self { members, now, alive, closing, last, failed, ended: false, published: 0, met: false };
        outside.heed(first).unwrap();
        outside
    }

    fn heed(&mut self, decisions: Vec<Decision>) -> Result<(), TestCaseError> {
        for decision in decisions {
            prop_assert!(!self.ended, "{decision:?} after the end");
            match decision {
                Decision::Start { member, seat } => {
                    let taken = self.alive.iter().any(|other| other.1 == seat) || self.closing.contains(&seat);
                    prop_assert!(!taken && !self.members.is_finished());
                    let host = SEATS.iter().position(|seats| seats.contains(&seat)).unwrap();
                    let pause = |failures: u32| SECOND * (1 << (failures - 1).min(6));
                    let avoided =
                        self.failed[host].is_some_and(|(at, count)| self.now < at + pause(count).min(60 * SECOND));
                    prop_assert!(!avoided, "a host that failed is avoided");
                    self.alive.push((member, seat, 0, false, false));
                }
                Decision::Publish { round, members } => self.begin(round, &members)?,
                Decision::Dismiss { member } | Decision::Kill { member } => {
                    prop_assert!(self.alive.iter().any(|known| known.0 == member));
                    let at = self.alive.iter().position(|known| known.0 == member).unwrap();
                    let decisions = self.end(at, false);
                    self.heed(decisions)?;
                }
                Decision::Void { round } | Decision::Interrupt { round } => prop_assert_eq!(round, self.published),
                Decision::End(_) => self.ended = true,
            }
        }
        Ok(())
    }

    fn begin(&mut self, round: u64, members: &[MemberId]) -> Result<(), TestCaseError> {
        prop_assert_eq!(round, self.published + 1, "one round at a time");
        let least = if self.members.is_finished() { 1 } else { self.members.policy.min };
        prop_assert!((least..=self.members.policy.max).contains(&members.len()), "{} members", members.len());
        for id in members {
            let known = self.alive.iter_mut().find(|known| known.0 == *id).expect("it runs");
            prop_assert!(known.3, "{id} has asked");
            (known.2, known.3) = (round, false);
        }
        let others = self.alive.iter().any(|known| known.2 == self.published && known.2 > 0 && !known.3);
        prop_assert!(!others, "nobody is still in the round before");
        let goes_on = !self.met || self.members.is_finished();
        let holds = |known: &&(MemberId, usize, u64, bool, bool)| members.contains(&known.0) && known.4;
        prop_assert!(goes_on || self.alive.iter().any(|known| holds(&known)), "nobody begins again");
        let key = |id: &MemberId| {
            let holds = self.alive.iter().any(|known| known.0 == *id && known.4);
            (!holds, self.last.iter().position(|known| known == id).unwrap_or(usize::MAX))
        };
        prop_assert!(members.is_sorted_by_key(key), "who has the state comes first, in the order of before");
        (self.published, self.last) = (round, members.to_vec());
        Ok(())
    }

    fn end(&mut self, at: usize, success: bool) -> Vec<Decision> {
        let (id, seat, ..) = self.alive.remove(at);
        self.closing.push(seat);
        self.members.ended(id, success, self.now)
    }

    fn happens(&mut self, what: &Happening) -> Result<(), TestCaseError> {
        let now = self.now;
        let pick = |count: usize, choice: usize| (count > 0).then(|| choice % count.max(1));
        let decisions = match what {
            Happening::Pass(milliseconds) => {
                self.now = now + Duration::from_millis(*milliseconds);
                self.members.tick(self.now)
            }
            Happening::Slots(slots) => self.members.slots(slots, now),
            Happening::Close(choice) => match pick(self.closing.len(), *choice) {
                Some(at) => self.members.closed(self.closing.remove(at), now),
                None => Vec::new(),
            },
            Happening::Ask(choice, _) | Happening::Join(choice) => {
                let Some(at) = pick(self.alive.len(), *choice) else { return Ok(()) };
                let (id, _, round, waits, ref mut holds) = self.alive[at];
                match what {
                    _ if waits => Vec::new(),
                    Happening::Join(_) if round > 0 => {
                        *holds = true;
                        let decisions = self.members.joined(id, round, now);
                        self.met |= self.members.round.has_formed();
                        decisions
                    }
                    Happening::Ask(_, blames) => {
                        let ask = Ask { after: round, holds: *holds, leaving: false, blames: blames.then_some(0) };
                        self.alive[at].3 = true;
                        self.members.asks(id, ask, now)
                    }
                    _ => Vec::new(),
                }
            }
            Happening::Leave(choice) => match pick(self.alive.len(), *choice) {
                Some(at) => self.members.leaves(self.alive[at].0, now),
                None => Vec::new(),
            },
            Happening::Fail(choice) | Happening::Finish(choice) => {
                let Some(at) = pick(self.alive.len(), *choice) else { return Ok(()) };
                let success = matches!(what, Happening::Finish(_));
                let (id, seat, ..) = self.alive[at];
                let leaving = self.members.of(id).is_some_and(|member| member.leaving);
                if !success && !leaving {
                    let host = SEATS.iter().position(|seats| seats.contains(&seat)).unwrap();
                    let recent = self.failed[host].filter(|(at, _)| now - *at <= 120 * SECOND);
                    self.failed[host] = Some((now, recent.map_or(1, |(_, count)| count + 1)));
                }
                self.end(at, success)
            }
        };
        self.heed(decisions)
    }

    /// Everybody does what is expected, time passes, and the job goes on or ends: it never stands still.
    fn settles(&mut self) -> Result<(), TestCaseError> {
        self.happens(&Happening::Slots(vec![4, 2, 3]))?;
        for _ in 0..200 {
            (0..self.closing.len()).try_for_each(|_| self.happens(&Happening::Close(0)))?;
            let formed = !self.alive.is_empty() && self.alive.iter().all(|known| known.2 == self.published && !known.3);
            let enough = self.alive.len() == self.members.policy.max;
            if self.ended || self.members.is_over() || self.members.is_finished() || formed && enough {
                return Ok(());
            }
            for at in 0..self.alive.len() {
                self.happens(&Happening::Join(at))?;
            }
            let Round { interrupted, broken, void, .. } = self.members.round;
            let again = interrupted || broken || void || self.members.first_ask().is_some();
            let asks = |known: &&(MemberId, usize, u64, bool, bool)| !known.3 && (known.2 == 0 || again);
            let asking: Vec<MemberId> = self.alive.iter().filter(asks).map(|known| known.0).collect();
            for id in asking {
                let at = self.alive.iter().position(|known| known.0 == id);
                at.map_or(Ok(()), |at| self.happens(&Happening::Ask(at, false)))?;
            }
            self.happens(&Happening::Pass(700))?;
        }
        prop_assert!(false, "the job stands still: {:?}", self.members);
        Ok(())
    }
}

proptest! {
    /// `PROPTEST_CASES=100000` for the named step.
    #[test]
    fn whatever_happens_rounds_are_in_order(
        happenings in prop::collection::vec(happening(), 1..120), min in 1..4usize, more in 0..5usize,
    ) {
        let mut outside = Outside::new(policy(min, min + more));
        for what in &happenings {
            outside.happens(what)?;
            if outside.ended {
                return Ok(());
            }
            if let Some(alarm) = outside.members.alarm() {
                prop_assert!(alarm > outside.now);
            }
        }
        outside.settles()?;
    }
}
