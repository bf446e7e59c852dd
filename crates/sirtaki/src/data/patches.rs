//! Patches of pairs of volumes.
//!
//! The last tenth of each volume, along its longest axis, is to test with, in patches side by side. From the rest, patches are
//! drawn anew in every epoch, as many as have as many voxels as there are; each is turned and mirrored at random. What is
//! drawn follows from seed, epoch and number alone, so that any number of workers can go on anywhere. A sample has the
//! channels of the input, and the classes of its voxels behind them as one more.

use std::sync::Arc;

use super::{Pairs, Samples, Split};
use crate::{Error, Result, random::Stream};

/// One voxel in this many is to test with.
const TESTED: u64 = 10;
/// The most patches that are tested, evenly spread.
const MOST_TESTED: usize = 64;
/// The fewest patches of an epoch: those of a small volume would be over before anything is learned.
const LEAST: u64 = 64;

/// Patches to train with, or to test with.
#[derive(Debug, Clone)]
pub struct Patches {
    pairs: Arc<Pairs>,
    /// Along three axes.
    edges: [u64; 3],
    /// Channels, with the classes, and the edges.
    shape: [usize; 4],
    taken: Taken,
}

#[derive(Debug, Clone)]
enum Taken {
    /// At random, from these parts of the volumes.
    Drawn { seed: u64, count: usize, parts: Vec<Part> },
    /// From these places: the number of a pair, and a first voxel.
    Fixed(Vec<(usize, [u64; 3])>),
}

/// A part of a volume: the first voxel, and how many there are along each axis.
#[derive(Debug, Clone, Copy)]
struct Part {
    start: [u64; 3],
    size: [u64; 3],
}

impl Patches {
    /// Patches of this many voxels along each axis, or of as many as there are where a volume has fewer.
    pub fn split(pairs: Pairs, edge: usize, seed: u64) -> Result<Split<Patches>> {
        let mut edges = [edge as u64; 3];
        for pair in &pairs.pairs {
            let longest = longest(pair.sizes);
            for (axis, edge) in edges.iter_mut().enumerate() {
                // Along its longest axis, a volume has room for one to train with and one to test with.
                *edge = (*edge).min(if axis == longest { pair.sizes[axis] / 2 } else { pair.sizes[axis] });
            }
        }
        if edges.contains(&0) {
            let problem = "there is a volume of a single voxel, or patches of none were asked for";
            return Err(Error::setting(problem, "give larger volumes, and patches of at least one voxel"));
        }
        let (train, test): (Vec<Part>, Vec<Part>) = pairs.pairs.iter().map(|pair| divided(pair.sizes, edges)).unzip();
        let places: Vec<_> =
            test.iter().enumerate().flat_map(|(pair, part)| side_by_side(pair, *part, edges)).collect();
        let step = places.len().div_ceil(MOST_TESTED).max(1);
        let voxels: u64 = train.iter().map(|part| part.size.iter().product::<u64>()).sum();
        let count = (voxels / edges.iter().product::<u64>()).max(LEAST);
        let count = usize::try_from(count.min(u32::MAX.into())).unwrap_or(usize::MAX);
        let [depth, height, width] = edges.map(|edge| edge as usize);
        let shape = [pairs.channels() + 1, depth, height, width];
        let pairs = Arc::new(pairs);
        let patches = |taken| Patches { pairs: Arc::clone(&pairs), edges, shape, taken };
        Ok(Split {
            train: patches(Taken::Drawn { seed, count, parts: train }),
            test: patches(Taken::Fixed(places.into_iter().step_by(step).collect())),
        })
    }

    /// What they are taken from.
    pub fn pairs(&self) -> &Pairs {
        &self.pairs
    }

    /// A patch that was drawn: its pair, its first voxel and how it is turned.
    fn draw(&self, seed: u64, parts: &[Part], epoch: u64, index: usize) -> (usize, [u64; 3], Turn) {
        let mut stream = Stream::new("patch", &[seed, epoch, index as u64]);
        let voxels = |part: &Part| part.size.iter().product::<u64>();
        let mut place = stream.below(parts.iter().map(voxels).sum());
        let mut pair = 0;
        while pair + 1 < parts.len() && place >= voxels(&parts[pair]) {
            place -= voxels(&parts[pair]);
            pair += 1;
        }
        let Part { start, size } = parts[pair];
        let start = [0, 1, 2].map(|axis| start[axis] + stream.below(size[axis] - self.edges[axis] + 1));
        let scales = self.pairs.pairs[pair].scales;
        let alike = |one: usize, other: usize| {
            self.edges[one] == self.edges[other] && (scales[one] / scales[other] - 1.0).abs() < 1e-3
        };
        (pair, start, Turn::random(&mut stream, alike))
    }
}

impl Samples for Patches {
    fn count(&self) -> usize {
        match &self.taken {
            Taken::Drawn { count, .. } => *count,
            Taken::Fixed(places) => places.len(),
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn classes(&self) -> usize {
        self.pairs.classes()
    }

    fn read(&self, index: usize, values: &mut [f32]) -> Result<u32> {
        self.read_in(0, index, values)
    }

    /// Its label says nothing: every voxel has its own, among the values.
    fn read_in(&self, epoch: u64, index: usize, values: &mut [f32]) -> Result<u32> {
        if index >= self.count() || values.len() != self.shape.iter().product::<usize>() {
            let problem = format!("patch {index} of {} does not fit {} values", self.count(), values.len());
            return Err(Error::setting(problem, "ask for samples that there are, with room for exactly one"));
        }
        let (pair, start, turn) = match &self.taken {
            Taken::Drawn { seed, parts, .. } => self.draw(*seed, parts, epoch, index),
            Taken::Fixed(places) => (places[index].0, places[index].1, Turn::NONE),
        };
        let read = self.pairs.read(pair, start, self.edges)?;
        let edges = self.edges.map(|edge| edge as usize);
        let voxels = edges.iter().product();
        for (from, to) in read.chunks_exact(voxels).zip(values.chunks_exact_mut(voxels)) {
            turn.apply(edges, from, to);
        }
        Ok(0)
    }
}

/// The longest axis of a volume, the first of those that are equally long.
fn longest(sizes: [u64; 3]) -> usize {
    (0..3).rev().max_by_key(|axis| sizes[*axis]).unwrap_or(0)
}

/// What of a volume is to train with, and what to test with: at least a patch each.
fn divided(sizes: [u64; 3], edges: [u64; 3]) -> (Part, Part) {
    let axis = longest(sizes);
    let tested = (sizes[axis] / TESTED).max(edges[axis]);
    let (mut train, mut test) = (Part { start: [0; 3], size: sizes }, Part { start: [0; 3], size: sizes });
    train.size[axis] -= tested;
    (test.start[axis], test.size[axis]) = (train.size[axis], tested);
    (train, test)
}

/// Patches side by side; what is left over behind the last of them is in none.
fn side_by_side(pair: usize, part: Part, edges: [u64; 3]) -> impl Iterator<Item = (usize, [u64; 3])> {
    let [planes, lines, columns] = [0, 1, 2].map(|axis| part.size[axis] / edges[axis]);
    (0..planes * lines * columns).map(move |number| {
        let place = [number / columns / lines, number / columns % lines, number % columns];
        (pair, [0, 1, 2].map(|axis| part.start[axis] + place[axis] * edges[axis]))
    })
}

/// How a patch is turned and mirrored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// Which axis of what is read becomes each axis.
    from: [usize; 3],
    /// Whether it then goes backwards.
    backwards: [bool; 3],
}

impl Turn {
    const NONE: Self = Self { from: [0, 1, 2], backwards: [false; 3] };

    /// One of those that exchange only axes that are alike, all equally likely.
    fn random(stream: &mut Stream, alike: impl Fn(usize, usize) -> bool) -> Self {
        let mut from = [0, 1, 2];
        loop {
            stream.shuffle(&mut from);
            if (0..3).all(|axis| alike(axis, from[axis])) {
                return Self { from, backwards: [0; 3].map(|_| stream.below(2) == 1) };
            }
        }
    }

    fn apply(self, edges: [usize; 3], values: &[f32], turned: &mut [f32]) {
        let steps = [edges[1] * edges[2], edges[2], 1];
        let place = |axis: usize, place: usize| {
            let place = if self.backwards[axis] { edges[axis] - 1 - place } else { place };
            place * steps[self.from[axis]]
        };
        let mut turned = turned.iter_mut();
        for plane in 0..edges[0] {
            for line in 0..edges[1] {
                let begin = place(0, plane) + place(1, line);
                let row = turned.by_ref().take(edges[2]).enumerate();
                row.for_each(|(column, value)| *value = values[begin + place(2, column)]);
            }
        }
    }
}
