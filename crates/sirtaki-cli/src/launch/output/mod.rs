//! What many ranks write, on one terminal.
//!
//! Only whole lines are printed, each with its rank before it, standard output to standard output and standard error to
//! standard error. Rows that are still being written, such as progress bars, are shown in a block at the bottom of a
//! terminal; without a terminal, only their final state is printed. While there is a block, the screen changes at most
//! [twenty times a second](FRAME), lines above it and block together, so that it neither flickers nor costs time.
//!
//! # Layout
//!
//! - `scanner`: bytes to text, line ends, movements of the cursor and colours.
//! - `rows`: from these to lines, and to unfinished rows.
//! - `tag`, `cut`, `block`: how lines and rows look on a terminal.
//! - `folder`, `tail`: where else output goes: to files, and to the closing report.
//!
//! The clock comes in as an argument, and what is written goes through the [`Printer`].

mod block;
mod cut;
mod folder;
mod rows;
mod scanner;
mod tag;
mod tail;
#[cfg(test)]
mod tests;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use sirtaki_launch::roles::Cast;

use self::{
    block::Block,
    folder::Folder,
    rows::{OutputLine, Rows},
    tail::Tail,
};
pub use self::{folder::file_name, tag::Tag};
pub use crate::printer::Stream;
use crate::printer::{Printer, Style};

/// Time between two changes of a screen with a block.
pub const FRAME: Duration = Duration::from_millis(50);

/// A row that is unfinished for this long is shown, although it may be an ordinary line.
const PATIENCE: Duration = Duration::from_millis(200);

/// Most bytes of lines that wait for the next change of the screen.
const MOST: usize = 256 << 10;

/// What is to be shown, and how.
#[derive(Debug, Clone, Default)]
pub struct OutputOptions {
    /// What comes before each line.
    pub tag: Tag,
    /// Show no standard output of ranks, only their standard error and what the launcher itself says.
    pub quiet: bool,
    /// A file for every rank in this folder; only rank 0 and the standard error of the others are shown.
    pub folder: Option<PathBuf>,
    /// The host of each process.
    pub hosts: Vec<String>,
    /// Who they are, if not all of them are ranks.
    pub cast: Option<Cast>,
}

#[derive(Debug)]
struct Source {
    rows: Rows,
    /// When its unfinished row began.
    since: Option<Instant>,
}

#[derive(Debug)]
struct Rank {
    /// Standard output and standard error.
    sources: [Source; 2],
    tail: Tail,
}

/// Everything that ranks write comes here.
#[derive(Debug)]
pub struct Output<'a> {
    printer: &'a mut Printer,
    quiet: bool,
    /// By stream and rank.
    tags: [Vec<String>; 2],
    ranks: Vec<Rank>,
    folder: Option<Folder>,
    block: Block,
    /// Rows of the launcher itself, below all others.
    footer: Vec<String>,
    /// Lines that are not printed yet.
    waiting: Vec<(Stream, Vec<u8>)>,
    /// A row in the block has changed.
    changed: bool,
    /// The latest time that is known.
    now: Instant,
    /// When the screen was last brought up to date.
    shown: Instant,
    /// Standard output cannot be written to any more.
    broken: bool,
}

const STREAMS: [Stream; 2] = [Stream::Out, Stream::Err];

impl<'a> Output<'a> {
    /// Nothing is shown yet, but files that were asked for are created. Refuses a folder with files of another job.
    pub fn new(printer: &'a mut Printer, options: &OutputOptions, now: Instant) -> Result<Self> {
        let size = options.hosts.len();
        let cast = options.cast.unwrap_or(Cast::of_ranks(size));
        let folder = options.folder.as_ref().map(|path| Folder::create(path, cast)).transpose()?;
        let tags = STREAMS.map(|stream| {
            let tags = tag::tags(options.tag, &options.hosts, &cast).into_iter().enumerate();
            let colour = printer.has_colour(stream);
            tags.map(|(rank, text)| if colour { tag::colour(&text, rank) } else { text }).collect()
        });
        let source = |stream| Source { rows: Rows::new(printer.is_terminal(stream), rows::LIMIT), since: None };
        let ranks = (0..size).map(|_| Rank { sources: STREAMS.map(source), tail: Tail::default() }).collect();
        let mut output = Self {
            quiet: options.quiet,
            tags,
            ranks,
            folder,
            block: Block::default(),
            footer: Vec::new(),
            waiting: Vec::new(),
            changed: false,
            now,
            // The first change need not wait.
            shown: now.checked_sub(FRAME).unwrap_or(now),
            broken: false,
            printer,
        };
        if let Some(folder) = &output.folder {
            let shown = if output.quiet { "standard error is" } else { "rank 0 and standard error are" };
            let note = format!("output goes to {}; {shown} also shown here", folder.describe());
            output.note(&note);
        }
        Ok(output)
    }

    /// A rank wrote something. Ranks that do not exist are ignored.
    pub fn wrote(&mut self, now: Instant, rank: usize, stream: Stream, bytes: &[u8]) {
        if rank >= self.ranks.len() || bytes.is_empty() {
            return;
        }
        if let Some(Err(warning)) = self.folder.as_mut().map(|folder| folder.write(rank, bytes)) {
            self.note(&warning);
        }
        let shows_rows = self.printer.is_terminal(stream) && self.is_shown(rank, stream);
        let lines = self.take(rank, stream, |rows, line| rows.feed(bytes, line));
        let source = &mut self.ranks[rank].sources[stream as usize];
        source.since = match source.since {
            _ if !source.rows.is_unfinished() => None,
            Some(since) if lines == 0 => Some(since),
            _ => Some(now),
        };
        self.changed |= shows_rows;
        self.refresh(now);
    }

    /// A rank will write no more: what it left unfinished is finished.
    pub fn closed(&mut self, rank: usize) {
        if rank < self.ranks.len() {
            for stream in STREAMS {
                self.take(rank, stream, Rows::finish);
                self.ranks[rank].sources[stream as usize].since = None;
            }
            self.changed = true;
        }
    }

    /// Lines of the launcher itself, on standard error, at once.
    pub fn note(&mut self, text: &str) {
        let start = self.waiting.len();
        self.waiting.push((Stream::Err, Vec::with_capacity(text.len() + 1)));
        let bytes = &mut self.waiting[start].1;
        text.lines().for_each(|line| {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        });
        self.show();
    }

    /// Rows of the launcher itself, which are shown below all others if standard error is a terminal.
    pub fn set_footer(&mut self, now: Instant, rows: Vec<String>) {
        if self.footer != rows {
            self.footer = rows;
            self.changed = true;
            self.refresh(now);
        }
    }

    /// The rows of the launcher itself.
    #[cfg(test)]
    pub(crate) fn footer(&self) -> &[String] {
        &self.footer
    }

    /// Columns of the terminal.
    pub fn columns(&self) -> usize {
        self.printer.size().0
    }

    /// Text of the launcher itself, in colour if that is wanted.
    pub fn paint(&self, style: Style, text: &str) -> String {
        self.printer.paint_message(style, text)
    }

    /// Whether rows can be shown at the bottom.
    pub fn is_live(&self) -> bool {
        self.printer.is_terminal(Stream::Err)
    }

    /// Brings the screen up to date, if it is time. To be called at [`Output::next_refresh`].
    pub fn refresh(&mut self, now: Instant) {
        self.now = self.now.max(now);
        let bytes: usize = self.waiting.iter().map(|(_, bytes)| bytes.len()).sum();
        let still = self.block.is_empty() && self.footer.is_empty() && !self.has_rows();
        let due = still || bytes > MOST || self.now >= self.shown + FRAME;
        if due && !self.is_full() {
            self.show();
        }
    }

    /// When [`Output::refresh`] has something to do, unless something is written before.
    pub fn next_refresh(&self) -> Option<Instant> {
        if self.is_full() {
            return None;
        }
        if self.changed || !self.waiting.is_empty() {
            return Some(self.shown + FRAME);
        }
        let still = self.visible().filter(|(_, _, source)| !source.rows.is_live());
        still.filter_map(|(_, _, source)| Some(source.since? + PATIENCE)).filter(|&due| due > self.shown).min()
    }

    /// The last lines of a rank, without colours, for the closing report.
    pub fn last_lines(&self, rank: usize) -> Vec<String> {
        let Some(rank) = self.ranks.get(rank) else { return Vec::new() };
        rank.tail.lines(rank.sources.iter().flat_map(|source| source.rows.unfinished()))
    }

    /// Whether output cannot be written any more, often because its reader has closed it.
    pub fn is_broken(&self) -> bool {
        self.broken || self.printer.is_broken()
    }

    /// Whether so much output waits to be read that ranks should pause writing.
    pub fn is_full(&self) -> bool {
        self.printer.is_full()
    }

    /// Has this called whenever there is room again, and when a reader is gone.
    pub fn wake(&mut self, waker: impl Fn() + Clone + Send + 'static) {
        self.printer.wake(waker);
    }

    /// All ranks are closed and everything is printed; the block is gone.
    pub fn finish(&mut self) {
        (0..self.ranks.len()).for_each(|rank| self.closed(rank));
        self.footer.clear();
        self.show();
    }

    /// Takes the lines that `give` makes of a rank's rows, and says how many there were.
    fn take(&mut self, rank: usize, stream: Stream, give: impl FnOnce(&mut Rows, &mut dyn FnMut(OutputLine))) -> usize {
        let shown = self.is_shown(rank, stream);
        let terminal = self.printer.is_terminal(stream);
        let tag = &self.tags[stream as usize][rank];
        let Rank { sources, tail } = &mut self.ranks[rank];
        let (mut text, mut lines) = (Vec::new(), 0);
        give(&mut sources[stream as usize].rows, &mut |line| {
            lines += 1;
            tail.push(&line.bytes);
            if shown {
                text.extend_from_slice(tag.as_bytes());
                text.extend_from_slice(&line.bytes);
                if terminal && line.bytes.contains(&0x1b) {
                    text.extend_from_slice(b"\x1b[0m");
                }
                text.extend_from_slice(if line.goes_on { "…\n" } else { "\n" }.as_bytes());
            }
        });
        match self.waiting.last_mut() {
            _ if text.is_empty() => {}
            Some((last, bytes)) if *last == stream => bytes.append(&mut text),
            _ => self.waiting.push((stream, text)),
        }
        lines
    }

    fn is_shown(&self, rank: usize, stream: Stream) -> bool {
        stream == Stream::Err || !self.quiet && (self.folder.is_none() || rank == 0)
    }

    /// Whatever may have rows in the block.
    fn visible(&self) -> impl Iterator<Item = (usize, Stream, &Source)> {
        let all = self.ranks.iter().enumerate();
        let all = all.flat_map(|(rank, state)| STREAMS.map(|stream| (rank, stream, &state.sources[stream as usize])));
        all.filter(|&(rank, stream, _)| self.printer.is_terminal(stream) && self.is_shown(rank, stream))
    }

    /// Whatever has rows in the block now.
    fn with_rows(&self) -> impl Iterator<Item = (usize, Stream, &Source)> {
        let old = |since: Option<Instant>| since.is_some_and(|since| self.now >= since + PATIENCE);
        self.visible().filter(move |(_, _, source)| source.rows.is_live() || old(source.since))
    }

    fn has_rows(&self) -> bool {
        self.with_rows().next().is_some()
    }

    /// The block as it should be in a window of that size.
    fn rows(&self, (columns, height): (usize, usize)) -> Vec<(String, usize)> {
        let rows: Vec<(&str, &[u8])> = self
            .with_rows()
            .map(|(rank, stream, source)| (self.tags[stream as usize][rank].as_str(), source))
            .flat_map(|(tag, source)| source.rows.unfinished().map(move |row| (tag, row)))
            .collect();
        let footer = if self.is_live() { self.footer.as_slice() } else { &[] };
        let (rows, more) = block::fit(rows, height.saturating_sub(2 * footer.len()));
        let more = (more > 0).then(|| format!("… and {more} more"));
        // The last column stays free: some terminals wrap as soon as it is filled.
        let cut = |row: &[u8]| cut::cut(row, columns.saturating_sub(1));
        let rows = rows.into_iter().map(|(tag, row)| cut(&[tag.as_bytes(), row].concat()));
        rows.chain(more.map(|more| cut(more.as_bytes()))).chain(footer.iter().map(|row| cut(row.as_bytes()))).collect()
    }

    /// Brings the screen up to date now.
    fn show(&mut self) {
        (self.shown, self.changed) = (self.now, false);
        let mut writes = std::mem::take(&mut self.waiting);
        if let Some(bottom) = [Stream::Err, Stream::Out].into_iter().find(|&way| self.printer.is_terminal(way)) {
            let size = self.printer.size();
            let rows = self.rows(size);
            if !self.block.shows(&rows) || writes.iter().any(|(stream, _)| self.printer.is_terminal(*stream)) {
                writes.insert(0, (bottom, self.block.erase(size.0).into_bytes()));
                writes.push((bottom, self.block.draw(rows).into_bytes()));
            }
        }
        writes.retain(|(_, bytes)| !bytes.is_empty());
        for group in writes.chunk_by(|one, other| one.0 == other.0) {
            let bytes: Vec<u8> = group.iter().flat_map(|(_, bytes)| bytes).copied().collect();
            let result = self.printer.write(group[0].0, &bytes);
            // What cannot be written to standard error is lost; there is nowhere else to write it.
            self.broken |= group[0].0 == Stream::Out && result.is_err();
        }
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}
