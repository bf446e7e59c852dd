//! Which ranks keep others waiting, determined once per step, without messages of its own.
//!
//! Between two points that all ranks pass, the callers of all ranks have the same time, which they spend working or
//! waiting for results. So a rank that waited less than the one that waited longest has held it up by the difference.
//! That is attributed to the phases in which it worked longer than the quickest rank did.
//!
//! The numbers travel with the first vote of every cycle of an adopted order: ranks learn the longest wait and the
//! least work, compare themselves, and add up in their own flight record. What no vote has settled is compared when a
//! profile is made. Rejected: blaming the last rank to come to a vote. While communication overlaps with other work, a
//! rank that is behind comes last to every vote of the step, and would be blamed for each.

use std::{array, sync::atomic::Ordering, time::Duration};

use sirtaki_comm::Rank;

use super::counts::{Counts, Phase, Whole, size_class};
use crate::telemetry::recorder::Recorder;

/// Phases of a step.
const PHASES: usize = Phase::ALL.len();
/// Classes of lateness: less than a microsecond, then from each power of four microseconds up to the next.
pub const CLASSES: usize = 14;
/// Numbers that ranks compare.
pub(crate) const NUMBERS: usize = 2 + PHASES;
/// A rank counts as late when the others wait for more than this fraction of a step.
const LATE: u64 = 50;

/// How often the network has to be measured before anything is reported about it.
const READINGS: u64 = 3;

/// Where words begin in this part of the table. Times are nanoseconds.
const WORK: usize = 0;
const SETTLED: usize = WORK + PHASES;
const UNPAID: usize = SETTLED + 1 + PHASES;
const SINCE: usize = UNPAID + PHASES;
const EVENTS: usize = SINCE + 1;
const TIMES_LATE: usize = EVENTS + 1;
const TOTAL: usize = TIMES_LATE + 1;
const MOST: usize = TOTAL + 1;
const BY: usize = MOST + 1;
const TOGETHER: usize = BY + PHASES + 1;
const TRIPS: usize = TOGETHER + 1;
const BY_CLASS: usize = TRIPS + 5;
/// Words of this part.
pub(crate) const WORDS: usize = BY_CLASS + CLASSES;

/// What a rank's callers did in some time, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) waited: u64,
    /// In each phase, without waiting.
    pub(crate) work: [u64; PHASES],
}

impl Spent {
    /// Numbers whose minimum over all ranks is what they have in common.
    pub(crate) fn numbers(&self) -> [i64; NUMBERS] {
        let number = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        array::from_fn(|index| match index {
            0 => -number(self.waited),
            1 => number(self.waited),
            phase => number(self.work[phase - 2]),
        })
    }
}

/// What all ranks' times have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Common {
    longest: u64,
    shortest: u64,
    least: [u64; PHASES],
}

impl Common {
    pub(crate) fn from_minimum(numbers: &[i64; NUMBERS]) -> Self {
        let least = array::from_fn(|phase| numbers[2 + phase].unsigned_abs());
        Self { longest: numbers[0].unsigned_abs(), shortest: numbers[1].unsigned_abs(), least }
    }

    /// The shortest wait of all ranks.
    pub(crate) fn shortest(&self) -> u64 {
        self.shortest
    }

    pub(crate) fn of<'a>(all: impl Iterator<Item = &'a Spent>) -> Option<Self> {
        let minimum = |a: [i64; NUMBERS], b: [i64; NUMBERS]| array::from_fn(|index| a[index].min(b[index]));
        all.map(Spent::numbers).reduce(minimum).map(|numbers| Self::from_minimum(&numbers))
    }
}

/// How late a rank was, and why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Delay {
    pub(crate) late: u64,
    /// By phase; the last entry is what no phase explains.
    pub(crate) by: [u64; PHASES + 1],
    /// Work beyond that of others for which no rank has waited yet.
    unpaid: [u64; PHASES],
}

/// Compares a rank with all ranks. Others may wait for what it does now only after the next vote, so what is unpaid
/// counts once more.
pub(crate) fn delay(mine: &Spent, unpaid: &[u64; PHASES], common: &Common) -> Delay {
    let late = common.longest.saturating_sub(mine.waited);
    let excess: [u64; PHASES] = array::from_fn(|phase| mine.work[phase].saturating_sub(common.least[phase]));
    let owed: [u64; PHASES] = array::from_fn(|phase| excess[phase].saturating_add(unpaid[phase]));
    let all: u128 = owed.iter().map(|&owed| u128::from(owed)).sum();
    let paid: [u64; PHASES] = array::from_fn(|phase| match all <= u128::from(late) {
        true => owed[phase],
        false => (u128::from(late) * u128::from(owed[phase]) / all) as u64,
    });
    let rest = late - paid.iter().sum::<u64>();
    Delay {
        late,
        by: array::from_fn(|phase| paid.get(phase).copied().unwrap_or(rest)),
        unpaid: array::from_fn(|phase| (owed[phase] - paid[phase]).min(excess[phase])),
    }
}

/// How often and by how much a rank kept others waiting. Times are nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lateness {
    /// Steps in which ranks were compared.
    pub events: u64,
    /// Those in which others waited for it for more than a fiftieth of the step.
    pub late: u64,
    /// How long others waited for it in total.
    pub total: u64,
    /// The longest of these waits.
    pub most: u64,
    /// The same by the phase that took longer than on other ranks.
    pub by: [u64; PHASES],
    /// What no phase explains.
    pub unknown: u64,
    /// Steps by lateness: below a microsecond, then from each power of four microseconds.
    pub classes: [u64; CLASSES],
    /// How long all ranks waited although none was late any more: the time of collectives that nothing hides.
    pub together: u64,
    /// Round-trip times of packets, if known.
    pub packets: Option<Packets>,
}

/// Round-trip times of packets to ranks of other hosts, queues on the way included, averaged over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packets {
    /// Nanoseconds over the quickest connection.
    pub least: u64,
    /// Nanoseconds over the slowest one.
    pub most: u64,
    /// The rank to which the longest round trip ever seen went.
    pub to: Rank,
}

impl Lateness {
    /// Adds one more comparison, of what was not compared yet.
    pub(crate) fn add(&mut self, delay: &Delay, together: u64, interval: u64) {
        self.events += 1;
        self.late += u64::from(is_late(delay.late, interval));
        self.total += delay.late;
        self.most = self.most.max(delay.late);
        self.by.iter_mut().zip(delay.by).for_each(|(sum, nanos)| *sum += nanos);
        self.unknown += delay.by[PHASES];
        self.classes[class(delay.late)] += 1;
        self.together += together;
    }
}

/// What was spent in total, less what is settled.
fn unsettled(waited: u64, word: impl Fn(usize) -> u64) -> Spent {
    Spent {
        waited: waited.saturating_sub(word(SETTLED)),
        work: array::from_fn(|phase| word(WORK + phase).saturating_sub(word(SETTLED + 1 + phase))),
    }
}

fn is_late(late: u64, interval: u64) -> bool {
    late > 0 && late >= interval / LATE
}

fn class(nanos: u64) -> usize {
    size_class(nanos / 1000).min(CLASSES - 1)
}

/// The smallest lateness of a class, in seconds.
pub fn class_from(class: usize) -> f64 {
    if class == 0 { 0.0 } else { 4_f64.powi(class as i32 - 1) / 1e6 }
}

/// Words of the flight record: `super::counts` knows where they are in the whole table.
impl Recorder {
    fn late_word(&self, index: usize) -> u64 {
        self.late(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn add_late(&self, index: usize, value: u64) {
        if let Some(word) = self.late(index) {
            word.fetch_add(value, Ordering::Relaxed);
        }
    }

    fn set_late(&self, index: usize, value: u64) {
        if let Some(word) = self.late(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// A caller has worked in a phase, without waiting.
    pub(crate) fn worked(&self, phase: Phase, nanos: u64) {
        self.add_late(WORK + phase as usize, nanos);
    }

    /// What was spent since the last comparison.
    pub(crate) fn unsettled(&self) -> Spent {
        unsettled(self.whole(Whole::Waited), |index| self.late_word(index))
    }

    /// All ranks have compared what they spent (`mine` is this rank's), this long after the start. For one thread only.
    pub(crate) fn settle(&self, mine: &Spent, common: &Common, elapsed: u64) {
        let unpaid = array::from_fn(|phase| self.late_word(UNPAID + phase));
        let delay = delay(mine, &unpaid, common);
        self.add_late(SETTLED, mine.waited);
        for phase in 0..PHASES {
            self.add_late(SETTLED + 1 + phase, mine.work[phase]);
            self.set_late(UNPAID + phase, delay.unpaid[phase]);
        }
        let interval = elapsed.saturating_sub(self.late_word(SINCE));
        self.set_late(SINCE, elapsed);
        self.add_late(EVENTS, 1);
        self.add_late(TIMES_LATE, u64::from(is_late(delay.late, interval)));
        self.add_late(TOTAL, delay.late);
        self.set_late(MOST, self.late_word(MOST).max(delay.late));
        delay.by.iter().enumerate().for_each(|(index, &nanos)| self.add_late(BY + index, nanos));
        self.add_late(TOGETHER, common.shortest);
        self.add_late(BY_CLASS + class(delay.late), 1);
    }

    /// Records round-trip times to ranks of other hosts.
    pub(crate) fn round_trips(&self, trips: &[(Rank, Duration)]) {
        let nanos = |trip: &(Rank, Duration)| trip.1.as_nanos() as u64;
        let (Some(least), Some(most)) = (trips.iter().map(nanos).min(), trips.iter().max_by_key(|trip| trip.1)) else {
            return;
        };
        self.add_late(TRIPS, 1);
        self.add_late(TRIPS + 1, least);
        self.add_late(TRIPS + 2, nanos(most));
        if nanos(most) >= self.late_word(TRIPS + 3) {
            self.set_late(TRIPS + 3, nanos(most));
            self.set_late(TRIPS + 4, most.0 as u64);
        }
    }
}

impl Counts {
    /// How often and by how much this rank kept others waiting, up to the last step in which ranks were compared.
    pub fn lateness(&self) -> Lateness {
        let word = |index| self.late(index);
        Lateness {
            events: word(EVENTS),
            late: word(TIMES_LATE),
            total: word(TOTAL),
            most: word(MOST),
            by: array::from_fn(|phase| word(BY + phase)),
            unknown: word(BY + PHASES),
            classes: array::from_fn(|class| word(BY_CLASS + class)),
            together: word(TOGETHER),
            packets: (word(TRIPS) >= READINGS).then(|| Packets {
                least: word(TRIPS + 1) / word(TRIPS),
                most: word(TRIPS + 2) / word(TRIPS),
                to: word(TRIPS + 4) as Rank,
            }),
        }
    }

    /// Nanoseconds since that step.
    pub(crate) fn unsettled_time(&self) -> u64 {
        self.elapsed().saturating_sub(self.late(SINCE))
    }

    /// What was spent since that step, and the unpaid work before it.
    pub(crate) fn unsettled(&self) -> (Spent, [u64; PHASES]) {
        let spent = unsettled(self.waited(), |index| self.late(index));
        (spent, array::from_fn(|phase| self.late(UNPAID + phase)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn spent(waited: u64, work: [u64; 4]) -> Spent {
        Spent { waited: waited * MS, work: work.map(|work| work * MS) }
    }

    /// How late ranks with these times are, by cause, each step on its own.
    fn blamed(all: &[Spent]) -> Vec<[u64; 5]> {
        let common = Common::of(all.iter()).unwrap();
        all.iter().map(|mine| delay(mine, &[0; 4], &common).by.map(|nanos| nanos / MS)).collect()
    }

    #[test]
    fn work_beyond_that_of_other_ranks_is_the_cause() {
        for phase in 0..4 {
            let mut work = [5; 4];
            work[phase] += 30;
            let mut expected = [0; 5];
            expected[phase] = 30;
            let quick = spent(31, [5; 4]);
            assert_eq!(blamed(&[quick, spent(1, work), quick]), [[0; 5], expected, [0; 5]]);
            assert_eq!(blamed(&[spent(1, work), quick]), [expected, [0; 5]]);
        }
    }

    #[test]
    fn what_no_phase_explains_stays_unknown() {
        let quick = spent(41, [5; 4]);
        assert_eq!(blamed(&[quick, spent(1, [5, 15, 5, 5])])[1], [0, 10, 0, 0, 30]);
        assert_eq!(blamed(&[quick, spent(1, [0; 4])])[1], [0, 0, 0, 0, 40], "it reports no phases");
        assert_eq!(blamed(&[quick]), [[0; 5]], "nobody waits for the only rank");
        assert_eq!(blamed(&[quick, spent(41, [50, 0, 0, 0])]), [[0; 5]; 2], "nobody waited for what was hidden");
    }

    #[test]
    fn several_causes_share_the_blame() {
        let all = [spent(30, [5; 4]), spent(0, [45, 5, 25, 5])];
        assert_eq!(blamed(&all)[1], [20, 0, 10, 0, 0]);
    }

    #[test]
    fn others_may_wait_in_the_next_step() {
        let recorder = Recorder::create().unwrap();
        let quick = spent(0, [5; 4]);
        let settle = |mine: Spent, other: Spent, elapsed: u64| {
            recorder.add_whole(Whole::Waited, mine.waited);
            Phase::ALL.iter().for_each(|&phase| recorder.worked(phase, mine.work[phase as usize]));
            assert_eq!(recorder.unsettled(), mine);
            recorder.settle(&mine, &Common::of([mine, other].iter()).unwrap(), elapsed * MS);
            assert_eq!(recorder.unsettled(), Spent::default());
        };
        settle(spent(0, [5, 35, 5, 5]), quick, 50);
        assert_eq!(recorder.counts().lateness().total, 0);
        settle(quick, spent(30, [5; 4]), 100);
        let lateness = recorder.counts().lateness();
        assert_eq!((lateness.total, lateness.by[Phase::Forward as usize]), (30 * MS, 30 * MS));
        settle(quick, quick, 150);
        settle(quick, spent(8, [5; 4]), 200);
        let lateness = recorder.counts().lateness();
        assert_eq!((lateness.unknown, lateness.by[1]), (8 * MS, 30 * MS), "what is long gone is not blamed");
        assert_eq!((lateness.events, lateness.late, lateness.most), (4, 2, 30 * MS));
        assert_eq!(lateness.classes[class(30 * MS)], 1);
        assert_eq!(lateness.classes[0], 2);
    }

    #[test]
    fn classes_are_powers_of_four() {
        assert_eq!([0, 999, 1000, 3999, 4000, u64::MAX].map(class), [0, 0, 1, 1, 2, CLASSES - 1]);
        assert_eq!([0, 1, 2, 6].map(class_from), [0.0, 1e-6, 4e-6, 1024e-6]);
    }
}
