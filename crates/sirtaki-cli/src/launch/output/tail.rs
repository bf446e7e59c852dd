//! The last lines of a rank, for the closing report.

use std::collections::VecDeque;

use super::cut;

/// How many lines are kept.
const LINES: usize = 20;

/// Most columns of a line that are kept.
const COLUMNS: usize = 400;

/// The last lines of both streams, in the order in which they came, as text that is safe to show anywhere.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: VecDeque<Vec<u8>>,
}

impl Tail {
    pub(super) fn push(&mut self, line: &[u8]) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        // Attributes take bytes but no columns; no ordinary line has more than this.
        self.lines.push_back(line[..line.len().min(8 * COLUMNS)].to_vec());
    }

    /// The last lines, followed by `unfinished` rows.
    pub(super) fn lines<'a>(&'a self, unfinished: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
        let all: Vec<&[u8]> = self.lines.iter().map(Vec::as_slice).chain(unfinished).collect();
        let last = &all[all.len().saturating_sub(LINES)..];
        last.iter().map(|line| cut::text(line, COLUMNS).trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_no_more() {
        let mut tail = Tail::default();
        for number in 0..100 {
            tail.push(format!("\x1b[1mline {number}\x1b[0m  ").as_bytes());
            tail.push(&[b'x'; 100_000]);
        }
        assert!(tail.lines.iter().map(Vec::capacity).sum::<usize>() <= LINES * 8 * COLUMNS);
        let lines = tail.lines([b"50%".as_slice()].into_iter());
        assert_eq!((lines.len(), lines[17].as_str(), lines[19].as_str()), (LINES, "line 99", "50%"));
        assert_eq!(lines[18], "x".repeat(COLUMNS));
    }
}
