//! Which tiles are done: as a row of signs while they are computed, and as a picture of who computed which.

use std::collections::BTreeMap;

use sirtaki_infer::Job;
use sirtaki_volume::{grid::plan::Plan, ledger};

use crate::plot::{CellPanel, Cells};

/// The most signs of a row, and the fewest that are worth showing.
const SIGNS: (usize, usize) = (30, 6);
/// The most layers of tiles in a picture, and tiles of a layer along an axis; of more, some are left out.
const LAYERS: u64 = 12;
const EDGE: u64 = 64;
/// The most workers that are told apart.
const WORKERS: usize = 12;

/// The tiles that are needed, by their place in the volume.
#[derive(Debug)]
pub(super) struct TileMap {
    tiles: Vec<u64>,
}

impl TileMap {
    pub(super) fn new(mut tiles: Vec<u64>) -> Self {
        tiles.sort_unstable();
        Self { tiles }
    }

    /// As many signs as there is room for: what is done, done in part, and not begun, from the first layer of tiles to the
    /// last.
    pub(super) fn row<T>(&self, done: &BTreeMap<u64, T>, room: usize) -> Option<String> {
        let signs = room.min(SIGNS.0).min(self.tiles.len());
        if signs < SIGNS.1 {
            return None;
        }
        let sign = |number: usize| {
            let part = &self.tiles[number * self.tiles.len() / signs..(number + 1) * self.tiles.len() / signs];
            match part.iter().filter(|tile| done.contains_key(tile)).count() {
                0 => '·',
                count if count == part.len() => '█',
                _ => '▒',
            }
        };
        Some((0..signs).map(sign).collect())
    }
}

/// Who computed which tile, in layers along the first axis.
pub(super) fn picture(job: &Job, plan: &Plan, done: &BTreeMap<u64, ledger::Done>, axis: &str) -> Cells {
    let shape = plan.shape();
    let [layers, lines, columns] = match shape.as_slice() {
        [lines, columns] => [1, *lines, *columns],
        shape => std::array::from_fn(|axis| shape.get(axis).copied().unwrap_or(1)),
    };
    let mut names: Vec<String> = done.range(..plan.tiles()).map(|(_, done)| done.by.clone()).collect();
    names.sort();
    names.dedup();
    let kind = |by: &String| names.iter().position(|name| name == by).map(|kind| kind.min(WORKERS - 1));
    let some = |all: u64, most: u64| (0..all).step_by(all.div_ceil(most).max(1) as usize);
    let cell = |layer: u64, line: u64, column: u64| {
        let place = if shape.len() == 2 { vec![line, column] } else { vec![layer, line, column] };
        done.get(&plan.number(&place)).and_then(|done| kind(&done.by))
    };
    let panel = |layer: u64| CellPanel {
        name: if shape.len() == 2 {
            String::new()
        } else {
            format!("{axis} from {}", layer * job.spec.core.sizes()[0])
        },
        rows: some(lines, EDGE)
            .map(|line| some(columns, EDGE).map(|column| cell(layer, line, column)).collect())
            .collect(),
    };
    let panels = some(layers, LAYERS).map(panel).collect();
    if names.len() > WORKERS {
        names.truncate(WORKERS);
        names[WORKERS - 1] = "all others".to_owned();
    }
    Cells { title: "Who computed which tile".to_owned(), panels, names }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_is_done() {
        let map = TileMap::new((0..24).rev().collect());
        let done: BTreeMap<u64, ()> = (0..10).map(|tile| (tile, ())).collect();
        assert_eq!(map.row(&done, 12).as_deref(), Some("█████·······"));
        assert_eq!(map.row(&done, 8).as_deref(), Some("███▒····"));
        assert_eq!(map.row(&done, 100).map(|row| row.chars().count()), Some(24));
        assert_eq!(map.row(&done, 5), None);
        assert_eq!(TileMap::new(vec![3, 7]).row(&done, 80), None, "a number says as much");
    }
}
