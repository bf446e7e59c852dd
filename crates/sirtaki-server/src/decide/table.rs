//! Tables of rows, cut into blocks of at most 256 KiB.
//!
//! A dense tensor is a table with rows of one element, an embedding one with a row for each word. A block is a number of
//! whole neighbouring rows, and everything else is about blocks: who has them, what was pushed to them, what is copied.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::ring::mix;
use crate::rule::RuleSpec;

/// Most elements of a block: 256 KiB of `f32`.
pub const BLOCK: usize = 64 << 10;
/// Most elements of a table.
pub const ELEMENTS: u64 = 1 << 40;

/// A table of `f32`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableSpec {
    /// What it is called; the same for all workers.
    pub name: String,
    /// How many rows there are.
    pub rows: u64,
    /// How many elements a row has, at most [`BLOCK`].
    pub width: u32,
    /// How pushes change it.
    pub rule: RuleSpec,
}

/// A block of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// What the table's name hashes to.
    pub table: u64,
    /// Its place in the table.
    pub number: u32,
}

impl BlockId {
    /// Its place on the ring.
    pub fn key(self) -> u64 {
        mix(self.table ^ mix(u64::from(self.number)))
    }
}

impl TableSpec {
    /// What is wrong with it.
    pub fn problem(&self) -> Option<String> {
        let Self { name, rows, width, .. } = self;
        if *rows == 0 || *width == 0 || *width as usize > BLOCK {
            return Some(format!("table `{name}`: {rows} rows of {width} elements; a row has 1 to {BLOCK}"));
        }
        let elements = rows.checked_mul(u64::from(*width));
        elements.is_none_or(|elements| elements > ELEMENTS).then(|| format!("table `{name}` is too large"))
    }

    /// What its blocks are known by.
    pub fn id(&self) -> u64 {
        self.name.bytes().fold(mix(0), |id, byte| mix(id ^ u64::from(byte)))
    }

    /// Rows of every block but the last.
    pub fn rows_per_block(&self) -> u64 {
        (BLOCK / self.width as usize) as u64
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> u32 {
        self.rows.div_ceil(self.rows_per_block()) as u32
    }

    /// The rows of a block.
    pub fn block_rows(&self, number: u32) -> Range<u64> {
        let start = u64::from(number) * self.rows_per_block();
        start.min(self.rows)..(start + self.rows_per_block()).min(self.rows)
    }

    /// A block by its number.
    pub fn block(&self, number: u32) -> BlockId {
        BlockId { table: self.id(), number }
    }
}

/// Some rows of a table or a block, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rows {
    /// Neighbours.
    Range(Range<u64>),
    /// These: the distance of each to the one before, of the first to zero. Small numbers take one byte on the wire.
    Steps(Vec<u32>),
}

impl Rows {
    /// These rows, which ascend; `None` if they do not.
    pub fn some(rows: &[u64]) -> Option<Self> {
        let mut last = 0;
        let step = |(place, &row): (usize, &u64)| {
            let step = row.checked_sub(last).filter(|&step| step > 0 || place == 0)?;
            last = row;
            u32::try_from(step).ok()
        };
        rows.iter().enumerate().map(step).collect::<Option<Vec<u32>>>().map(Rows::Steps)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Rows::Range(range) => usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX),
            Rows::Steps(steps) => steps.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their numbers.
    pub fn iter(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Rows::Range(range) => Box::new(range.clone()),
            Rows::Steps(steps) => Box::new(steps.iter().scan(0_u64, |row, &step| {
                *row += u64::from(step);
                Some(*row)
            })),
        }
    }

    /// Whether all of them are below `rows`, and ascend.
    pub fn fit(&self, rows: u64) -> bool {
        match self {
            Rows::Range(range) => range.start <= range.end && range.end <= rows,
            Rows::Steps(steps) => {
                steps.iter().skip(1).all(|&step| step > 0) && self.iter().last().is_none_or(|row| row < rows)
            }
        }
    }

    /// What of them lies in each block of a table, by rows of the block.
    pub fn by_block(&self, table: &TableSpec) -> Vec<(u32, Rows)> {
        let per_block = table.rows_per_block();
        match self {
            Rows::Range(range) if range.is_empty() => Vec::new(),
            Rows::Range(range) => (range.start / per_block..=(range.end - 1) / per_block)
                .map(|number| {
                    let start = number * per_block;
                    let rows = range.start.max(start) - start..range.end.min(start + per_block) - start;
                    (number as u32, Rows::Range(rows))
                })
                .collect(),
            Rows::Steps(_) => {
                let all: Vec<u64> = self.iter().collect();
                let runs = all.chunk_by(|one, other| one / per_block == other / per_block);
                let cut = |run: &[u64]| {
                    let number = run[0] / per_block;
                    let rows: Vec<u64> = run.iter().map(|row| row - number * per_block).collect();
                    Some((number as u32, Rows::some(&rows)?))
                };
                runs.filter_map(cut).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: u64, width: u32) -> TableSpec {
        TableSpec { name: "words".into(), rows, width, rule: RuleSpec::sgd() }
    }

    #[test]
    fn blocks_hold_at_most_256_kib_of_whole_rows() {
        let table = table(100_000, 100);
        assert_eq!(table.rows_per_block(), 655);
        assert_eq!(table.blocks(), 153);
        assert_eq!(table.block_rows(152), 99_560..100_000);
        assert!(self::table(3, 65_537).problem().is_some_and(|problem| problem.contains("1 to 65536")));
        assert!(self::table(u64::MAX, 2).problem().is_some());
        assert!(self::table(0, 2).problem().is_some());
    }

    #[test]
    fn rows_ascend() {
        assert_eq!(Rows::some(&[3, 1]), None);
        assert_eq!(Rows::some(&[3, 3]), None);
        assert!(!Rows::Steps(vec![1, 0]).fit(9));
        assert!(Rows::Steps(vec![0, 1]).fit(2) && !Rows::Steps(vec![0, 2]).fit(2));
        assert!(!Rows::Range(Range { start: 3, end: 2 }).fit(9));
    }

    proptest! {
        #[test]
        fn blocks_have_every_row_once(rows in prop::collection::btree_set(0_u64..400_000, 0..60), start in 0_u64..400_000, count in 0_u64..300_000) {
            let table = table(700_000, 7);
            let rows: Vec<u64> = rows.into_iter().collect();
            for some in [Rows::some(&rows).unwrap(), Rows::Range(start..start + count)] {
                prop_assert!(some.fit(table.rows));
                let back: Vec<u64> = some
                    .by_block(&table)
                    .iter()
                    .flat_map(|(number, rows)| {
                        assert!(rows.fit(table.block_rows(*number).end - table.block_rows(*number).start));
                        let start = table.block_rows(*number).start;
                        rows.iter().map(move |row| start + row).collect::<Vec<_>>()
                    })
                    .collect();
                prop_assert_eq!(back, some.iter().collect::<Vec<_>>());
            }
        }
    }
}
