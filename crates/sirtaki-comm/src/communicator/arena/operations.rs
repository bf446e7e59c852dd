//! The arena as a [`Communicator`].

use std::sync::Arc;

use super::{Arena, chain, enter::Visit, layout::NOTE, parts, post::INLINE, shared, small, windows};
use crate::{
    Buffer, CommError, Communicator, Group, Plan, Rank, Reduction, Slice, SliceMut, Stopper,
    collective::Algorithm,
    communicator::{WaitObserver, call},
    kernel,
    rendezvous::split_with,
    signature::{Kind, Signature},
};

impl Arena {
    /// Over the streams. They would not notice a rank that does something else outside them, so all ranks agree first.
    fn all_reduce_by(
        &mut self,
        algorithm: Algorithm,
        data: SliceMut<'_>,
        reduction: Reduction,
    ) -> Result<(), CommError> {
        self.agree(call::all_reduce(&data, reduction).algorithm(algorithm as u8))?;
        self.stream(|streams| streams.all_reduce(data, reduction))
    }

    fn flat(&mut self, data: &mut [u8], call: Signature, plan: &Plan) -> Result<(), CommError> {
        if data.len() <= small::limit(self.group().size()) {
            return self.me.reduce_noted(call, data, plan);
        }
        let place = self.shared(data);
        let (call, block) = (call.piece(self.block), self.block);
        let mut inline = [0; INLINE];
        if let Some((memory, offset)) = &place {
            inline[..8].copy_from_slice(&memory.id.to_ne_bytes());
            inline[8..16].copy_from_slice(&(*offset as u64).to_ne_bytes());
        }
        let outcome = self.me.operate(call, &inline, |visit| match &place {
            Some((memory, offset)) if visit.others().all(|rank| visit.inline(rank).0 == inline) => {
                shared::all_reduce(visit, memory, (*offset, data.len()), plan)
            }
            _ if plan.wide => windows::reduce_widely(visit, data, plan, None),
            _ => chain::all_reduce(visit, data, plan, block),
        });
        if let (Err(_), Some((memory, _))) = (&outcome, &place) {
            // Others may have seen that this rank came, and may still come themselves.
            memory.detach();
        }
        outcome
    }
}

/// The column of `sent` that concerns me must be what I expect; returns how many bytes the largest message has.
fn agree_on_counts(visit: &Visit<'_>, received: &[usize], size: usize) -> Result<usize, CommError> {
    let group = &visit.room.group;
    let mut largest = 0;
    for (rank, &expected) in received.iter().enumerate() {
        let note = visit.read_note(rank, 8 * group.size());
        let row: &[u64] = bytemuck::cast_slice(&note);
        largest = largest.max(row.iter().copied().max().unwrap_or(0) as usize);
        if row[group.rank()] != expected as u64 {
            let differences = format!(
                "{} sends {} elements in all_to_all, {} expects {}",
                group.describe(rank),
                row[group.rank()],
                group.describe(group.rank()),
                expected
            );
            return Err(CommError::Mismatch { rank: group.world_rank(rank), differences });
        }
    }
    Ok(largest * size)
}

impl Communicator for Arena {
    fn group(&self) -> &Group {
        &self.me.room.group
    }

    fn name(&self) -> &'static str {
        "arena"
    }

    fn force(&mut self, algorithm: Option<Algorithm>) -> Result<(), CommError> {
        match algorithm {
            None | Some(Algorithm::Flat) => self.streams.force(None)?,
            other => self.streams.force(other)?,
        }
        self.forced = algorithm;
        Ok(())
    }

    fn set_piece(&mut self, bytes: Option<usize>) {
        let largest = chain::largest_block(&self.me.room);
        self.block = bytes.map(|bytes| bytes.next_multiple_of(chain::LINE).clamp(chain::LINE, largest));
    }

    fn algorithm(&self, _: usize, _: &Plan) -> Option<Algorithm> {
        Some(self.forced.unwrap_or(Algorithm::Flat))
    }

    #[inline]
    fn all_reduce(&mut self, mut data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        if let Some(algorithm) = self.forced.filter(|&algorithm| algorithm != Algorithm::Flat) {
            return self.all_reduce_by(algorithm, data, reduction);
        }
        let plan = Plan::new(data.dtype(), reduction, self.me.room.group.size());
        let call = call::all_reduce(&data, reduction);
        if data.bytes().len() <= INLINE {
            return self.me.reduce_inline(call, data.bytes_mut(), &plan);
        }
        self.flat(data.bytes_mut(), call, &plan)
    }

    fn broadcast(&mut self, mut data: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
        let call = call::broadcast(self.group(), &data, root)?;
        if data.bytes().len() <= NOTE {
            if self.group().rank() == root {
                self.me.leave_note(data.bytes());
            }
            return self.me.operate(call, &[], |visit| {
                let length = data.bytes().len();
                if visit.room.group.rank() != root {
                    kernel::copy(data.bytes_mut(), &visit.read_note(root, length));
                }
                Ok(())
            });
        }
        self.me.operate(call, &[], |visit| windows::broadcast(visit, data.bytes_mut(), root))
    }

    fn all_gather(&mut self, mut all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError> {
        let call = call::all_gather(self.group(), &all, counts)?;
        let parts = parts(counts, all.dtype().size());
        if parts.iter().all(|part| part.len() <= NOTE) {
            self.me.leave_note(&all.bytes()[parts[self.group().rank()].clone()]);
            return self.me.operate(call, &[], |visit| {
                for rank in visit.others() {
                    let part = parts[rank].clone();
                    kernel::copy(&mut all.bytes_mut()[part.clone()], &visit.read_note(rank, part.len()));
                }
                Ok(())
            });
        }
        self.me.operate(call, &[], |visit| windows::all_gather(visit, all.bytes_mut(), &parts))
    }

    fn reduce_scatter(
        &mut self,
        mut all: SliceMut<'_>,
        counts: &[usize],
        reduction: Reduction,
    ) -> Result<(), CommError> {
        let call = call::reduce_scatter(self.group(), &all, counts, reduction)?;
        let plan = Plan::new(all.dtype(), reduction, self.group().size());
        let parts = parts(counts, all.dtype().size());
        self.me.operate(call, &[], |visit| windows::reduce_scatter(visit, all.bytes_mut(), &parts, &plan))
    }

    fn all_to_all(
        &mut self,
        out: Slice<'_>,
        sent: &[usize],
        mut into: SliceMut<'_>,
        received: &[usize],
    ) -> Result<(), CommError> {
        let call = call::all_to_all(self.group(), out, sent, &into, received)?;
        let size = out.dtype().size();
        let row: Vec<u64> = sent.iter().map(|&count| count as u64).collect();
        self.me.leave_note(bytemuck::cast_slice(&row));
        let (sent, expected) = (parts(sent, size), parts(received, size));
        self.me.operate(call, &[], |visit| {
            let largest = agree_on_counts(visit, received, size)?;
            windows::all_to_all(visit, (out.bytes(), &sent), (into.bytes_mut(), &expected), largest)
        })
    }

    fn reduce(&mut self, mut data: SliceMut<'_>, reduction: Reduction, root: Rank) -> Result<(), CommError> {
        let call = call::reduce(self.group(), &data, reduction, root)?;
        let plan = Plan::new(data.dtype(), reduction, self.group().size());
        self.me.operate(call, &[], |visit| windows::reduce_widely(visit, data.bytes_mut(), &plan, Some(root)))
    }

    fn gather(&mut self, mut data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        let call = call::rooted(Kind::Gather, self.group(), &data, counts, root)?;
        let parts = parts(counts, data.dtype().size());
        self.me.operate(call, &[], |visit| windows::gather(visit, data.bytes_mut(), &parts, root))
    }

    fn scatter(&mut self, mut data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        let call = call::rooted(Kind::Scatter, self.group(), &data, counts, root)?;
        let parts = parts(counts, data.dtype().size());
        self.me.operate(call, &[], |visit| windows::scatter(visit, data.bytes_mut(), &parts, root))
    }

    fn agree(&mut self, call: Signature) -> Result<(), CommError> {
        self.me.operate(call, &[], |_| Ok(()))
    }

    fn send(&mut self, data: Slice<'_>, to: Rank) -> Result<(), CommError> {
        self.stream(|streams| streams.send(data, to))
    }

    fn receive(&mut self, data: SliceMut<'_>, from: Rank) -> Result<(), CommError> {
        self.stream(|streams| streams.receive(data, from))
    }

    fn split(&mut self, colour: Option<u64>) -> Result<Option<Box<dyn Communicator>>, CommError> {
        let settings = self.settings.clone();
        split_with(self, colour, |group, exchange| {
            Ok(Box::new(Arena::connect(group.clone(), exchange, &settings)?) as Box<dyn Communicator>)
        })
    }

    fn observe_waits(&mut self, observer: Arc<dyn WaitObserver>) {
        self.me.room.observe_waits(observer);
    }

    fn abort(&mut self, error: &CommError) {
        if self.me.check().is_ok() {
            self.me.fail(error.clone());
        }
    }

    fn buffer(&mut self, bytes: usize) -> Result<Buffer, CommError> {
        self.shared_buffer(bytes)
    }

    fn stopper(&self) -> Stopper {
        self.me.room.stopper()
    }
}
