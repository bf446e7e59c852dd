//! Who is to blame: how all ranks come to give the same reason when something goes wrong.
//!
//! Rank 0 chooses the reason, and every rank that can hear it accepts it. An error met in a collective is only a
//! *complaint* to rank 0: ranks that wait for each other in a chain see different ends of it. Rank 0 believes first
//! what it sees of the ranks themselves (a link that ended, a process or host without a sign of life) and complaints
//! second.
//!
//! A rank that can no longer hear rank 0 blames rank 0, in fixed words that depend on nothing but the link to it, so
//! that all ranks that are cut off give the same reason although they cannot talk to each other.
//!
//! Pure: the time and what is seen come in as arguments, what to do goes out as a value.

use std::time::Duration;

use sirtaki_comm::{Alarm, Group, Rank, STANDSTILL};

/// How long to wait for somebody to find out how a lost rank ended.
const ENDING_PATIENCE: Duration = Duration::from_millis(300);
/// The same where the kernel reports the end of the process as soon as it comes.
const KERNEL_PATIENCE: Duration = Duration::from_secs(1);
/// How long rank 0 waits for a better explanation when others wait for rank 0.
const DOUBT: Duration = Duration::from_secs(1);

/// What a rank sees of another one, apart from its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// It works; its last sign of life was this long ago.
    Quiet(Duration),
    /// Its host does not answer; its last sign of life was this long ago.
    Unreachable(String, Duration),
    /// Its link ended without a goodbye.
    Closed(String),
    /// It left in good order.
    Left,
}

/// How a rank's process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// In these words, such as "was killed by SIGKILL".
    Known(String),
    /// It has not ended, according to the kernel, which will report when it does.
    NotYet,
    /// Not known, or not yet.
    Unknown,
}

/// What can be seen now.
pub struct View<'a> {
    /// The time.
    pub now: Duration,
    /// Whether anything here waits.
    pub waiting: bool,
    /// What is seen of a rank.
    pub sign: &'a dyn Fn(Rank) -> Sign,
    /// How a rank ended.
    pub ending: &'a dyn Fn(Rank) -> Ending,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Nothing; look again later.
    Wait,
    /// Tell rank 0.
    Tell(Alarm),
    /// Everything ends for this reason. Rank 0 tells all ranks.
    Over(Alarm),
}

/// One rank's part in failing together.
#[derive(Debug)]
pub struct Blame {
    group: Group,
    /// How long a rank may be silent.
    limit: Duration,
    /// The errors this rank met and, on rank 0, those the others reported, with the time.
    complaints: Vec<(Duration, Alarm)>,
    told: bool,
    /// The reason that rank 0 gave.
    word: Option<Alarm>,
    /// The reason, and when it was found; how the rank ended may still be missing.
    found: Option<(Duration, Alarm)>,
    over: bool,
    /// When this rank looked last, and when it went on after it had stood still.
    looked: Option<Duration>,
    resumed: Option<Duration>,
}

impl Blame {
    /// Nothing is wrong yet. A rank of `group` may be silent for `limit`.
    pub fn new(group: Group, limit: Duration) -> Self {
        let (looked, resumed) = (None, None);
        Self {
            group,
            limit,
            complaints: Vec::new(),
            told: false,
            word: None,
            found: None,
            over: false,
            looked,
            resumed,
        }
    }

    /// Something went wrong here or, on rank 0, elsewhere.
    pub fn complain(&mut self, alarm: Alarm, now: Duration) {
        self.complaints.push((now, alarm));
    }

    /// Rank 0 says why everything ends.
    pub fn hear(&mut self, reason: Alarm) {
        self.word.get_or_insert(reason);
    }

    /// Whether something is wrong and the reason is still to be found.
    pub fn is_open(&self) -> bool {
        !self.over && (self.found.is_some() || !self.complaints.is_empty())
    }

    /// Whether the reason is known and was given out.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// What to do, given what can be seen.
    pub fn look(&mut self, view: &View<'_>) -> Act {
        if self.over {
            return Act::Wait;
        }
        let before = self.looked.replace(view.now);
        if before.is_some_and(|before| view.now.saturating_sub(before) > STANDSTILL) {
            self.resumed = Some(view.now);
        }
        if let Some(reason) = self.word.take() {
            self.over = true;
            return Act::Over(reason);
        }
        if self.found.is_none() {
            let reason = if self.group.rank() == 0 { self.judge(view) } else { self.without_rank_0(view) };
            self.found = reason.map(|reason| (view.now, reason));
        }
        if let Some(reason) = self.complete(view) {
            self.over = true;
            return Act::Over(reason);
        }
        match self.complaints.first() {
            Some((_, complaint)) if self.group.rank() != 0 && !std::mem::replace(&mut self.told, true) => {
                Act::Tell(complaint.clone())
            }
            _ => Act::Wait,
        }
    }

    /// How long a rank has been quiet while this one listened: when it stood still, it heard nobody.
    fn heard(&self, view: &View<'_>, quiet: Duration) -> Duration {
        self.resumed.map_or(quiet, |resumed| quiet.min(view.now.saturating_sub(resumed)))
    }

    /// What rank 0 takes to be the reason.
    fn judge(&self, view: &View<'_>) -> Option<Alarm> {
        let signs: Vec<(Rank, Sign)> = (1..self.group.size()).map(|rank| (rank, (view.sign)(rank))).collect();
        let gone = signs.iter().find_map(|(rank, sign)| match sign {
            Sign::Closed(how) | Sign::Unreachable(how, _) => Some(lost(&self.group, *rank, how)),
            _ => None,
        });
        let mut complaints = self.complaints.iter().map(|(_, alarm)| alarm);
        let fact = complaints.find(|alarm| !matches!(alarm, Alarm::Timeout { .. }));
        if let Some(reason) = gone.or(fact.cloned()) {
            return Some(reason);
        }
        // A rank that complains of inactivity has waited for the whole limit, and the silent rank was silent then.
        let (limit, matters) = match self.complaints.is_empty() {
            true => (self.limit, view.waiting),
            false => (self.limit / 2, true),
        };
        let is_silent = |sign: &Sign| matches!(sign, Sign::Quiet(quiet) if self.heard(view, *quiet) > limit);
        let silent = signs.iter().find(|(_, sign)| is_silent(sign));
        if let Some((rank, _)) = silent.filter(|_| matters) {
            return Some(silence(&self.group, *rank, self.limit));
        }
        let me = self.group.world_rank(0);
        let of_me = |alarm: &Alarm| matches!(alarm, Alarm::Timeout { rank, .. } if *rank == me);
        let believed = |(since, alarm): &&(Duration, Alarm)| !of_me(alarm) || view.now.saturating_sub(*since) >= DOUBT;
        self.complaints.iter().find(believed).map(|(_, alarm)| alarm.clone())
    }

    /// The reason when rank 0 cannot give it.
    fn without_rank_0(&self, view: &View<'_>) -> Option<Alarm> {
        let needed = view.waiting || !self.complaints.is_empty();
        match (view.sign)(0) {
            Sign::Left if self.complaints.is_empty() => None,
            Sign::Closed(_) | Sign::Left => Some(lost(&self.group, 0, "it ended or left the engine")),
            Sign::Quiet(quiet) | Sign::Unreachable(_, quiet) if self.heard(view, quiet) > self.limit && needed => {
                Some(silence(&self.group, 0, self.limit))
            }
            _ => None,
        }
    }

    /// The reason that was found, with how the rank ended if that becomes known in time.
    fn complete(&self, view: &View<'_>) -> Option<Alarm> {
        let (since, reason) = self.found.as_ref()?;
        let Alarm::PeerLost { rank, who, how } = reason else { return Some(reason.clone()) };
        let patience = match self.group.members().iter().position(|member| member.world_rank == *rank) {
            None => Duration::ZERO,
            Some(member) => match (view.ending)(member) {
                Ending::Known(ending) => {
                    let how = match (view.sign)(member) {
                        Sign::Left if member != 0 => format!("{how}; it {ending}"),
                        _ => format!("it {ending}"),
                    };
                    return Some(Alarm::PeerLost { rank: *rank, who: who.clone(), how });
                }
                Ending::NotYet => KERNEL_PATIENCE,
                Ending::Unknown => ENDING_PATIENCE,
            },
        };
        (view.now.saturating_sub(*since) >= patience).then(|| reason.clone())
    }
}

fn lost(group: &Group, rank: Rank, how: &str) -> Alarm {
    Alarm::PeerLost { rank: group.world_rank(rank), who: group.describe(rank), how: how.into() }
}

/// The reason for giving up on a rank that does nothing.
fn silence(group: &Group, rank: Rank, waited: Duration) -> Alarm {
    let (rank, who) = (group.world_rank(rank), group.describe(rank));
    Alarm::Timeout { rank, who, operation: "its part of the work".into(), waited }
}

#[cfg(test)]
mod tests;
