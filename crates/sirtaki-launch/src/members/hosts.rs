//! The hosts of an elastic job: how many processes each may have, and which one is better avoided for a while.

use std::{
    collections::BTreeSet,
    ops::Range,
    time::{Duration, Instant},
};

#[derive(Debug)]
struct Host {
    seats: Range<usize>,
    slots: usize,
    lost: bool,
    failures: u32,
    /// The time of the last failure, and until when it is avoided.
    avoided: Option<(Instant, Instant)>,
}

#[derive(Debug)]
pub(super) struct Hosts {
    hosts: Vec<Host>,
    cooldown: (Duration, Duration),
}

impl Hosts {
    pub(super) fn new(seats: &[Range<usize>], slots: &[usize], cooldown: (Duration, Duration)) -> Self {
        let host =
            |seats: &Range<usize>| Host { seats: seats.clone(), slots: 0, lost: false, failures: 0, avoided: None };
        let mut hosts = Self { hosts: seats.iter().map(host).collect(), cooldown };
        hosts.set_slots(slots);
        hosts
    }

    pub(super) fn len(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn set_slots(&mut self, slots: &[usize]) {
        for (host, &slots) in self.hosts.iter_mut().zip(slots) {
            host.slots = slots.min(host.seats.len());
        }
    }

    pub(super) fn lose(&mut self, host: usize) {
        self.hosts[host].lost = true;
    }

    pub(super) fn slots(&self, host: usize) -> usize {
        if self.hosts[host].lost { 0 } else { self.hosts[host].slots }
    }

    pub(super) fn of_seat(&self, seat: usize) -> usize {
        self.hosts.partition_point(|host| host.seats.end <= seat)
    }

    /// A process failed: its host is avoided for a while, and for longer each time, unless the last time was long ago.
    pub(super) fn failed(&mut self, seat: usize, now: Instant) {
        let (least, most) = self.cooldown;
        let at = self.of_seat(seat);
        let host = &mut self.hosts[at];
        if host.avoided.is_some_and(|(last, _)| now.saturating_duration_since(last) > 2 * most) {
            host.failures = 0;
        }
        let pause = least.saturating_mul(1 << host.failures.min(20)).min(most);
        host.failures += 1;
        host.avoided = Some((now, now + pause));
    }

    /// The lowest seat that may be taken.
    pub(super) fn free_seat(&self, taken: &BTreeSet<usize>, now: Instant) -> Option<usize> {
        (0..self.hosts.len()).find_map(|at| {
            let host = &self.hosts[at];
            let used = taken.range(host.seats.clone()).count();
            let avoided = host.avoided.is_some_and(|(_, until)| now < until);
            let free = || host.seats.clone().find(|seat| !taken.contains(seat));
            (used < self.slots(at) && !avoided).then(free).flatten()
        })
    }

    /// When hosts are no longer avoided.
    pub(super) fn cooled(&self) -> impl Iterator<Item = Instant> + '_ {
        self.hosts.iter().filter_map(|host| host.avoided.map(|(_, until)| until))
    }
}
