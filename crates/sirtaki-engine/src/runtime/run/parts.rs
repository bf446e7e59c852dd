//! Tensors of which ranks have parts, through one collective: all parts of a rank lie together in the buffer, one
//! tensor's share after another.

use std::ops::Range;

use sirtaki_comm::{Communicator, DType, Rank, Reduction, SliceMut, kernel};

use super::{Item, Runner, fused::Outputs, neutral::fill, with_rows};
use crate::{
    decide::request::shares,
    runtime::{memory::Tensor, ticket::Output},
};

/// Where the share of every rank in every item lies, in bytes.
struct Places {
    items: usize,
    /// By rank, then item.
    ranges: Vec<Range<usize>>,
}

impl Places {
    /// Lays out `length(item, rank)` bytes each.
    fn new(items: usize, ranks: usize, length: impl Fn(usize, Rank) -> usize) -> Self {
        let mut end = 0;
        let mut place = |rank, item| {
            let start = end;
            end += length(item, rank);
            start..end
        };
        let ranges = (0..ranks).flat_map(|rank| (0..items).map(move |item| (rank, item)));
        Self { items, ranges: ranges.map(|(rank, item)| place(rank, item)).collect() }
    }

    fn of(&self, item: usize, rank: Rank) -> Range<usize> {
        self.ranges[rank * self.items + item].clone()
    }

    fn total(&self) -> usize {
        self.ranges.last().map_or(0, |last| last.end)
    }

    /// Elements of every rank.
    fn counts(&self, element: usize) -> Vec<usize> {
        let bytes = |shares: &[Range<usize>]| shares.iter().map(Range::len).sum::<usize>();
        self.ranges.chunks(self.items).map(|shares| bytes(shares) / element).collect()
    }
}

impl Runner {
    /// As bytes, whatever the elements are.
    pub(super) fn all_gather_fused(&mut self, items: &[Item<'_>]) -> Outputs {
        let (rank, size) = (self.comm.group().rank(), self.comm.group().size());
        let length = |item: usize, rank: Rank| {
            let Item { request, rows, .. } = &items[item];
            rows[rank] * request.row() * request.dtype.size()
        };
        let places = Places::new(items.len(), size, length);
        let (comm, buffer) = self.room_for(places.total())?;
        for (at, tensor) in items.iter().enumerate().filter_map(|(at, item)| Some((at, item.tensor.as_ref()?))) {
            kernel::copy(&mut buffer[places.of(at, rank)], tensor.bytes());
        }
        comm.all_gather(SliceMut::new(DType::U8, &mut buffer[..places.total()])?, &places.counts(1))?;
        let output = |(at, Item { request, rows, tensor }): (usize, &Item<'_>)| {
            tensor.as_ref()?;
            let rows: usize = rows.iter().sum();
            let mut all = Tensor::zeros(request.dtype, rows * request.row());
            let mut rest = all.bytes_mut();
            for place in (0..size).map(|rank| places.of(at, rank)) {
                let (part, after) = rest.split_at_mut(place.len());
                kernel::copy(part, &buffer[place]);
                rest = after;
            }
            Some(Output::Tensor(all, with_rows(request, rows)))
        };
        Ok(items.iter().enumerate().map(output).collect())
    }

    pub(super) fn reduce_scatter_fused(&mut self, items: &[Item<'_>], dtype: DType, reduction: Reduction) -> Outputs {
        let (rank, size) = (self.comm.group().rank(), self.comm.group().size());
        let rows: Vec<Vec<usize>> = items.iter().map(|item| shares(item.request.rows(), size)).collect();
        let length = |item: usize, rank: Rank| rows[item][rank] * items[item].request.row() * dtype.size();
        let places = Places::new(items.len(), size, length);
        let (comm, buffer) = self.room_for(places.total())?;
        for (at, item) in items.iter().enumerate() {
            let mut begin = 0;
            for place in (0..size).map(|rank| places.of(at, rank)) {
                let end = begin + place.len();
                match &item.tensor {
                    Some(tensor) => kernel::copy(&mut buffer[place], &tensor.bytes()[begin..end]),
                    None => fill(&mut buffer[place], dtype, reduction.op),
                }
                begin = end;
            }
        }
        let all = SliceMut::new(dtype, &mut buffer[..places.total()])?;
        comm.reduce_scatter(all, &places.counts(dtype.size()), reduction)?;
        let output = |(at, Item { request, tensor, .. }): (usize, &Item<'_>)| {
            tensor.as_ref()?;
            let mut part = Tensor::zeros(dtype, rows[at][rank] * request.row());
            kernel::copy(part.bytes_mut(), &buffer[places.of(at, rank)]);
            Some(Output::Tensor(part, with_rows(request, rows[at][rank])))
        };
        Ok(items.iter().enumerate().map(output).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_its_shares_together() {
        let lengths = [[4, 8], [0, 12], [16, 0]];
        let places = Places::new(3, 2, |item, rank| lengths[item][rank]);
        let all = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)].map(|(item, rank)| places.of(item, rank));
        assert_eq!(all, [0..4, 4..4, 4..20, 20..28, 28..40, 40..40]);
        assert_eq!((places.total(), places.counts(4)), (40, vec![5, 5]));
        assert_eq!(Places::new(2, 2, |_, _| 0).counts(8), [0, 0]);
    }
}
