//! The binomial tree that rooted collectives run on.
//!
//! Ranks are counted from the root. The parent of a rank is the rank without its lowest set bit, so a tree of any size
//! is at most ⌈log₂ n⌉ deep, and each subtree is a run of consecutive ranks.

use crate::{
    CommError, Plan, Rank,
    mesh::{Call, Mesh, Receive},
};

/// My place in the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tree {
    position: usize,
    size: usize,
    root: Rank,
}

impl Tree {
    pub(super) fn new(mesh: &Mesh, root: Rank) -> Self {
        let size = mesh.group().size();
        Self { position: (mesh.group().rank() + size - root) % size, size, root }
    }

    fn rank(&self, position: usize) -> Rank {
        (position + self.root) % self.size
    }

    fn parent(&self) -> Option<Rank> {
        (self.position > 0).then(|| self.rank(self.position & (self.position - 1)))
    }

    /// From the smallest subtree to the largest.
    fn children(self) -> impl DoubleEndedIterator<Item = Rank> {
        let levels = if self.position == 0 { usize::BITS } else { self.position.trailing_zeros() };
        let levels = levels.min(self.size.next_power_of_two().trailing_zeros());
        let child = move |level: u32| self.position + (1_usize << level);
        (0..levels).map(child).filter(move |&child| child < self.size).map(move |child| self.rank(child))
    }

    /// Empty messages towards the root: when the root has received the last one, every rank has begun.
    pub(super) fn report(self, mesh: &mut Mesh, call: &Call) -> Result<(), CommError> {
        for child in self.children() {
            mesh.exchange(call, None, Some((child, Receive::Fill(&mut []))))?;
        }
        self.parent().map_or(Ok(()), |parent| mesh.exchange(call, Some((parent, &[])), None))
    }

    /// Folds all ranks' data towards the root.
    pub(super) fn fold(self, mesh: &mut Mesh, call: &Call, plan: &Plan, data: &mut [u8]) -> Result<(), CommError> {
        for child in self.children() {
            mesh.exchange(call, None, Some((child, Receive::Fold(plan, data))))?;
        }
        self.parent().map_or(Ok(()), |parent| mesh.exchange(call, Some((parent, data)), None))
    }

    /// Copies the root's data to all ranks.
    pub(super) fn spread(self, mesh: &mut Mesh, call: &Call, data: &mut [u8]) -> Result<(), CommError> {
        if let Some(parent) = self.parent() {
            mesh.exchange(call, None, Some((parent, Receive::Fill(data))))?;
        }
        // The largest subtree has the longest way to go.
        for child in self.children().rev() {
            mesh.exchange(call, Some((child, data)), None)?;
        }
        Ok(())
    }

    /// Copies the root's data to all ranks along a chain, piece after piece, so that all links are busy at once.
    pub(super) fn pass_along(
        self,
        mesh: &mut Mesh,
        call: &Call,
        data: &mut [u8],
        piece: usize,
    ) -> Result<(), CommError> {
        let previous = (self.position > 0).then(|| self.rank(self.position - 1));
        let next = (self.position + 1 < self.size).then(|| self.rank(self.position + 1));
        let pieces = data.len().div_ceil(piece);
        let mut rest = data;
        let mut behind: Option<&[u8]> = None;
        for _ in 0..pieces {
            let (now, after) = rest.split_at_mut(piece.min(rest.len()));
            rest = after;
            let send = next.zip(behind);
            let receive = previous.map(|rank| (rank, Receive::Fill(&mut *now)));
            if send.is_some() || receive.is_some() {
                mesh.exchange(call, send, receive)?;
            }
            behind = Some(now);
        }
        next.zip(behind).map_or(Ok(()), |last| mesh.exchange(call, Some(last), None))
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn parents_and_children_agree_and_everybody_is_reached() {
        for size in 1..=17 {
            for root in [0, size / 2, size - 1] {
                let tree = |rank: usize| Tree { position: (rank + size - root) % size, size, root };
                assert_eq!(tree(root).parent(), None);
                let mut reached = 1;
                for rank in 0..size {
                    for child in tree(rank).children() {
                        assert_eq!(tree(child).parent(), Some(rank), "{child} of {size}");
                        reached += 1;
                    }
                }
                assert_eq!(reached, size);
            }
        }
    }
}
