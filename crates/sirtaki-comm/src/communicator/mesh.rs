//! Collectives over one link between any two ranks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    CommError, Communicator, Group, Plan, Rank, Reduction, Slice, SliceMut, Stopper,
    collective::{
        Algorithm, Topology, all_gather, all_reduce, all_to_all, barrier, broadcast, choose, direct, gather, reduce,
        reduce_scatter,
    },
    kernel,
    link::Link,
    mesh::{Call, Mesh, Receive},
    rendezvous::{Exchange, split_with},
    signature::{Kind, Signature},
};

use super::{Blame, WaitObserver, call, check};

/// Limits of a ring's pieces, in whole cache lines: smaller is not worth a message, larger hardly a piece.
const SMALLEST_PIECE: usize = 4 << 10;
const LARGEST_PIECE: usize = 64 << 20;
const LINE: usize = 64;

/// Makes my links to the members of a group, all of whom call it with an exchange among them.
pub type Connector =
    Arc<dyn Fn(&Group, &mut dyn Exchange) -> Result<Vec<Option<Box<dyn Link>>>, CommError> + Send + Sync>;

/// A [`Communicator`] over a [`Mesh`].
pub struct MeshCommunicator {
    mesh: Mesh,
    algorithm: Option<Algorithm>,
    piece: Option<usize>,
    connector: Connector,
    /// The user's call while it is carried out by several calls of our own: this is the one that ranks compare.
    outer: Option<Signature>,
}

impl MeshCommunicator {
    /// Collectives over `mesh`, all-reduce by `algorithm` if one is given, with `connector` for groups split off.
    pub fn new(mesh: Mesh, algorithm: Option<Algorithm>, connector: Connector) -> Result<Self, CommError> {
        Ok(Self { mesh, algorithm: available(algorithm)?, piece: None, connector, outer: None })
    }

    fn begin(&mut self, signature: Signature) -> Result<Call, CommError> {
        self.mesh.begin(self.outer.unwrap_or(signature))
    }

    /// Runs a call that is made of other calls of this communicator.
    fn within<T>(
        &mut self,
        signature: Signature,
        work: impl FnOnce(&mut Self) -> Result<T, CommError>,
    ) -> Result<T, CommError> {
        let before = self.outer;
        self.outer = before.or(Some(signature));
        let result = work(self);
        self.outer = before;
        result
    }

    /// The algorithm for an all-reduce of `bytes`.
    fn choice(&self, plan: &Plan, bytes: usize) -> Algorithm {
        match self.algorithm {
            _ if self.collects(plan) => Algorithm::Direct,
            None => choose(bytes, self.mesh.group().size(), Topology::Network),
            Some(algorithm) => algorithm,
        }
    }

    /// Whether inputs have to be combined in one place: partial results cannot travel, or there are none.
    fn collects(&self, plan: &Plan) -> bool {
        plan.wide || self.mesh.group().size() == 1
    }

    /// All-reduces without sending partial results. Ranks with nothing still have to find out if others have something.
    fn collect(&mut self, signature: Signature, data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        self.within(
            signature,
            |comm| {
                if data.is_empty() { comm.barrier() } else { direct::all_reduce(comm, data, reduction) }
            },
        )
    }

    fn plan(&self, data: &SliceMut<'_>, reduction: Reduction) -> Plan {
        Plan::new(data.dtype(), reduction, self.mesh.group().size())
    }
}

fn available(algorithm: Option<Algorithm>) -> Result<Option<Algorithm>, CommError> {
    if !matches!(algorithm, Some(Algorithm::Flat | Algorithm::Layered)) {
        return Ok(algorithm);
    }
    let problem = "ranks connected by links cannot all-reduce by `flat` or `layered`; \
                   choose ring, doubling, halving, tree or direct";
    Err(CommError::Invalid { problem: problem.into() })
}

impl Communicator for MeshCommunicator {
    fn group(&self) -> &Group {
        self.mesh.group()
    }

    fn name(&self) -> &'static str {
        "mesh"
    }

    fn force(&mut self, algorithm: Option<Algorithm>) -> Result<(), CommError> {
        self.algorithm = available(algorithm)?;
        Ok(())
    }

    fn set_piece(&mut self, bytes: Option<usize>) {
        self.piece = bytes.map(|bytes| bytes.clamp(SMALLEST_PIECE, LARGEST_PIECE).next_multiple_of(LINE));
    }

    fn algorithm(&self, bytes: usize, plan: &Plan) -> Option<Algorithm> {
        Some(self.choice(plan, bytes))
    }

    fn round_trips(&self) -> Vec<(Rank, Duration)> {
        self.mesh.round_trips()
    }

    fn observe_waits(&mut self, observer: Arc<dyn WaitObserver>) {
        self.mesh.observe_waits(observer);
    }

    fn tell_wait(&mut self, awaited: &[Rank], since: Instant) {
        self.mesh.tell_wait(awaited, since);
    }

    fn blame(&mut self, awaited: &[Rank]) -> Option<Blame> {
        Some(self.mesh.blame(awaited))
    }

    fn abort(&mut self, error: &CommError) {
        self.mesh.abort(error);
    }

    fn all_reduce(&mut self, mut data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        let plan = self.plan(&data, reduction);
        let algorithm = self.choice(&plan, data.bytes().len());
        let signature = call::all_reduce(&data, reduction).algorithm(algorithm as u8).piece(self.piece);
        if algorithm == Algorithm::Direct {
            return self.collect(signature, data, reduction);
        }
        let call = self.begin(signature)?;
        kernel::scale(plan.dtype, data.bytes_mut(), plan.before);
        let (mesh, piece, bytes) = (&mut self.mesh, self.piece.unwrap_or(all_reduce::PIECE), data.bytes_mut());
        match algorithm {
            Algorithm::Ring => all_reduce::ring(mesh, &call, &plan, bytes, piece),
            Algorithm::Halving => all_reduce::halving(mesh, &call, &plan, bytes),
            Algorithm::Tree => all_reduce::tree(mesh, &call, &plan, bytes),
            _ => all_reduce::doubling(mesh, &call, &plan, bytes),
        }?;
        kernel::scale(plan.dtype, data.bytes_mut(), plan.after);
        Ok(())
    }

    fn broadcast(&mut self, mut data: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
        let call = self.begin(call::broadcast(self.group(), &data, root)?)?;
        broadcast::broadcast(&mut self.mesh, &call, data.bytes_mut(), root)
    }

    fn all_gather(&mut self, mut all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError> {
        let element = all.dtype().size();
        let call = self.begin(call::all_gather(self.group(), &all, counts)?)?;
        all_gather::all_gather(&mut self.mesh, &call, all.bytes_mut(), (counts, element))
    }

    fn reduce_scatter(
        &mut self,
        mut all: SliceMut<'_>,
        counts: &[usize],
        reduction: Reduction,
    ) -> Result<(), CommError> {
        let signature = call::reduce_scatter(self.group(), &all, counts, reduction)?;
        let plan = self.plan(&all, reduction);
        if self.collects(&plan) {
            return self.within(signature, |comm| {
                if all.is_empty() { comm.barrier() } else { direct::reduce_scatter(comm, all, counts, reduction) }
            });
        }
        let call = self.begin(signature)?;
        kernel::scale(plan.dtype, all.bytes_mut(), plan.before);
        reduce_scatter::reduce_scatter(&mut self.mesh, &call, &plan, all.bytes_mut(), counts)?;
        let rank = self.group().rank();
        let begin = counts[..rank].iter().sum();
        kernel::scale(plan.dtype, all.part(begin, begin + counts[rank]).bytes_mut(), plan.after);
        Ok(())
    }

    fn all_to_all(
        &mut self,
        out: Slice<'_>,
        sent: &[usize],
        mut into: SliceMut<'_>,
        received: &[usize],
    ) -> Result<(), CommError> {
        let call = self.begin(call::all_to_all(self.group(), out, sent, &into, received)?)?;
        let (out, element) = ((out.bytes(), sent), out.dtype().size());
        all_to_all::all_to_all(&mut self.mesh, &call, out, (into.bytes_mut(), received), element)
    }

    fn reduce(&mut self, mut data: SliceMut<'_>, reduction: Reduction, root: Rank) -> Result<(), CommError> {
        let signature = call::reduce(self.group(), &data, reduction, root)?;
        let plan = self.plan(&data, reduction);
        if self.collects(&plan) {
            return self.collect(signature, data, reduction);
        }
        let call = self.begin(signature)?;
        kernel::scale(plan.dtype, data.bytes_mut(), plan.before);
        reduce::reduce(&mut self.mesh, &call, &plan, data.bytes_mut(), root)?;
        if self.group().rank() == root {
            kernel::scale(plan.dtype, data.bytes_mut(), plan.after);
        }
        Ok(())
    }

    fn gather(&mut self, mut data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        let element = data.dtype().size();
        let call = self.begin(call::rooted(Kind::Gather, self.group(), &data, counts, root)?)?;
        gather::gather(&mut self.mesh, &call, data.bytes_mut(), (counts, element), root)
    }

    fn scatter(&mut self, mut data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        let element = data.dtype().size();
        let call = self.begin(call::rooted(Kind::Scatter, self.group(), &data, counts, root)?)?;
        gather::scatter(&mut self.mesh, &call, data.bytes_mut(), (counts, element), root)
    }

    fn agree(&mut self, call: Signature) -> Result<(), CommError> {
        let call = self.begin(call)?;
        barrier::barrier(&mut self.mesh, &call)
    }

    fn send(&mut self, data: Slice<'_>, to: Rank) -> Result<(), CommError> {
        check::peer(self.group(), to)?;
        let call = self.mesh.begin_point(Signature::new(Kind::Send, data.dtype(), data.len()), to, false)?;
        self.mesh.exchange(&call, Some((to, data.bytes())), None)
    }

    fn receive(&mut self, mut data: SliceMut<'_>, from: Rank) -> Result<(), CommError> {
        check::peer(self.group(), from)?;
        let call = self.mesh.begin_point(Signature::new(Kind::Send, data.dtype(), data.len()), from, true)?;
        self.mesh.exchange(&call, None, Some((from, Receive::Fill(data.bytes_mut()))))
    }

    fn split(&mut self, colour: Option<u64>) -> Result<Option<Box<dyn Communicator>>, CommError> {
        let connector = self.connector.clone();
        let signature = Signature::new(Kind::Split, crate::DType::U8, 0);
        let links = self.within(signature, |comm| {
            split_with(comm, colour, |group, exchange| Ok((group.clone(), connector(group, exchange)?)))
        })?;
        let Some((group, links)) = links else { return Ok(None) };
        let mesh = Mesh::new(group, links, self.mesh.timeout(), Stopper::new())?;
        Ok(Some(Box::new(MeshCommunicator::new(mesh, self.algorithm, connector)?)))
    }

    fn stopper(&self) -> Stopper {
        self.mesh.stopper()
    }
}
