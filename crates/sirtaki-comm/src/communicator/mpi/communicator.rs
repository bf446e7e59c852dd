//! The [`Communicator`] over MPI: arguments are checked, ranks meet, then the operation runs.

use super::{
    choice::Choice,
    core::Core,
    members::{gather, share},
    moves, pair,
    raw::Threads,
    reduce,
    session::Session,
};
use crate::{
    CommError, Communicator, DType, Group, Plan, Rank, Reduction, Settings, Slice, SliceMut, Stopper,
    collective::{Algorithm, direct},
    communicator::{call, check},
    signature::{Kind, Signature},
};

/// A group of MPI processes.
pub struct MpiCommunicator {
    core: Core,
}

impl MpiCommunicator {
    /// All processes of the MPI job. Every process calls it; MPI is started if it is not running yet, and ended with
    /// the last communicator if it was started here. That last one should be dropped on the thread that made the first.
    pub fn world(settings: &Settings, choice: &Choice) -> Result<Box<dyn Communicator>, CommError> {
        Self::world_in_pieces(settings, choice, i32::MAX as usize)
    }

    /// As [`MpiCommunicator::world`], with MPI calls of at most `limit` elements, so that tests can see buffers being
    /// cut without filling gigabytes.
    #[doc(hidden)]
    pub fn world_in_pieces(
        settings: &Settings,
        choice: &Choice,
        limit: usize,
    ) -> Result<Box<dyn Communicator>, CommError> {
        let session = Session::open(choice)?;
        let comm = session.ask("make a communicator", |mpi| mpi.duplicate(mpi.world()))?;
        let group = gather(&session, comm)?;
        let core = Core::new(session, comm, group, settings.timeout, limit.clamp(1, i32::MAX as usize))?;
        Ok(Box::new(Self { core }))
    }

    /// The library in use, such as `Open MPI (/usr/lib/libmpi.so.40)`.
    pub fn library(&self) -> String {
        self.core.session.name()
    }

    fn group_of(&self, colours: &[u8]) -> Option<Vec<Rank>> {
        let colours = colours.as_chunks::<16>().0;
        let mine = &colours[self.core.group.rank()];
        (mine[0] != 0).then(|| (0..colours.len()).filter(|&rank| colours[rank] == *mine).collect())
    }
}

impl Communicator for MpiCommunicator {
    fn group(&self) -> &Group {
        &self.core.group
    }

    fn name(&self) -> &'static str {
        "mpi"
    }

    fn all_reduce(&mut self, mut data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        let call = call::all_reduce(&data, reduction);
        let plan = Plan::new(data.dtype(), reduction, self.core.group.size());
        if plan.wide {
            self.core.together(call, |_| Ok(()))?;
            return direct::all_reduce(self, data, reduction);
        }
        self.core.together(call, |core| reduce::all_reduce(core, &plan, data.reborrow()))
    }

    fn broadcast(&mut self, data: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
        let call = call::broadcast(&self.core.group, &data, root)?;
        self.core.together(call, |core| moves::broadcast(core, data, root))
    }

    fn all_gather(&mut self, all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError> {
        let call = call::all_gather(&self.core.group, &all, counts)?;
        self.core.together(call, |core| moves::all_gather(core, all, counts))
    }

    fn reduce_scatter(
        &mut self,
        mut all: SliceMut<'_>,
        counts: &[usize],
        reduction: Reduction,
    ) -> Result<(), CommError> {
        let call = call::reduce_scatter(&self.core.group, &all, counts, reduction)?;
        let plan = Plan::new(all.dtype(), reduction, self.core.group.size());
        if plan.wide {
            self.core.together(call, |_| Ok(()))?;
            return direct::reduce_scatter(self, all, counts, reduction);
        }
        self.core.together(call, |core| reduce::reduce_scatter(core, &plan, all.reborrow(), counts))
    }

    fn all_to_all(
        &mut self,
        out: Slice<'_>,
        sent: &[usize],
        into: SliceMut<'_>,
        received: &[usize],
    ) -> Result<(), CommError> {
        let call = call::all_to_all(&self.core.group, out, sent, &into, received)?;
        self.core.together(call, |core| moves::all_to_all(core, out, sent, into, received))
    }

    fn reduce(&mut self, mut data: SliceMut<'_>, reduction: Reduction, root: Rank) -> Result<(), CommError> {
        let call = call::reduce(&self.core.group, &data, reduction, root)?;
        let plan = Plan::new(data.dtype(), reduction, self.core.group.size());
        if plan.wide {
            self.core.together(call, |_| Ok(()))?;
            return direct::all_reduce(self, data, reduction);
        }
        self.core.together(call, |core| reduce::reduce(core, &plan, data.reborrow(), root))
    }

    fn gather(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        let call = call::rooted(Kind::Gather, &self.core.group, &data, counts, root)?;
        self.core.together(call, |core| moves::gather(core, data, counts, root))
    }

    fn scatter(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        let call = call::rooted(Kind::Scatter, &self.core.group, &data, counts, root)?;
        self.core.together(call, |core| moves::scatter(core, data, counts, root))
    }

    fn agree(&mut self, call: Signature) -> Result<(), CommError> {
        self.core.together(call, |_| Ok(()))
    }

    fn force(&mut self, algorithm: Option<Algorithm>) -> Result<(), CommError> {
        match algorithm {
            None => Ok(()),
            Some(other) => {
                let problem = format!("MPI chooses its own algorithms; `{}` cannot be forced on it", other.name());
                Err(CommError::Invalid { problem })
            }
        }
    }

    fn abort(&mut self, error: &CommError) {
        self.core.abort(error);
    }

    fn send(&mut self, data: Slice<'_>, to: Rank) -> Result<(), CommError> {
        check::peer(&self.core.group, to)?;
        let call = Signature::new(Kind::Send, data.dtype(), data.len());
        self.core.guarded(|core| pair::send(core, data, to, &call))
    }

    fn receive(&mut self, data: SliceMut<'_>, from: Rank) -> Result<(), CommError> {
        check::peer(&self.core.group, from)?;
        let call = Signature::new(Kind::Send, data.dtype(), data.len());
        self.core.guarded(|core| pair::receive(core, data, from, &call))
    }

    fn split(&mut self, colour: Option<u64>) -> Result<Option<Box<dyn Communicator>>, CommError> {
        if self.core.session.threads < Threads::Multiple {
            let reason = "MPI was started without MPI_THREAD_MULTIPLE, so groups could not be used at the same time";
            return Err(CommError::Unavailable { what: "split".into(), reason: reason.into() });
        }
        let mut record = [0; 16];
        record[0] = u8::from(colour.is_some());
        record[8..].copy_from_slice(&colour.unwrap_or(0).to_le_bytes());
        let call = Signature::new(Kind::Split, DType::U8, 0);
        let (rank, size) = (self.core.group.rank(), self.core.group.size());
        let colours = self.core.together(call, |core| share(&core.session, core.comm, rank, size, &record))?;
        let members = self.group_of(&colours);
        // MPI's colours are small numbers: the first member's rank is one that no other group has.
        let leader = members.as_ref().map(|members| members[0] as i32);
        let comm = self.core.guarded(|core| core.ask("split", |mpi, comm| mpi.split(comm, leader)))?;
        let group = members.and_then(|members| self.core.group.subset(&members));
        let (Some(comm), Some(group)) = (comm, group) else { return Ok(None) };
        let core = Core::new(self.core.session.clone(), comm, group, self.core.timeout, self.core.limit)?;
        Ok(Some(Box::new(Self { core })))
    }

    fn stopper(&self) -> Stopper {
        self.core.stopper.clone()
    }
}
