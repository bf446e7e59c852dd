//! The whole job from what agents report about its ranks. Pure; the time comes in as seconds since the ranks were started.

use std::array;

use serde::Serialize;
use sirtaki_engine::telemetry::{GpuSample, Progress, counts::Phase, staleness::STALENESS};
use sirtaki_launch::pulse::Pulse;

use super::trail::Trail;

/// What is known of a job at some moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Moment {
    /// Seconds since the ranks were started.
    pub seconds: f64,
    /// What the program says about itself; for what it leaves out now, what it said before.
    pub said: Progress,
    /// How long ago that was.
    pub silent: f64,
    /// Steps per second.
    pub steps_per_second: Option<f64>,
    /// Samples per second.
    pub samples_per_second: Option<f64>,
    /// Seconds to the end, if it goes on like this.
    pub left: Option<f64>,
    /// Every rank of which something is known.
    pub ranks: Vec<RankMoment>,
}

/// What is known of a rank at some moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RankMoment {
    /// Which one.
    pub rank: usize,
    /// Where it runs.
    pub host: String,
    /// The share of the last seconds in which others waited for it, where ranks were compared.
    pub late: Option<f64>,
    /// The phase of a step that explains most of it.
    pub phase: Option<&'static str>,
    /// Most bytes of memory it ever had.
    pub memory: u64,
    /// Its last step, if it reports it.
    pub step: Option<u64>,
    /// How much of its GPU is in use, if it has one that says so.
    pub gpu: Option<GpuSample>,
    /// How often weights from parameter servers lacked how many steps, by class, if there are servers.
    pub staleness: Option<[u64; STALENESS]>,
}

impl Moment {
    /// The rank that others waited for most, and for which share of the time, where several are known.
    pub fn latest(&self) -> Option<(&RankMoment, f64)> {
        let known = || self.ranks.iter().filter_map(|rank| Some((rank, rank.late?)));
        let latest = known().max_by(|one, other| one.1.total_cmp(&other.1))?;
        (known().count() > 1).then_some(latest)
    }

    /// The share of the job that is done.
    pub fn done(&self) -> Option<f64> {
        let Progress { step, steps, epoch, epochs, .. } = self.said;
        let by_steps = steps.filter(|&steps| steps > 0).map(|steps| step as f64 / steps as f64);
        let by_epochs = || Some(epoch? / epochs.filter(|&epochs| epochs > 0)? as f64);
        by_steps.or_else(by_epochs).map(|share| share.clamp(0.0, 1.0))
    }
}

#[derive(Debug, Clone, Default)]
struct Rank {
    /// How long others waited for it, in total and by phase.
    late: Trail<{ 1 + Phase::ALL.len() }>,
    last: Option<Pulse>,
}

/// A job as it goes on.
#[derive(Debug)]
pub(super) struct Going {
    hosts: Vec<String>,
    ranks: Vec<Rank>,
    /// What the program says, put together.
    said: Option<Progress>,
    /// When it was said, by the clock of that host, and by this one's.
    when: (u64, f64),
    /// Steps, samples and epochs.
    course: Trail<3>,
}

impl Going {
    pub(super) fn new(hosts: Vec<String>) -> Self {
        let ranks = vec![Rank::default(); hosts.len()];
        Self { hosts, ranks, said: None, when: (0, 0.0), course: Trail::default() }
    }

    /// Takes in what was reported about ranks. Those that do not exist are ignored.
    pub(super) fn heard(&mut self, pulses: &[Pulse], seconds: f64) {
        for pulse in pulses {
            if let Some(rank) = self.ranks.get_mut(pulse.rank) {
                if let Some(late) = pulse.late {
                    let nanos = array::from_fn(|index| if index == 0 { late.total } else { late.by[index - 1] });
                    rank.late.add(pulse.time as f64 / 1e9, nanos.map(|nanos| nanos as f64 / 1e9));
                }
                rank.last = Some(*pulse);
            }
        }
        // The lowest rank that reports anything stands for all.
        let Some((time, now)) = self.ranks.iter().find_map(|rank| rank.last?.said()) else { return };
        if self.said.is_none() {
            // Waiting before the first step was not part of the work.
            self.ranks.iter_mut().for_each(|rank| rank.late = Trail::default());
        }
        if self.said.is_none() || time != self.when.0 {
            self.when = (time, seconds);
            let now = together(now, self.said);
            let counts = [now.step as f64, now.samples.unwrap_or(0) as f64, now.epoch.unwrap_or(0.0)];
            self.course.add(time as f64 / 1e9, counts);
            self.said = Some(now);
        }
    }

    /// Everything that is known, once the program has said how far it is.
    pub(super) fn moment(&self, seconds: f64) -> Option<Moment> {
        let said = self.said?;
        let silent = (seconds - self.when.1).max(0.0);
        let positive = |rate: Option<f64>| rate.filter(|&rate| rate > 0.0);
        Some(Moment {
            seconds,
            said,
            silent,
            steps_per_second: positive(self.course.rate(0)),
            samples_per_second: said.samples.and(positive(self.course.rate(1))),
            left: self.left(&said).map(|left| (left - silent).max(0.0)),
            ranks: self.ranks.iter().zip(&self.hosts).enumerate().filter_map(known).collect(),
        })
    }

    fn left(&self, said: &Progress) -> Option<f64> {
        let time = |ahead: f64, counter: usize| {
            let rate = self.course.mean_rate(counter).filter(|&rate| rate > 0.0)?;
            (ahead > 0.0).then_some(ahead / rate)
        };
        match (said.steps, said.epoch.zip(said.epochs)) {
            (Some(steps), _) => time(steps as f64 - said.step as f64, 0),
            (None, Some((epoch, epochs))) => time(epochs as f64 - epoch, 2),
            _ => None,
        }
    }
}

fn known((number, (rank, host)): (usize, (&Rank, &String))) -> Option<RankMoment> {
    let last = rank.last?;
    Some(RankMoment {
        rank: number,
        host: host.clone(),
        late: rank.late.rate(0).map(|share| share.clamp(0.0, 1.0)),
        phase: phase(&rank.late),
        memory: last.memory,
        step: last.said().map(|(_, said)| said.step),
        gpu: last.gpu,
        staleness: last.staleness,
    })
}

/// The phase that explains at least half of a rank's lateness.
fn phase(late: &Trail<{ 1 + Phase::ALL.len() }>) -> Option<&'static str> {
    let all = late.rate(0).filter(|&all| all > 0.0)?;
    let explains = |phase: &&Phase| late.rate(1 + **phase as usize).is_some_and(|rate| rate >= all / 2.0);
    Phase::ALL.iter().find(explains).map(|phase| phase.name())
}

/// What is said now, completed by what was said before.
fn together(now: Progress, before: Option<Progress>) -> Progress {
    let before = before.unwrap_or_default();
    Progress {
        step: now.step,
        steps: now.steps.or(before.steps),
        epoch: now.epoch.or(before.epoch),
        epochs: now.epochs.or(before.epochs),
        samples: now.samples.or(before.samples),
        loss: now.loss.or(before.loss),
        accuracy: now.accuracy.or(before.accuracy),
        test_loss: now.test_loss.or(before.test_loss),
        test_accuracy: now.test_accuracy.or(before.test_accuracy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sirtaki_launch::pulse::Late;

    const SECOND: u64 = 1_000_000_000;

    fn pulse(rank: usize, second: u64, step: u64, late: u64) -> Pulse {
        let said = Progress { step, steps: Some(100), samples: Some(64 * step), ..Progress::default() };
        let late = Late { total: late, by: [late, 0, 0, 0] };
        let pulse = Pulse::new(rank, second * SECOND, Some((second * SECOND, said)), Some(late), 1 << 20);
        pulse.with_gpu(GpuSample { memory: second, total: 9, busy: Some(50) })
    }

    #[test]
    fn rates_and_time_left_follow_from_what_is_said() {
        let mut going = Going::new(vec!["a".into(), "b".into()]);
        assert_eq!(going.moment(0.0), None);
        for second in 1..=4 {
            let pulses = [pulse(0, 70 + second, 10 * second, second * SECOND / 2), pulse(1, second, 10 * second, 0)];
            going.heard(&pulses, second as f64);
        }
        let moment = going.moment(5.0).unwrap();
        assert_eq!((moment.said.step, moment.silent), (40, 1.0));
        assert_eq!((moment.steps_per_second, moment.samples_per_second), (Some(10.0), Some(640.0)));
        assert_eq!((moment.left, moment.done()), (Some(5.0), Some(0.4)));
        let (latest, share) = moment.latest().unwrap();
        assert_eq!((latest.rank, share, latest.phase), (0, 0.5, Some("input")));
        assert_eq!((moment.ranks[1].late, moment.ranks[1].phase), (Some(0.0), None));
        assert_eq!((moment.ranks[1].host.as_str(), moment.ranks[1].memory), ("b", 1 << 20));
        assert_eq!(moment.ranks[1].gpu, Some(GpuSample { memory: 4, total: 9, busy: Some(50) }));
    }

    #[test]
    fn what_is_left_out_stays_known_and_strangers_are_ignored() {
        let mut going = Going::new(vec!["a".into()]);
        let said = Progress { step: 1, loss: Some(0.5), ..Progress::default() };
        going.heard(&[Pulse::new(0, 1, Some((1, said)), None, 0), pulse(7, 1, 99, 0)], 0.0);
        let test = Progress { step: 2, test_accuracy: Some(0.9), epoch: Some(0.5), epochs: Some(2), ..said };
        going.heard(&[Pulse::new(0, 2, Some((2, Progress { loss: None, ..test })), None, 0)], 1.0);
        let moment = going.moment(1.0).unwrap();
        assert_eq!(moment.said, test);
        assert_eq!((moment.latest(), moment.ranks.len()), (None, 1));
        assert_eq!(moment.done(), Some(0.25));
        assert!(moment.samples_per_second.is_none());
    }
}
