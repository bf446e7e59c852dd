//! Which tiles are needed, and who computes which one next.
//!
//! Tiles are ordered so that each is a neighbour of the one before: its halo then overlaps what was just read. Every worker
//! has a stretch of that order; one that is through with its own takes half of the longest stretch that is left. Nothing
//! here knows time or processes, so every course of events can be tested.

use std::{collections::VecDeque, ops::Range};

use super::{plan::Plan, region::Region};
use crate::VolumeError;

/// The numbers of all tiles of a plan that `is_wanted` accepts by their cores, each next to the one before where none is
/// left out.
pub fn ordered(
    plan: &Plan,
    mut is_wanted: impl FnMut(&Region) -> Result<bool, VolumeError>,
) -> Result<Vec<u64>, VolumeError> {
    let shape = plan.shape();
    let mut tiles = Vec::new();
    for step in 0..plan.tiles() {
        let tile = plan.tile_at(&snake(&shape, step));
        if is_wanted(&tile.core)? {
            tiles.push(tile.number);
        }
    }
    Ok(tiles)
}

/// The place of a step on a path that goes through the whole grid and turns round at its ends.
fn snake(shape: &[u64], step: u64) -> Vec<u64> {
    let mut rest = step;
    let mut place = vec![0; shape.len()];
    for (axis, &count) in shape.iter().enumerate().rev() {
        let at = rest % count;
        rest /= count;
        // Every other time, the axis is walked backwards.
        place[axis] = if rest.is_multiple_of(2) { at } else { count - 1 - at };
    }
    place
}

/// The tiles that are still to be done.
#[derive(Debug, Clone)]
pub struct Queue {
    tiles: Vec<u64>,
    /// Each worker's stretch of the order.
    stretches: Vec<Range<usize>>,
    /// Tiles of workers that were lost.
    returned: VecDeque<u64>,
    /// Tiles that are being computed, the oldest first, and by whom.
    under_way: Vec<(u64, Vec<usize>)>,
}

impl Queue {
    /// All of these tiles for so many workers, who are counted from 0.
    pub fn new(tiles: Vec<u64>, workers: usize) -> Self {
        let (count, workers) = (tiles.len(), workers.max(1));
        let cut = |worker: usize| count * worker / workers;
        let stretches = (0..workers).map(|worker| cut(worker)..cut(worker + 1)).collect();
        Self { tiles, stretches, returned: VecDeque::new(), under_way: Vec::new() }
    }

    /// The next tile for a worker; nothing once all are handed out, of which some may still be [under way](Self::left).
    pub fn next(&mut self, worker: usize) -> Option<u64> {
        if worker >= self.stretches.len() {
            self.stretches.resize(worker + 1, 0..0);
        }
        let tile = match self.returned.pop_front() {
            Some(tile) => tile,
            None => {
                if self.stretches[worker].is_empty() {
                    self.stretches[worker] = self.half_of_the_longest();
                }
                self.tiles[self.stretches[worker].next()?]
            }
        };
        self.under_way.push((tile, vec![worker]));
        Some(tile)
    }

    /// The oldest tile under way that one other worker alone computes: to be computed once more, because that worker may
    /// be slow or silent. Both give the same bits, so whoever is first wins.
    pub fn again(&mut self, worker: usize) -> Option<u64> {
        let (tile, workers) = self.under_way.iter_mut().find(|(_, by)| by.len() == 1 && by[0] != worker)?;
        workers.push(worker);
        Some(*tile)
    }

    /// A tile is done. Whether it was not so before.
    pub fn finish(&mut self, tile: u64) -> bool {
        let before = self.under_way.len();
        self.under_way.retain(|(other, _)| *other != tile);
        self.under_way.len() < before
    }

    /// A worker is lost. What it alone was computing is handed out again, first of all.
    pub fn lose(&mut self, worker: usize) {
        for (_, workers) in &mut self.under_way {
            workers.retain(|by| *by != worker);
        }
        let orphans = self.under_way.iter().filter(|(_, workers)| workers.is_empty());
        self.returned.extend(orphans.map(|(tile, _)| *tile));
        self.under_way.retain(|(_, workers)| !workers.is_empty());
    }

    /// How many tiles are not done: waiting, and under way.
    pub fn left(&self) -> (usize, usize) {
        let waiting = self.stretches.iter().map(Range::len).sum::<usize>() + self.returned.len();
        (waiting, self.under_way.len())
    }

    fn half_of_the_longest(&mut self) -> Range<usize> {
        let Some(longest) = self.stretches.iter_mut().max_by_key(|stretch| stretch.len()) else { return 0..0 };
        let middle = longest.end - longest.len().div_ceil(2);
        let half = middle..longest.end;
        longest.end = middle;
        half
    }
}
