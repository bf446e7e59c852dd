//! The only place that writes to the terminal.
//!
//! Data goes to standard output, everything said about it to standard error, so that a pipe carries only data.
//! Colour only repeats what words or marks say; it is off without a terminal and with `NO_COLOR`. A terminal that can
//! only append (`TERM=dumb`) counts as none.

mod queue;

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use rustix::{fs::fstat, termios::tcgetwinsize};
use sirtaki_comm::CommError;
use sirtaki_engine::job::JobError;
use sirtaki_infer::InferError;
pub use sirtaki_launch::{Advice, protocol::Stream};

use self::queue::{Queue, Sink};

/// How a piece of text is shown where colours are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Style {
    Plain,
    Bold,
    Faint,
    Good,
    Warning,
    Bad,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Bold => "\x1b[1m",
            Style::Faint => "\x1b[2m",
            Style::Good => "\x1b[32m",
            Style::Warning => "\x1b[33m",
            Style::Bad => "\x1b[1;31m",
        }
    }
}

/// Columns and rows of the terminal, asked for whenever they matter: windows change.
type Size = Box<dyn Fn() -> (usize, usize) + Send>;

/// Where a stream goes.
struct Way {
    to: Sink,
    terminal: bool,
    colour: bool,
}

impl Way {
    fn new(to: impl Write + Send + 'static, terminal: bool, colour: bool) -> Self {
        Self { to: Box::new(to), terminal, colour: terminal && colour }
    }
}

/// Standard output and standard error, or what a test uses in their place.
pub struct Printer {
    out: Way,
    err: Way,
    size: Size,
    /// Whether a progress line is shown now.
    progress: bool,
    /// Whether both streams lead to the same place, where their order matters.
    together: bool,
    /// The queues that write while the printer itself does not.
    queues: Vec<Queue>,
}

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terminals = (self.out.terminal, self.err.terminal);
        f.debug_struct("Printer").field("terminals", &terminals).finish_non_exhaustive()
    }
}

impl Printer {
    /// The process's own output.
    pub fn terminal() -> Self {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let (out, err) = (io::stdout(), io::stderr());
        let (out_terminal, err_terminal) = (out.is_terminal() && !dumb, err.is_terminal() && !dumb);
        Self {
            out: Way::new(out, out_terminal, colour),
            err: Way::new(err, err_terminal, colour),
            size: Box::new(window),
            progress: false,
            together: same_place(),
            queues: Vec::new(),
        }
    }

    /// Output into two writers, without colours.
    pub fn plain(out: impl Write + Send + 'static, err: impl Write + Send + 'static) -> Self {
        let (out, err) = (Way::new(out, false, false), Way::new(err, false, false));
        Self { out, err, size: Box::new(|| FALLBACK), progress: false, together: false, queues: Vec::new() }
    }

    /// Output into two writers that lead to the same screen, of `size` columns and rows, in colour.
    pub fn screen(
        out: impl Write + Send + 'static,
        err: impl Write + Send + 'static,
        size: impl Fn() -> (usize, usize) + Send + 'static,
    ) -> Self {
        let (out, err) = (Way::new(out, true, true), Way::new(err, true, true));
        Self { out, err, size: Box::new(size), progress: false, together: true, queues: Vec::new() }
    }

    /// From now on, until [`Printer::attach`], separate threads write, so that nothing here waits for a reader.
    pub fn detach(&mut self) {
        let mut take = |way: fn(&mut Self) -> &mut Way| std::mem::replace(&mut way(self).to, Box::new(io::sink()));
        let (out, err) = (take(|printer| &mut printer.out), take(|printer| &mut printer.err));
        let groups = if self.together { vec![vec![out, err]] } else { vec![vec![out], vec![err]] };
        let (queues, entrances): (Vec<_>, Vec<_>) = groups.into_iter().map(Queue::start).unzip();
        self.queues = queues;
        self.put_back(entrances.into_iter().flatten());
    }

    /// Waits until everything is written, but no longer than `limit`; what has not been read by then is lost, and so is
    /// everything that follows it.
    pub fn attach(&mut self, limit: Option<Duration>) {
        let sinks: Vec<_> = self.queues.drain(..).map(|queue| queue.finish(limit)).collect();
        let missing = || vec![Box::new(io::sink()) as Sink];
        let sinks = sinks.into_iter().flat_map(|sinks| sinks.unwrap_or_else(missing));
        self.put_back(sinks.collect::<Vec<_>>().into_iter());
    }

    fn put_back(&mut self, mut sinks: impl Iterator<Item = Sink>) {
        for way in [&mut self.out, &mut self.err] {
            way.to = sinks.next().unwrap_or_else(|| Box::new(io::sink()));
        }
    }

    /// Whether so much waits to be read that nothing should be added.
    pub fn is_full(&self) -> bool {
        self.queues.iter().any(Queue::is_full)
    }

    /// Whether a reader is gone, as far as known.
    pub fn is_broken(&self) -> bool {
        self.queues.iter().any(Queue::is_broken)
    }

    /// Has this called whenever there is room again, and when a reader is gone.
    pub fn wake(&mut self, waker: impl Fn() + Clone + Send + 'static) {
        self.queues.iter().for_each(|queue| queue.wake(waker.clone()));
    }

    fn way(&mut self, stream: Stream) -> &mut Way {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        }
    }

    /// Whether `stream` leads to a terminal, where lines can be overwritten.
    pub fn is_terminal(&self, stream: Stream) -> bool {
        match stream {
            Stream::Out => self.out.terminal,
            Stream::Err => self.err.terminal,
        }
    }

    /// Whether colours are wanted on `stream`.
    pub fn has_colour(&self, stream: Stream) -> bool {
        match stream {
            Stream::Out => self.out.colour,
            Stream::Err => self.err.colour,
        }
    }

    /// Columns and rows of the terminal.
    pub fn size(&self) -> (usize, usize) {
        (self.size)()
    }

    /// Whole lines, or what moves on a terminal, in one call to the system, so that no other output comes in between.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        self.clear_progress();
        let way = self.way(stream);
        way.to.write_all(bytes)?;
        way.to.flush()
    }

    /// `text` for standard output, in colour if that is wanted there.
    pub fn paint(&self, style: Style, text: &str) -> String {
        paint(self.out.colour, style, text)
    }

    /// `text` for standard error, in colour if that is wanted there.
    pub fn paint_message(&self, style: Style, text: &str) -> String {
        paint(self.err.colour, style, text)
    }

    /// One line of data.
    pub fn data(&mut self, line: &str) -> io::Result<()> {
        self.clear_progress();
        writeln!(self.out.to, "{line}")
    }

    /// One line about the data. What cannot be written is lost; there is nowhere else to write it.
    pub fn message(&mut self, line: &str) {
        self.clear_progress();
        let _ = writeln!(self.err.to, "{line}");
    }

    /// A line that the next output replaces; does nothing unless standard error is a terminal.
    pub fn progress(&mut self, line: &str) {
        if self.err.terminal {
            let _ = write!(self.err.to, "\r\x1b[2K{line}");
            let _ = self.err.to.flush();
            self.progress = true;
        }
    }

    /// An error with its causes, and hints where one of them has any.
    pub fn error(&mut self, error: &anyhow::Error) {
        let mut text = error.to_string();
        for cause in error.chain().skip(1) {
            let cause = cause.to_string();
            if !text.ends_with(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        self.labelled(Style::Bad, "error:", &text);
        if let Some(hint) = hint(error) {
            self.labelled(Style::Bold, "hint:", &hint);
        }
    }

    /// A longer message with its kind. On a terminal, lines break between words; anywhere else, a message
    /// is one line, which can be searched for.
    pub fn labelled(&mut self, style: Style, label: &str, text: &str) {
        let text = match self.err.terminal {
            true => wrap(text, self.size().0, label.len() + 1),
            false => text.to_owned(),
        };
        let label = self.paint_message(style, label);
        self.message(&format!("{label} {text}"));
    }

    /// Output of clap: help and version are data, the rest is about the arguments.
    pub fn usage(&mut self, usage: &clap::Error) -> u8 {
        let text = usage.render();
        if usage.use_stderr() {
            let text = if self.err.colour { text.ansi().to_string() } else { text.to_string() };
            let text = match self.err.terminal {
                true => text.lines().map(|line| wrap(line, self.size().0, 0)).collect::<Vec<_>>().join("\n"),
                false => text,
            };
            self.message(text.trim_end());
            return 2;
        }
        let text = if self.out.colour { text.ansi().to_string() } else { text.to_string() };
        let _ = self.data(text.trim_end());
        0
    }

    fn clear_progress(&mut self) {
        if std::mem::take(&mut self.progress) {
            let _ = write!(self.err.to, "\r\x1b[2K");
        }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.clear_progress();
    }
}

/// Whether standard output and standard error are the same terminal, pipe or file.
fn same_place() -> bool {
    let place = |stat: rustix::io::Result<rustix::fs::Stat>| stat.map(|stat| (stat.st_dev, stat.st_ino)).ok();
    let (out, err) = (place(fstat(io::stdout())), place(fstat(io::stderr())));
    out.is_some() && out == err
}

/// The assumed size of a terminal that does not report one.
const FALLBACK: (usize, usize) = (80, 24);

/// Columns and rows of the terminal behind standard error or standard output.
fn window() -> (usize, usize) {
    let size = tcgetwinsize(io::stderr()).or_else(|_| tcgetwinsize(io::stdout()));
    match size {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => FALLBACK,
    }
}

fn paint(colour: bool, style: Style, text: &str) -> String {
    match style {
        Style::Plain => text.into(),
        _ if !colour => text.into(),
        _ => format!("{}{text}\x1b[0m", style.code()),
    }
}

/// Text in lines of at most `width` columns, broken between words; `indent` columns of each are already used.
fn wrap(text: &str, width: usize, indent: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let mut wrapped = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = visible(word);
        if column > 0 && column + 1 + length > room {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        // Existing line breaks are kept.
        column = word.rsplit_once('\n').map_or(column + length, |(_, last)| visible(last));
    }
    wrapped
}

/// Characters of a text without those that only colour it.
fn visible(text: &str) -> usize {
    let mut pieces = text.split('\x1b');
    let first = pieces.next().map_or(0, |piece| piece.chars().count());
    first + pieces.map(|piece| piece.split_once('m').map_or(0, |(_, rest)| rest.chars().count())).sum::<usize>()
}

/// What to do about an error, from the outermost cause that knows.
pub fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let advice = cause.downcast_ref::<Advice>().map(|advice| advice.hint.clone()).filter(|hint| !hint.is_empty());
        let job = || cause.downcast_ref::<JobError>()?.hint().map(Into::into);
        let infer = || cause.downcast_ref::<InferError>()?.hint().map(Into::into);
        advice.or_else(job).or_else(infer).or_else(|| cause.downcast_ref::<CommError>()?.hint().map(Into::into))
    })
}

#[cfg(test)]
mod tests;
