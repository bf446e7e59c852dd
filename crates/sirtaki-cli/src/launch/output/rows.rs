//! One stream of one rank as lines, and the rows that are still being written.
//!
//! A row is finished by a line end. Until then it may be overwritten after a carriage return, as progress bars do, and
//! only its last state counts. Programs with several bars go up to earlier rows again; so after an upward movement as many
//! rows are kept open as it went over, until line ends show that the cursor will not come back. Text after a return
//! replaces the row as a whole: bars write their full width, and columns cannot be known without the width of a
//! terminal.

use std::collections::VecDeque;

use super::scanner::{Scanner, Token};

/// Most bytes of unfinished rows; beyond it a piece becomes a line.
pub(super) const LIMIT: usize = 64 << 10;

/// Most rows that are open at a time.
const MOST: usize = 16;

/// Most bytes of colours and attributes that are carried over to the next row.
const LOOKS: usize = 128;

/// A finished line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutputLine {
    /// Without its end.
    pub(super) bytes: Vec<u8>,
    /// It was too long, and the next line is its continuation.
    pub(super) goes_on: bool,
}

#[derive(Debug, Default)]
struct Row {
    bytes: Vec<u8>,
    /// The cursor went back: the next text replaces the row.
    returned: bool,
    /// Attributes that came since then; they do not change the existing text.
    after: Vec<u8>,
    /// It is meant to be overwritten.
    live: bool,
    /// The cursor came by on its way up or started from below: one of several bars, and not a line while it is blank.
    bar: bool,
}

impl Row {
    fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.append(&mut self.after);
        self.bytes
    }
}

/// Unfinished rows of a stream.
#[derive(Debug)]
pub(super) struct Rows {
    scanner: Scanner,
    page: Page,
}

#[derive(Debug)]
struct Page {
    rows: VecDeque<Row>,
    /// The row of the cursor.
    at: usize,
    /// How many rows above the lowest one may be returned to.
    reach: usize,
    /// New rows begun since the cursor last went up.
    falls: usize,
    /// For a terminal: obey what is understood and drop the rest. Otherwise it is passed on.
    terminal: bool,
    /// The attributes in effect, with which the next row begins on a terminal.
    looks: Vec<u8>,
    limit: usize,
}

impl Rows {
    pub(super) fn new(terminal: bool, limit: usize) -> Self {
        let rows = VecDeque::from([Row::default()]);
        let page = Page { rows, at: 0, reach: 0, falls: 0, terminal, looks: Vec::new(), limit };
        Self { scanner: Scanner::new(), page }
    }

    /// Takes `bytes` and gives the lines they finish.
    pub(super) fn feed(&mut self, bytes: &[u8], line: &mut dyn FnMut(OutputLine)) {
        let Self { scanner, page } = self;
        scanner.feed(bytes, &mut |token| page.take(token, line));
    }

    /// The stream has ended: its rows are finished.
    pub(super) fn finish(&mut self, line: &mut dyn FnMut(OutputLine)) {
        let Self { scanner, page } = self;
        scanner.finish(&mut |token| page.take(token, line));
        let wiped = |row: &Row| row.live && is_blank(&row.bytes);
        for row in page.rows.drain(..).filter(|row| !row.bytes.is_empty() && !wiped(row)) {
            line(OutputLine { bytes: row.into_bytes(), goes_on: false });
        }
        *self = Self::new(page.terminal, page.limit);
    }

    /// Whether an unfinished row has any text.
    pub(super) fn is_unfinished(&self) -> bool {
        self.page.rows.iter().any(|row| !is_blank(&row.bytes))
    }

    /// Whether an unfinished row is meant to be overwritten.
    pub(super) fn is_live(&self) -> bool {
        self.page.rows.iter().any(|row| row.live && !is_blank(&row.bytes))
    }

    /// The unfinished rows that have any text.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &[u8]> {
        self.page.rows.iter().map(|row| row.bytes.as_slice()).filter(|bytes| !is_blank(bytes))
    }
}

impl Page {
    fn take(&mut self, token: Token<'_>, line: &mut dyn FnMut(OutputLine)) {
        match token {
            Token::Text(bytes) => self.write(bytes, line),
            Token::Newline => self.newline(line),
            Token::Return => {
                let row = &mut self.rows[self.at];
                (row.returned, row.live) = (true, true);
            }
            Token::Up(count) => self.up(count),
            Token::Down(count) => {
                self.at = (self.at + count.min(MOST)).min(self.rows.len() - 1);
                self.rows[self.at].returned = true;
            }
            Token::Erase { all } => {
                let row = &mut self.rows[self.at];
                if all || row.returned {
                    row.bytes.clear();
                }
            }
            Token::Look(bytes) => {
                self.write_unseen(bytes, line);
                self.remember(bytes);
            }
            Token::Other(bytes) if !self.terminal => self.write_unseen(bytes, line),
            Token::Other(_) => {}
        }
    }

    /// Text at the cursor.
    fn write(&mut self, mut bytes: &[u8], line: &mut dyn FnMut(OutputLine)) {
        while !bytes.is_empty() {
            let row = &mut self.rows[self.at];
            if std::mem::take(&mut row.returned) {
                row.bytes.clear();
                row.bytes.append(&mut row.after);
            }
            self.begin();
            let total: usize = self.rows.iter().map(|row| row.bytes.len()).sum();
            let (now, later) = bytes.split_at(bytes.len().min(self.limit.saturating_sub(total).max(1)));
            self.rows[self.at].bytes.extend_from_slice(now);
            bytes = later;
            if total + now.len() >= self.limit {
                self.spill(line);
            }
        }
    }

    /// Bytes that show nothing: after a return they wait for the text that replaces the row.
    fn write_unseen(&mut self, bytes: &[u8], line: &mut dyn FnMut(OutputLine)) {
        let row = &mut self.rows[self.at];
        if !row.returned {
            self.begin();
            return self.write(bytes, line);
        }
        // On a terminal, the next text begins with all attributes in effect anyway.
        if !self.terminal && row.after.len() + bytes.len() <= LOOKS {
            row.after.extend_from_slice(bytes);
        }
    }

    /// On a terminal a row begins with the attributes in effect, since each line is reset at its end.
    fn begin(&mut self) {
        let row = &mut self.rows[self.at];
        if self.terminal && row.bytes.is_empty() {
            row.bytes.extend_from_slice(&self.looks);
        }
    }

    fn newline(&mut self, line: &mut dyn FnMut(OutputLine)) {
        self.rows[self.at].returned = true;
        self.at += 1;
        if self.at < self.rows.len() {
            self.rows[self.at].returned = true;
            return;
        }
        self.rows.push_back(Row::default());
        self.falls += 1;
        if self.falls > self.reach {
            self.reach = 0;
        }
        while self.at > self.reach {
            self.finish_first(line);
        }
    }

    fn up(&mut self, count: usize) {
        self.falls = 0;
        for _ in 0..count.min(MOST) {
            if self.at > 0 {
                self.at -= 1;
            } else if self.rows.len() < MOST {
                self.rows.push_front(Row::default());
            }
        }
        self.rows.iter_mut().for_each(|row| (row.live, row.bar) = (true, true));
        self.rows[self.at].returned = true;
        self.reach = self.reach.max(self.rows.len() - 1 - self.at);
    }

    fn finish_first(&mut self, line: &mut dyn FnMut(OutputLine)) {
        self.at -= 1;
        if let Some(row) = self.rows.pop_front()
            && !(row.bar && is_blank(&row.bytes))
        {
            line(OutputLine { bytes: row.into_bytes(), goes_on: false });
        }
    }

    /// There is too much for a row, or for bars: it becomes lines, and the row of the cursor goes on in a new one.
    fn spill(&mut self, line: &mut dyn FnMut(OutputLine)) {
        let mut next = Row::default();
        for (number, mut row) in std::mem::take(&mut self.rows).into_iter().enumerate() {
            let goes_on = number == self.at;
            if goes_on {
                next.bytes = row.bytes.split_off(whole_characters(&row.bytes));
            }
            if goes_on || !is_blank(&row.bytes) {
                line(OutputLine { bytes: row.into_bytes(), goes_on });
            }
        }
        self.rows.push_back(next);
        (self.at, self.reach) = (0, 0);
    }

    fn remember(&mut self, look: &[u8]) {
        if matches!(look, b"\x1b[m" | b"\x1b[0m") {
            self.looks.clear();
        } else {
            if self.looks.len() + look.len() > LOOKS {
                self.looks.clear();
            }
            self.looks.extend_from_slice(look);
        }
    }
}

/// Where to cut so that no character is broken, as far as these bytes are characters.
fn whole_characters(bytes: &[u8]) -> usize {
    let end = bytes.len();
    let start = (end.saturating_sub(3)..end).rev().find(|&at| bytes[at] & 0xc0 != 0x80).unwrap_or(end);
    let length = match bytes.get(start) {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    if start + length > end && start > 0 { start } else { end }
}

/// Whether nothing can be seen there.
fn is_blank(bytes: &[u8]) -> bool {
    if bytes.first().is_some_and(u8::is_ascii_graphic) {
        return false;
    }
    let mut blank = true;
    let mut scanner = Scanner::new();
    let mut token = |token: Token<'_>| {
        if let Token::Text(text) = token {
            blank &= text.trim_ascii().is_empty();
        }
    };
    scanner.feed(bytes, &mut token);
    scanner.finish(&mut token);
    blank
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
