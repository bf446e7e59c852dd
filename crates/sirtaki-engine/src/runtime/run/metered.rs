//! A communicator that notes when it is called, so that copies around a collective can be told from the collective.

use std::time::Duration;

use sirtaki_comm::{
    Buffer, CommError, Communicator, Group, Plan, Rank, Reduction, Slice, SliceMut, Stopper, collective::Algorithm,
    signature::Signature,
};

use crate::telemetry::nanos;

/// What was noted since the last call of `take_marks`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// When the first call began.
    pub(crate) entered: u64,
    /// When the last call ended.
    pub(crate) left: u64,
    /// Nanoseconds in calls.
    pub(crate) inside: u64,
    /// Bytes of all calls.
    pub(crate) bytes: u64,
    /// The algorithm by which all-reduces were carried out.
    pub(crate) algorithm: Option<Algorithm>,
}

/// The communicator and its marks.
pub(crate) struct Metered {
    inner: Box<dyn Communicator>,
    marks: Marks,
}

impl Metered {
    pub(crate) fn new(inner: Box<dyn Communicator>) -> Self {
        Self { inner, marks: Marks::default() }
    }

    /// What was noted since the last call.
    pub(crate) fn take_marks(&mut self) -> Marks {
        std::mem::take(&mut self.marks)
    }

    /// Counts bytes that travel some other way.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.marks.bytes = bytes;
    }

    fn time<T>(&mut self, bytes: usize, call: impl FnOnce(&mut dyn Communicator) -> T) -> T {
        let began = nanos();
        let result = call(&mut *self.inner);
        let ended = nanos();
        if self.marks.entered == 0 {
            self.marks.entered = began;
        }
        self.marks.left = ended;
        self.marks.inside += ended.saturating_sub(began);
        self.marks.bytes += bytes as u64;
        result
    }
}

impl Communicator for Metered {
    fn group(&self) -> &Group {
        self.inner.group()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn all_reduce(&mut self, data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        let bytes = data.bytes().len();
        let plan = Plan::new(data.dtype(), reduction, self.inner.group().size());
        self.marks.algorithm = self.inner.algorithm(bytes, &plan);
        self.time(bytes, |inner| inner.all_reduce(data, reduction))
    }

    fn broadcast(&mut self, data: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
        self.time(data.bytes().len(), |inner| inner.broadcast(data, root))
    }

    fn all_gather(&mut self, all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError> {
        self.time(all.bytes().len(), |inner| inner.all_gather(all, counts))
    }

    fn reduce_scatter(&mut self, all: SliceMut<'_>, counts: &[usize], reduction: Reduction) -> Result<(), CommError> {
        self.time(all.bytes().len(), |inner| inner.reduce_scatter(all, counts, reduction))
    }

    fn all_to_all(
        &mut self,
        out: Slice<'_>,
        sent: &[usize],
        into: SliceMut<'_>,
        received: &[usize],
    ) -> Result<(), CommError> {
        self.time(out.bytes().len(), |inner| inner.all_to_all(out, sent, into, received))
    }

    fn reduce(&mut self, data: SliceMut<'_>, reduction: Reduction, root: Rank) -> Result<(), CommError> {
        self.time(data.bytes().len(), |inner| inner.reduce(data, reduction, root))
    }

    fn gather(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        self.time(data.bytes().len(), |inner| inner.gather(data, counts, root))
    }

    fn scatter(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        self.time(data.bytes().len(), |inner| inner.scatter(data, counts, root))
    }

    fn agree(&mut self, call: Signature) -> Result<(), CommError> {
        self.time(0, |inner| inner.agree(call))
    }

    fn barrier(&mut self) -> Result<(), CommError> {
        self.time(0, |inner| inner.barrier())
    }

    fn send(&mut self, data: Slice<'_>, to: Rank) -> Result<(), CommError> {
        self.time(data.bytes().len(), |inner| inner.send(data, to))
    }

    fn receive(&mut self, data: SliceMut<'_>, from: Rank) -> Result<(), CommError> {
        self.time(data.bytes().len(), |inner| inner.receive(data, from))
    }

    fn split(&mut self, colour: Option<u64>) -> Result<Option<Box<dyn Communicator>>, CommError> {
        self.inner.split(colour)
    }

    fn force(&mut self, algorithm: Option<Algorithm>) -> Result<(), CommError> {
        self.inner.force(algorithm)
    }

    fn set_piece(&mut self, bytes: Option<usize>) {
        self.inner.set_piece(bytes);
    }

    fn algorithm(&self, bytes: usize, plan: &Plan) -> Option<Algorithm> {
        self.inner.algorithm(bytes, plan)
    }

    fn round_trips(&self) -> Vec<(Rank, Duration)> {
        self.inner.round_trips()
    }

    fn buffer(&mut self, bytes: usize) -> Result<Buffer, CommError> {
        self.inner.buffer(bytes)
    }

    fn abort(&mut self, error: &CommError) {
        self.inner.abort(error);
    }

    fn stopper(&self) -> Stopper {
        self.inner.stopper()
    }
}
