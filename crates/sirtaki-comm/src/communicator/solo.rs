//! A world of one: every collective is the identity, apart from factors.
//!
//! The same program runs alone or in a group, so arguments are checked and factors applied exactly as elsewhere.

use super::check;
use crate::{
    CommError, Communicator, Group, Plan, Rank, Reduction, Slice, SliceMut, Stopper, collective::Algorithm, kernel,
    signature::Signature,
};

/// The communicator of a group with one member.
#[derive(Debug)]
pub struct Solo {
    group: Group,
    stopper: Stopper,
}

impl Solo {
    /// The communicator for `group`, which must have exactly one member.
    pub fn new(group: Group) -> Result<Self, CommError> {
        if group.size() != 1 {
            let problem = format!("a group of {} ranks needs a communicator that connects them", group.size());
            return Err(CommError::Invalid { problem });
        }
        Ok(Self { group, stopper: Stopper::new() })
    }

    fn reduce_alone(&self, mut data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        self.stopper.check()?;
        kernel::alone(&Plan::new(data.dtype(), reduction, 1), data.bytes_mut());
        Ok(())
    }
}

impl Communicator for Solo {
    fn group(&self) -> &Group {
        &self.group
    }

    fn name(&self) -> &'static str {
        "solo"
    }

    fn force(&mut self, _: Option<Algorithm>) -> Result<(), CommError> {
        Ok(())
    }

    fn abort(&mut self, error: &CommError) {
        self.stopper.stop(error.to_string());
    }

    fn all_reduce(&mut self, data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        self.reduce_alone(data, reduction)
    }

    fn broadcast(&mut self, _: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
        check::root(&self.group, root)?;
        self.stopper.check()
    }

    fn all_gather(&mut self, all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError> {
        check::counts(&self.group, counts, all.len())?;
        self.stopper.check()
    }

    fn reduce_scatter(&mut self, all: SliceMut<'_>, counts: &[usize], reduction: Reduction) -> Result<(), CommError> {
        check::counts(&self.group, counts, all.len())?;
        self.reduce_alone(all, reduction)
    }

    fn all_to_all(
        &mut self,
        out: Slice<'_>,
        sent: &[usize],
        mut into: SliceMut<'_>,
        received: &[usize],
    ) -> Result<(), CommError> {
        check::all_to_all(&self.group, out, sent, &into, received)?;
        self.stopper.check()?;
        into.bytes_mut().copy_from_slice(out.bytes());
        Ok(())
    }

    fn reduce(&mut self, data: SliceMut<'_>, reduction: Reduction, root: Rank) -> Result<(), CommError> {
        check::root(&self.group, root)?;
        self.reduce_alone(data, reduction)
    }

    fn gather(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        check::root(&self.group, root)?;
        check::counts(&self.group, counts, data.len())?;
        self.stopper.check()
    }

    fn scatter(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        check::root(&self.group, root)?;
        check::counts(&self.group, counts, data.len())?;
        self.stopper.check()
    }

    fn agree(&mut self, _: Signature) -> Result<(), CommError> {
        self.stopper.check()
    }

    fn send(&mut self, _: Slice<'_>, to: Rank) -> Result<(), CommError> {
        check::peer(&self.group, to)
    }

    fn receive(&mut self, _: SliceMut<'_>, from: Rank) -> Result<(), CommError> {
        check::peer(&self.group, from)
    }

    fn split(&mut self, colour: Option<u64>) -> Result<Option<Box<dyn Communicator>>, CommError> {
        self.stopper.check()?;
        Ok(match colour {
            Some(_) => Some(Box::new(Solo::new(self.group.clone())?)),
            None => None,
        })
    }

    fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }
}
