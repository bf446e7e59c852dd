//! Which rank holds up the job, if any, and with what; and the part of a profile's page that says so. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use sirtaki_comm::Rank;

use super::{
    counts::Phase,
    lateness::{CLASSES, Common, Lateness, Packets, Spent, class_from, delay},
    profile::{Profile, seconds},
    profile_page::RANKS,
};

/// Less than this fraction of the time is not worth mentioning.
const WORTH: f64 = 0.02;
/// A straggler keeps others waiting this many times as long as a typical rank does.
const ABOVE: f64 = 2.0;
/// Packets over a slow connection take this many times as long as over a typical one.
const SLOWER: f64 = 5.0;
/// Seconds by which they must take longer; less than this is noise.
const NOISE: f64 = 2e-3;
/// The slow connections of a host with a slow network add up to this many times those of any other.
const CLEARLY: f64 = 1.5;
/// Numbers of ranks that differ by more than this fraction of the time are from different moments.
const APART: f64 = 0.02;
/// The first class that has a column of its own; those below share one.
const FIRST: usize = 4;
/// The last class with a column, which includes everything above.
const LAST: usize = 12;

/// Why a rank holds up the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// This phase takes longer than on other ranks.
    Phase(Phase),
    /// Its packets take longer than those of other ranks.
    Network,
    /// It does something between the phases that it reports, if it reports any.
    Unknown,
}

impl Cause {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Phase(phase) => phase.name(),
            Cause::Network => "network",
            Cause::Unknown => "unknown",
        }
    }
}

/// The rank that holds up the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Straggler {
    /// Which one.
    pub rank: Rank,
    /// Its host.
    pub host: String,
    /// The main reason.
    pub cause: Cause,
    /// How long the rank that waited longest waited for it; with a slow network, how long all did.
    pub seconds: f64,
    /// The same as a fraction of the elapsed time.
    pub share: f64,
    /// Steps in which it came late, and all of them.
    pub steps: (u64, u64),
    /// Round-trip times of packets to another host in seconds, its own and typical ones, where that is the cause.
    pub packets: Option<(f64, f64)>,
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, host, seconds, share, steps: (late, steps), .. } = self;
        let percent = 100.0 * share;
        if let Some((its, usual)) = self.packets {
            return write!(
                f,
                "rank {rank} (host {host}) has a slow network: packets take {:.1} ms to another host and back, {:.1} ms are \
                 usual; all ranks waited {seconds:.2} s ({percent:.0} % of the time) for collectives",
                1e3 * its,
                1e3 * usual
            );
        }
        write!(f, "rank {rank} (host {host}) kept others waiting for {seconds:.2} s ({percent:.0} % of the time)")?;
        if *steps >= 10 {
            let (part, mean) = (100.0 * *late as f64 / *steps as f64, 1e3 * seconds / *steps as f64);
            write!(f, ": late in {part:.0} % of the steps, by {mean:.1} ms on average")?;
        }
        match self.cause {
            Cause::Phase(phase) => write!(f, "; its {} took longer than others'", phase.name()),
            _ => write!(f, "; what it does longer than others is in no phase that it reports"),
        }
    }
}

impl Profile {
    /// How late every rank was, where that is known. What ranks have not compared themselves is compared here, as one
    /// more step, unless their numbers are from different moments.
    pub fn lateness(&self) -> Vec<Option<Lateness>> {
        let mut all: Vec<Option<Lateness>> =
            self.counts.iter().map(|counts| Some(counts.as_ref()?.lateness())).collect();
        let rests: Vec<(Rank, Spent, [u64; 4])> = self
            .known()
            .map(|(rank, counts)| {
                let (spent, unpaid) = counts.unsettled();
                (rank, spent, unpaid)
            })
            .collect();
        let Some(common) = Common::of(rests.iter().map(|(_, spent, _)| spent)).filter(|_| self.is_of_one_moment())
        else {
            return all;
        };
        for (rank, spent, unpaid) in rests {
            let interval = self.counts[rank].as_ref().map_or(0, |counts| counts.unsettled_time());
            if let Some(lateness) = &mut all[rank] {
                lateness.add(&delay(&spent, &unpaid, &common), common.shortest(), interval);
            }
        }
        all
    }

    fn is_of_one_moment(&self) -> bool {
        let elapsed = || self.known().map(|(_, counts)| counts.elapsed() as f64);
        let (least, most) = (elapsed().fold(f64::INFINITY, f64::min), elapsed().fold(0.0, f64::max));
        let events = |counts: &super::counts::Counts| counts.lateness().events;
        let mut steps = self.known().map(|(_, counts)| events(counts));
        let first = steps.next();
        first.is_some() && steps.all(|events| Some(events) == first) && most - least <= APART * most
    }

    /// The rank that holds up the job most, if one clearly does.
    pub fn straggler(&self) -> Option<Straggler> {
        self.find_straggler(&self.lateness())
    }

    pub(super) fn find_straggler(&self, all: &[Option<Lateness>]) -> Option<Straggler> {
        // It is updated once a second, and a rank that was killed may have waited since.
        let waited = known(all).map(|(_, lateness)| seconds(lateness.total.max(lateness.together))).fold(0.0, f64::max);
        let elapsed = self.compare(|counts| seconds(counts.elapsed())).most.max(waited);
        let late = self.latest(all, elapsed);
        let network = self.slowest(all, elapsed);
        [late, network].into_iter().flatten().max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    fn latest(&self, all: &[Option<Lateness>], elapsed: f64) -> Option<Straggler> {
        let totals: Vec<(Rank, f64)> = known(all).map(|(rank, lateness)| (rank, seconds(lateness.total))).collect();
        let (rank, total, usual) = outlier(&totals)?;
        if total < ABOVE * usual || total - usual < WORTH * elapsed {
            return None;
        }
        let lateness = all[rank].as_ref()?;
        let causes = Phase::ALL.map(|phase| (Cause::Phase(phase), lateness.by[phase as usize]));
        let causes = causes.into_iter().chain([(Cause::Unknown, lateness.unknown)]);
        let (cause, _) = causes.max_by_key(|(_, nanos)| *nanos)?;
        let steps = (lateness.late, lateness.events);
        Some(self.named(rank, cause, total, elapsed, steps, None))
    }

    /// Most of the slow connections between hosts lead to the host whose network is slow. With two hosts, they cannot
    /// be told apart.
    fn slowest(&self, all: &[Option<Lateness>], elapsed: f64) -> Option<Straggler> {
        let trips: Vec<(Rank, Packets)> =
            known(all).filter_map(|(rank, lateness)| Some((rank, lateness.packets?))).collect();
        let mut least: Vec<u64> = trips.iter().map(|(_, packets)| packets.least).collect();
        least.sort_unstable();
        let usual = seconds(*least.get(least.len() / 4)?);
        let mut between: BTreeMap<BTreeSet<&str>, f64> = BTreeMap::new();
        let slow = |packets: &Packets| seconds(packets.most) >= (SLOWER * usual).max(usual + NOISE);
        for (rank, packets) in trips.iter().filter(|(_, packets)| slow(packets)) {
            let hosts = [*rank, packets.to].iter().filter_map(|&rank| Some(self.hosts.get(rank)?.as_str())).collect();
            let longest = between.entry(hosts).or_default();
            *longest = longest.max(seconds(packets.most));
        }
        let at = |host: &str| between.iter().filter(|(hosts, _)| hosts.contains(host)).map(|(_, trip)| trip).sum();
        let hosts: BTreeSet<&str> = self.hosts.iter().map(String::as_str).collect();
        let mut sums: Vec<(&str, f64)> = hosts.into_iter().map(|host| (host, at(host))).collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        let [(host, sum), (_, second), _, ..] = sums[..] else { return None };
        let here = trips.iter().filter(|(rank, _)| self.hosts[*rank] == host);
        let (rank, packets) = here.max_by_key(|(_, packets)| packets.most)?;
        let lateness = all[*rank].as_ref()?;
        let (trip, waited) = (seconds(packets.most), seconds(lateness.together));
        // A collective takes at least one trip, so a step in which all ranks waited less was not held up by packets.
        let plausible = (trip - usual) / 2.0 <= waited / lateness.events.max(1) as f64;
        let clear = sum > 0.0 && sum >= CLEARLY * second && waited >= WORTH * elapsed;
        let steps = (0, lateness.events);
        (clear && plausible).then(|| self.named(*rank, Cause::Network, waited, elapsed, steps, Some((trip, usual))))
    }

    fn named(
        &self,
        rank: Rank,
        cause: Cause,
        seconds: f64,
        elapsed: f64,
        steps: (u64, u64),
        packets: Option<(f64, f64)>,
    ) -> Straggler {
        let share = if elapsed > 0.0 { seconds / elapsed } else { 0.0 };
        Straggler { rank, host: self.hosts[rank].clone(), cause, seconds, share, steps, packets }
    }
}

impl Profile {
    /// Which rank holds up the job, in one line, if any.
    pub(super) fn straggler_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.straggler() {
            Some(straggler) => writeln!(f, "straggler: {straggler}"),
            None => Ok(()),
        }
    }

    /// Every rank's lateness.
    pub(super) fn late_ranks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.lateness();
        let known: Vec<(Rank, &Lateness)> = known(&all).collect();
        if known.len() < 2 || known.iter().all(|(_, lateness)| lateness.events == 0) {
            return Ok(());
        }
        writeln!(f, "\nothers waited for a rank, by what it did longer than others")?;
        writeln!(
            f,
            "{:<6} {:>8} {:>8} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "rank",
            "steps",
            "late",
            "mean [ms]",
            "most",
            "total [s]",
            "input",
            "forward",
            "backward",
            "optimizer",
            "other"
        )?;
        for (rank, lateness) in known.iter().take(RANKS) {
            let Lateness { events, late, total, most, by, unknown, .. } = lateness;
            let mean = 1e3 * seconds(*total) / (*events).max(1) as f64;
            write!(
                f,
                "{rank:<6} {events:>8} {late:>8} {mean:>10.3} {:>10.3} {:>10.3}",
                1e3 * seconds(*most),
                seconds(*total)
            )?;
            for nanos in by.iter().chain([unknown]) {
                write!(f, " {:>9.3}", seconds(*nanos))?;
            }
            writeln!(f)?;
        }
        late_classes(f, &known)
    }
}

fn late_classes(f: &mut fmt::Formatter<'_>, known: &[(Rank, &Lateness)]) -> fmt::Result {
    write!(f, "\n{:<18} {:>9}", "steps by time", "below")?;
    for class in FIRST..=LAST {
        write!(f, " {:>9}", format!("{:.0?}", Duration::from_secs_f64(class_from(class))))?;
    }
    writeln!(f)?;
    for (rank, lateness) in known.iter().take(RANKS) {
        write!(f, "{:<18} {:>9}", format!("waited for rank {rank}"), lateness.classes[..FIRST].iter().sum::<u64>())?;
        for class in FIRST..=LAST {
            let end = if class == LAST { CLASSES } else { class + 1 };
            write!(f, " {:>9}", lateness.classes[class..end].iter().sum::<u64>())?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn known(all: &[Option<Lateness>]) -> impl Iterator<Item = (Rank, &Lateness)> {
    all.iter().enumerate().filter_map(|(rank, lateness)| Some((rank, lateness.as_ref()?)))
}

/// The rank with the largest number, that number, and the median of the others (the upper of two).
fn outlier(numbers: &[(Rank, f64)]) -> Option<(Rank, f64, f64)> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (rank, most) = sorted.pop()?;
    let (_, usual) = sorted.get(sorted.len() / 2)?;
    Some((rank, most, *usual))
}

#[cfg(test)]
mod tests;
