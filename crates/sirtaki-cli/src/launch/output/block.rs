//! The rows at the bottom of a terminal that are redrawn again and again.
//!
//! They take at most half of the window. The cursor rests at the end of the last one, and all of them are erased before
//! anything else is printed, so that only whole lines scroll by above.

/// The rows on the screen.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The text of each row, and how many columns it takes.
    drawn: Vec<(String, usize)>,
}

impl Block {
    /// Whether there are no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.drawn.is_empty()
    }

    /// Whether drawing `rows` would change nothing.
    pub(super) fn shows(&self, rows: &[(String, usize)]) -> bool {
        self.drawn == rows
    }

    /// What erases the block in a window of `columns`. If the window has become narrower, the terminal has wrapped the
    /// rows.
    pub(super) fn erase(&mut self, columns: usize) -> String {
        let lines: usize = self.drawn.drain(..).map(|(_, used)| used.div_ceil(columns.max(1)).max(1)).sum();
        match lines {
            0 => String::new(),
            1 => "\r\x1b[J".into(),
            _ => format!("\r\x1b[{}A\x1b[J", lines - 1),
        }
    }

    /// What draws `rows`; the place must be empty.
    pub(super) fn draw(&mut self, rows: Vec<(String, usize)>) -> String {
        self.drawn = rows;
        let texts: Vec<&str> = self.drawn.iter().map(|(text, _)| text.as_str()).collect();
        texts.join("\n")
    }
}

/// As many of `rows` as fit into half a window of `height` rows, and how many others there are.
pub(super) fn fit<T>(mut rows: Vec<T>, height: usize) -> (Vec<T>, usize) {
    let room = (height / 2).max(1);
    if rows.len() <= room {
        return (rows, 0);
    }
    let more = rows.split_off(room - 1).len();
    (rows, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_window_is_left() {
        assert_eq!(fit(vec![1, 2, 3], 6), (vec![1, 2, 3], 0));
        assert_eq!(fit(vec![1, 2, 3, 4], 6), (vec![1, 2], 2));
        assert_eq!(fit(vec![1, 2], 1), (vec![], 2));
    }

    #[test]
    fn what_was_wrapped_is_erased_too() {
        let mut block = Block::default();
        assert_eq!(block.erase(80), "");
        assert_eq!(block.draw(vec![("a".into(), 1), ("b".repeat(30), 30)]), format!("a\n{}", "b".repeat(30)));
        assert_eq!(block.erase(20), "\r\x1b[2A\x1b[J");
        assert!(block.is_empty());
    }
}
