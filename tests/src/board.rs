//! A communicator that cannot be wrong in interesting ways: everybody pins all of their data to one board, waits until
//! all have, and takes what they need.
//!
//! It is slow and for threads of one process only. It shows that the conformance checks can be passed, and carries
//! algorithms that work over any communicator in their tests.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use sirtaki_comm::{
    CommError, Communicator, DType, Group, Plan, Rank, Reduction, Slice, SliceMut, Stopper, kernel,
    signature::{Kind, Signature},
};

use crate::data::Data;

/// What one rank brings to a call.
#[derive(Clone)]
struct Post {
    signature: Signature,
    data: Data,
    counts: Vec<usize>,
    /// A board for the group that this rank leads after a split.
    room: Arc<Shared>,
}

#[derive(Default)]
struct State {
    posts: BTreeMap<Rank, Post>,
    round: u64,
    last: Option<Arc<Vec<Post>>>,
    taken: usize,
    failure: Option<CommError>,
    mail: HashMap<(Rank, Rank), VecDeque<(Signature, Data)>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    bell: Condvar,
}

/// One rank at a board.
pub struct Board {
    group: Group,
    shared: Arc<Shared>,
    stopper: Stopper,
}

impl Board {
    /// All ranks of a group of `size`.
    pub fn make(size: usize) -> Vec<Box<dyn Communicator>> {
        let shared = Arc::new(Shared::default());
        let board = |rank| -> Box<dyn Communicator> {
            Box::new(Board { group: Group::local(rank, size), shared: shared.clone(), stopper: Stopper::new() })
        };
        (0..size).map(board).collect()
    }

    /// Waits until `ready` finds something.
    fn wait<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> Result<T, CommError> {
        let mut state = self.shared.state.lock().unwrap();
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            self.stopper.check()?;
            if let Some(found) = ready(&mut state) {
                self.shared.bell.notify_all();
                return Ok(found);
            }
            state = self.shared.bell.wait_timeout(state, Duration::from_millis(20)).unwrap().0;
        }
    }

    /// Everybody's posts of one call.
    fn exchange(&self, signature: Signature, data: Slice<'_>, counts: &[usize]) -> Result<Arc<Vec<Post>>, CommError> {
        let (me, size) = (self.group.rank(), self.group.size());
        let post = Post { signature, data: Data::copy(data), counts: counts.to_vec(), room: Arc::default() };
        let mut post = Some(post);
        let round = self.wait(|state| {
            if state.last.is_some() {
                return None;
            }
            state.posts.insert(me, post.take()?);
            if state.posts.len() == size {
                let posts: Vec<Post> = std::mem::take(&mut state.posts).into_values().collect();
                let calls: Vec<Signature> = posts.iter().map(|post| post.signature).collect();
                state.failure = Signature::compare_all(&self.group, &calls).err();
                state.round += 1;
                state.last = Some(Arc::new(posts));
                return Some(state.round);
            }
            Some(state.round + 1)
        })?;
        self.wait(|state| {
            let posts = if state.round == round { state.last.clone()? } else { return None };
            state.taken += 1;
            if state.taken == size {
                state.taken = 0;
                state.last = None;
            }
            Some(posts)
        })
    }

    fn valid(&self, fine: bool, problem: &str) -> Result<(), CommError> {
        if fine { Ok(()) } else { Err(CommError::Invalid { problem: problem.into() }) }
    }

    fn check_root(&self, root: Rank) -> Result<(), CommError> {
        self.valid(root < self.group.size(), "no such root")
    }

    fn check_counts(&self, counts: &[usize], len: usize) -> Result<(), CommError> {
        let sum = counts.iter().sum::<usize>();
        self.valid(counts.len() == self.group.size() && sum == len, "the counts do not fit the buffer")
    }

    fn check_peer(&self, peer: Rank) -> Result<(), CommError> {
        self.valid(peer < self.group.size() && peer != self.group.rank(), "no such peer")
    }

    fn reduced(&self, signature: Signature, mut data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        let posts = self.exchange(signature.reduction(reduction), data.as_slice(), &[])?;
        let inputs: Vec<&[u8]> = posts.iter().map(|post| post.data.bytes()).collect();
        kernel::combine(&Plan::new(data.dtype(), reduction, inputs.len()), &inputs, data.bytes_mut());
        Ok(())
    }
}

fn start(counts: &[usize], rank: Rank) -> usize {
    counts[..rank].iter().sum()
}

fn sign(kind: Kind, data: &SliceMut<'_>) -> Signature {
    Signature::new(kind, data.dtype(), data.len())
}

impl Communicator for Board {
    fn group(&self) -> &Group {
        &self.group
    }

    fn name(&self) -> &'static str {
        "board"
    }

    fn all_reduce(&mut self, data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
        self.reduced(sign(Kind::AllReduce, &data), data, reduction)
    }

    fn broadcast(&mut self, mut data: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
        self.check_root(root)?;
        let posts = self.exchange(sign(Kind::Broadcast, &data).root(root), data.as_slice(), &[])?;
        data.bytes_mut().copy_from_slice(posts[root].data.bytes());
        Ok(())
    }

    fn all_gather(&mut self, mut all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError> {
        self.check_counts(counts, all.len())?;
        let posts = self.exchange(sign(Kind::AllGather, &all).counts(counts), all.as_slice(), &[])?;
        for (rank, post) in posts.iter().enumerate() {
            let (from, to) = (start(counts, rank), start(counts, rank + 1));
            all.part(from, to).bytes_mut().copy_from_slice(post.data.part(from, to).bytes());
        }
        Ok(())
    }

    fn reduce_scatter(&mut self, all: SliceMut<'_>, counts: &[usize], reduction: Reduction) -> Result<(), CommError> {
        self.check_counts(counts, all.len())?;
        self.reduced(sign(Kind::ReduceScatter, &all).counts(counts), all, reduction)
    }

    fn all_to_all(
        &mut self,
        out: Slice<'_>,
        sent: &[usize],
        mut into: SliceMut<'_>,
        received: &[usize],
    ) -> Result<(), CommError> {
        let me = self.group.rank();
        self.check_counts(sent, out.len())?;
        self.check_counts(received, into.len())?;
        self.valid(out.dtype() == into.dtype() && sent[me] == received[me], "the buffers differ")?;
        let posts = self.exchange(Signature::new(Kind::AllToAll, out.dtype(), 0), out, sent)?;
        for (rank, post) in posts.iter().enumerate() {
            if post.counts[me] != received[rank] {
                let differences = format!("rank {rank} sends another count than rank {me} expects");
                return Err(CommError::Mismatch { rank, differences });
            }
            let from = start(&post.counts, me);
            let (to, part) = (start(received, rank), post.data.part(from, from + received[rank]));
            into.part(to, to + received[rank]).bytes_mut().copy_from_slice(part.bytes());
        }
        Ok(())
    }

    fn reduce(&mut self, data: SliceMut<'_>, reduction: Reduction, root: Rank) -> Result<(), CommError> {
        self.check_root(root)?;
        self.reduced(sign(Kind::Reduce, &data).root(root), data, reduction)
    }

    fn gather(&mut self, mut data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        self.check_root(root)?;
        let me = self.group.rank();
        if me != root {
            self.valid(counts.len() == self.group.size() && counts[me] == data.len(), "not my part")?;
        } else {
            self.check_counts(counts, data.len())?;
        }
        let signature = Signature::new(Kind::Gather, data.dtype(), counts.iter().sum()).root(root).counts(counts);
        let posts = self.exchange(signature, data.as_slice(), &[])?;
        for (rank, post) in posts.iter().enumerate().filter(|(rank, _)| me == root && *rank != root) {
            data.part(start(counts, rank), start(counts, rank + 1)).bytes_mut().copy_from_slice(post.data.bytes());
        }
        Ok(())
    }

    fn scatter(&mut self, mut data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError> {
        self.check_root(root)?;
        let me = self.group.rank();
        if me != root {
            self.valid(counts.len() == self.group.size() && counts[me] == data.len(), "not my part")?;
        } else {
            self.check_counts(counts, data.len())?;
        }
        let signature = Signature::new(Kind::Scatter, data.dtype(), counts.iter().sum()).root(root).counts(counts);
        let posts = self.exchange(signature, data.as_slice(), &[])?;
        if me != root {
            let mine = posts[root].data.part(start(counts, me), start(counts, me + 1));
            data.bytes_mut().copy_from_slice(mine.bytes());
        }
        Ok(())
    }

    fn barrier(&mut self) -> Result<(), CommError> {
        let nothing = Data::zeros(DType::U8, 0);
        self.exchange(Signature::new(Kind::Barrier, DType::U8, 0), nothing.slice(), &[]).map(drop)
    }

    fn send(&mut self, data: Slice<'_>, to: Rank) -> Result<(), CommError> {
        self.check_peer(to)?;
        let letter = (Signature::new(Kind::Send, data.dtype(), data.len()), Data::copy(data));
        let mut letter = Some(letter);
        self.wait(|state| Some(state.mail.entry((self.group.rank(), to)).or_default().push_back(letter.take()?)))
    }

    fn receive(&mut self, mut data: SliceMut<'_>, from: Rank) -> Result<(), CommError> {
        self.check_peer(from)?;
        let me = self.group.rank();
        let (signature, letter) = self.wait(|state| state.mail.entry((from, me)).or_default().pop_front())?;
        Signature::compare(&self.group, (from, signature), (me, sign(Kind::Send, &data)))?;
        data.bytes_mut().copy_from_slice(letter.bytes());
        Ok(())
    }

    fn split(&mut self, colour: Option<u64>) -> Result<Option<Box<dyn Communicator>>, CommError> {
        let words = [colour.is_some() as i64, colour.unwrap_or(0) as i64];
        let posts = self.exchange(Signature::new(Kind::Split, DType::I64, 2), words.as_slice().into(), &[])?;
        let mine = Data::copy(words.as_slice().into());
        let ranks: Vec<Rank> = (0..posts.len()).filter(|&rank| posts[rank].data.bytes() == mine.bytes()).collect();
        let group = colour.and_then(|_| self.group.subset(&ranks));
        Ok(group.map(|group| -> Box<dyn Communicator> {
            Box::new(Board { group, shared: posts[ranks[0]].room.clone(), stopper: Stopper::new() })
        }))
    }

    fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }
}
