//! Inside every host first, across hosts second, inside again.
//!
//! Ranks of a host meet in an [`Arena`]. Across hosts, the ranks with the same position on their hosts form groups over
//! the `world` communicator this one is built on (TCP or MPI), so every rank carries an equal share of the traffic
//! between hosts. Where hosts have different numbers of ranks, only the first of each host talks to the others.
//!
//! Cost of an all-reduce of `s` bytes with `l` ranks on each of `h` hosts: `s` bytes reduced inside, `2·s/l·(h-1)/h`
//! bytes sent and received per rank across (`2·s·(h-1)/h` per host, the least possible), `s` bytes copied inside.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Arena, Blame, Communicator, Solo, WaitObserver, call};
use crate::{
    Buffer, CommError, Group, Plan, Rank, Reduction, Settings, Slice, SliceMut, Stopper,
    collective::{Algorithm, direct},
    kernel,
    rendezvous::{obstacle, split_with},
    signature::{Kind, Signature},
};

/// The communicator below all layers, over which they also report their waits.
struct World {
    below: Mutex<Box<dyn Communicator>>,
    group: Group,
}

impl World {
    /// A layer waits only while nobody calls the communicator below, so taking this lock never waits.
    fn lock(&self) -> MutexGuard<'_, Box<dyn Communicator>> {
        self.below.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ranks of the job as ranks of the group below.
    fn ranks(&self, awaited: &[Rank]) -> Vec<Rank> {
        let members = self.group.members();
        let find = |&rank: &Rank| members.iter().position(|member| member.world_rank == rank);
        awaited.iter().filter_map(find).collect()
    }
}

impl WaitObserver for World {
    fn waits(&self, awaited: &[Rank], since: Instant) {
        self.lock().tell_wait(&self.ranks(awaited), since);
    }

    fn blame(&self, awaited: &[Rank]) -> Option<Blame> {
        self.lock().blame(&self.ranks(awaited))
    }
}

/// A communicator in two layers.
pub struct Layered {
    world: Arc<World>,
    /// The ranks of this host.
    local: Box<dyn Communicator>,
    /// One rank of every host; `None` for ranks that leave this to the first of their host.
    cross: Option<Box<dyn Communicator>>,
    /// Ranks on every host, if it is the same number everywhere.
    even: Option<usize>,
    forced: Option<Algorithm>,
    settings: Settings,
}

/// Uses shared memory wherever ranks of `world` share a host and can. All of its ranks call it.
pub fn settle(mut world: Box<dyn Communicator>, settings: &Settings) -> Result<Box<dyn Communicator>, CommError> {
    let hosts = world.group().hosts();
    let most = hosts.iter().map(Vec::len).max().unwrap_or(1);
    if !settings.shared_memory || most == 1 || most > Arena::MOST_RANKS {
        return Ok(world);
    }
    if split_with(&mut *world, Some(0), obstacle)?.flatten().is_some() {
        return Ok(world);
    }
    if hosts.len() > 1 {
        return Ok(Box::new(Layered::over(world, settings)?));
    }
    let arena = split_with(&mut *world, Some(0), |group, exchange| Arena::connect(group.clone(), exchange, settings))?;
    match arena {
        Some(arena) => Ok(Box::new(arena)),
        None => Ok(world),
    }
}

impl Layered {
    /// The layers over `world`, all of whose ranks call it.
    pub fn over(mut world: Box<dyn Communicator>, settings: &Settings) -> Result<Self, CommError> {
        let hosts = world.group().hosts();
        let (host, place) = position(world.group(), &hosts);
        let local = split_with(&mut *world, Some(host as u64), |group, exchange| {
            if group.size() == 1 {
                return Ok(Box::new(Solo::new(group.clone())?) as Box<dyn Communicator>);
            }
            Ok(Box::new(Arena::connect(group.clone(), exchange, settings)?) as Box<dyn Communicator>)
        })?;
        let Some(mut local) = local else {
            return Err(CommError::Invalid { problem: "every rank has a host".into() });
        };
        let even = hosts.iter().all(|ranks| ranks.len() == hosts[0].len()).then_some(hosts[0].len());
        let mut cross = world.split((even.is_some() || place == 0).then_some(place as u64))?;
        let settings = settings.clone();
        let world = Arc::new(World { group: world.group().clone(), below: Mutex::new(world) });
        local.observe_waits(world.clone());
        cross.iter_mut().for_each(|cross| cross.observe_waits(world.clone()));
        Ok(Self { world, local, cross, even, forced: None, settings })
    }

    /// Runs `work`; if it fails, all ranks that wait for this one in any layer are told why.
    fn guard(&mut self, work: impl FnOnce(&mut Self) -> Result<(), CommError>) -> Result<(), CommError> {
        work(self).inspect_err(|error| {
            if !matches!(error, CommError::Invalid { .. }) {
                self.abort(error);
            }
        })
    }

    /// Runs `work` on the communicator below. Ranks that are in a layer would not notice, so all ranks agree first.
    fn in_world(
        &mut self,
        call: Signature,
        work: impl FnOnce(&mut dyn Communicator) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        self.agree(call)?;
        self.guard(|this| work(&mut **this.world.lock()))
    }

    fn reduce_in_layers(&mut self, mut data: SliceMut<'_>, plan: &Plan) -> Result<(), CommError> {
        let inner = Reduction::new(plan.op).scaled(plan.before, 1.0);
        let outer = Reduction::new(plan.op);
        let (Some(ranks), Some(cross)) = (self.even, &mut self.cross) else {
            return self.reduce_by_leaders(data, plan);
        };
        let counts = shares(data.len(), ranks);
        let place = self.local.group().rank();
        let start: usize = counts[..place].iter().sum();
        self.local.reduce_scatter(data.reborrow(), &counts, inner)?;
        let mut mine = data.part(start, start + counts[place]);
        cross.all_reduce(mine.reborrow(), outer)?;
        kernel::scale(plan.dtype, mine.bytes_mut(), plan.after);
        self.local.all_gather(data, &counts)
    }

    fn reduce_by_leaders(&mut self, mut data: SliceMut<'_>, plan: &Plan) -> Result<(), CommError> {
        self.local.reduce(data.reborrow(), Reduction::new(plan.op).scaled(plan.before, 1.0), 0)?;
        if let Some(cross) = &mut self.cross {
            cross.all_reduce(data.reborrow(), Reduction::new(plan.op))?;
            kernel::scale(plan.dtype, data.bytes_mut(), plan.after);
        }
        self.local.broadcast(data, 0)
    }
}

/// Index of my host, and my place on it.
fn position(group: &Group, hosts: &[Vec<Rank>]) -> (usize, usize) {
    let find = |(host, ranks): (usize, &Vec<Rank>)| Some((host, ranks.iter().position(|&r| r == group.rank())?));
    hosts.iter().enumerate().find_map(find).unwrap_or((0, 0))
}

/// `count` elements in `parts` shares that differ by less than a cache line.
fn shares(count: usize, parts: usize) -> Vec<usize> {
    let share = count.div_ceil(parts).next_multiple_of(64);
    (0..parts).map(|part| share.min(count.saturating_sub(part * share))).collect()
}

impl Communicator for Layered {
    fn group(&self) -> &Group {
        &self.world.group
    }

    fn name(&self) -> &'static str {
        "layered"
    }

    fn force(&mut self, algorithm: Option<Algorithm>) -> Result<(), CommError> {
        if !matches!(algorithm, None | Some(Algorithm::Layered)) {
            self.world.lock().force(algorithm)?;
        }
        self.forced = algorithm;
        Ok(())
    }

    fn set_piece(&mut self, bytes: Option<usize>) {
        self.local.set_piece(bytes);
        self.cross.iter_mut().for_each(|cross| cross.set_piece(bytes));
        self.world.lock().set_piece(bytes);
    }

    fn round_trips(&self) -> Vec<(Rank, Duration)> {
        self.cross.as_ref().map_or_else(Vec::new, |cross| cross.round_trips())
    }

    fn algorithm(&self, bytes: usize, plan: &Plan) -> Option<Algorithm> {
        match self.forced {
            None | Some(Algorithm::Layered) if plan.wide => Some(Algorithm::Direct),
            None | Some(Algorithm::Layered) => Some(Algorithm::Layered),
            Some(_) => self.world.lock().algorithm(bytes, plan),
        }
    }

    fn all_reduce(&mut self, data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        let plan = Plan::new(data.dtype(), reduction, self.group().size());
        let layered = matches!(self.forced, None | Some(Algorithm::Layered));
        let call = call::all_reduce(&data, reduction);
        self.guard(|this| {
            if layered && !plan.wide {
                // A rank of another host that differs is found by the exchange across.
                this.local.agree(call)?;
                return this.reduce_in_layers(data, &plan);
            }
            this.agree(call)?;
            if layered {
                direct::all_reduce(&mut **this.world.lock(), data, reduction)
            } else {
                this.world.lock().all_reduce(data, reduction)
            }
        })
    }

    fn broadcast(&mut self, mut data: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
        let call = call::broadcast(self.group(), &data, root)?;
        let hosts = self.group().hosts();
        let home = hosts.iter().position(|ranks| ranks.contains(&root)).unwrap_or(0);
        let place = hosts[home].iter().position(|&rank| rank == root).unwrap_or(0);
        self.guard(|this| {
            this.agree(call)?;
            if place != 0 && this.even.is_none() {
                return this.world.lock().broadcast(data, root);
            }
            // Across hosts from the root to the ranks in its place, then from them to all others.
            if let Some(cross) = this.cross.as_mut().filter(|_| this.local.group().rank() == place) {
                cross.broadcast(data.reborrow(), home)?;
            }
            this.local.broadcast(data, place)
        })
    }

    fn all_gather(&mut self, all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError> {
        let call = call::all_gather(self.group(), &all, counts)?;
        self.in_world(call, |world| world.all_gather(all, counts))
    }

    fn reduce_scatter(&mut self, all: SliceMut<'_>, counts: &[usize], reduction: Reduction) -> Result<(), CommError> {
        let call = call::reduce_scatter(self.group(), &all, counts, reduction)?;
        self.in_world(call, |world| world.reduce_scatter(all, counts, reduction))
    }

    fn all_to_all(
        &mut self,
        out: Slice<'_>,
        sent: &[usize],
        into: SliceMut<'_>,
        received: &[usize],
    ) -> Result<(), CommError> {
        let call = call::all_to_all(self.group(), out, sent, &into, received)?;
        self.in_world(call, |world| world.all_to_all(out, sent, into, received))
    }

    fn reduce(&mut self, data: SliceMut<'_>, reduction: Reduction, root: Rank) -> Result<(), CommError> {
        let call = call::reduce(self.group(), &data, reduction, root)?;
        self.in_world(call, |world| world.reduce(data, reduction, root))
    }

    fn gather(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        let call = call::rooted(Kind::Gather, self.group(), &data, counts, root)?;
        self.in_world(call, |world| world.gather(data, counts, root))
    }

    fn scatter(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        let call = call::rooted(Kind::Scatter, self.group(), &data, counts, root)?;
        self.in_world(call, |world| world.scatter(data, counts, root))
    }

    fn agree(&mut self, call: Signature) -> Result<(), CommError> {
        self.guard(|this| {
            this.local.agree(call)?;
            if let Some(cross) = &mut this.cross {
                cross.agree(call)?;
            }
            this.local.agree(call)
        })
    }

    fn send(&mut self, data: Slice<'_>, to: Rank) -> Result<(), CommError> {
        self.guard(|this| this.world.lock().send(data, to))
    }

    fn receive(&mut self, data: SliceMut<'_>, from: Rank) -> Result<(), CommError> {
        self.guard(|this| this.world.lock().receive(data, from))
    }

    fn split(&mut self, colour: Option<u64>) -> Result<Option<Box<dyn Communicator>>, CommError> {
        match self.world.lock().split(colour)? {
            Some(world) => settle(world, &self.settings).map(Some),
            None => Ok(None),
        }
    }

    fn abort(&mut self, error: &CommError) {
        self.local.abort(error);
        self.cross.iter_mut().for_each(|cross| cross.abort(error));
        self.world.lock().abort(error);
    }

    fn buffer(&mut self, bytes: usize) -> Result<Buffer, CommError> {
        self.local.buffer(bytes)
    }

    fn stopper(&self) -> Stopper {
        let cross = self.cross.iter().map(|cross| cross.stopper());
        Stopper::all(cross.chain([self.local.stopper(), self.world.lock().stopper()]))
    }
}
