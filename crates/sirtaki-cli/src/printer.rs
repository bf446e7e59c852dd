//! The only place that writes to the terminal.
//!
//! Data goes to standard output, everything said about it to standard error, so that a pipe carries data alone.
//! Colour only repeats what words or marks say; it is off without a terminal and with `NO_COLOR`. A terminal that can
//! only append (`TERM=dumb`) counts as none.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
};

use rustix::termios::tcgetwinsize;
use serde::{Deserialize, Serialize};
use sirtaki_comm::CommError;
use sirtaki_engine::job::JobError;

/// One of the two ways out of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

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

/// An error with what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Advice {
    /// What went wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl Advice {
    /// An error that says what to do.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

/// Columns and rows of the terminal, asked for whenever they matter: windows change.
type Size = Box<dyn Fn() -> (usize, usize) + Send>;

/// Where a stream goes.
struct Way {
    to: Box<dyn Write + Send>,
    terminal: bool,
    colour: bool,
}

impl Way {
    fn new(to: impl Write + Send + 'static, terminal: bool, colour: bool) -> Self {
        Self { to: Box::new(to), terminal, colour: terminal && colour }
    }
}

/// Standard output and standard error, or what a test takes for them.
pub struct Printer {
    out: Way,
    err: Way,
    size: Size,
    /// Whether a progress line stands there now.
    progress: bool,
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
        }
    }

    /// Output into two writers, without colours.
    pub fn plain(out: impl Write + Send + 'static, err: impl Write + Send + 'static) -> Self {
        let (out, err) = (Way::new(out, false, false), Way::new(err, false, false));
        Self { out, err, size: Box::new(|| FALLBACK), progress: false }
    }

    /// Output into two writers that lead to the same screen, of `size` columns and rows, in colour.
    pub fn screen(
        out: impl Write + Send + 'static,
        err: impl Write + Send + 'static,
        size: impl Fn() -> (usize, usize) + Send + 'static,
    ) -> Self {
        let (out, err) = (Way::new(out, true, true), Way::new(err, true, true));
        Self { out, err, size: Box::new(size), progress: false }
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

    /// Whole lines, or what moves on a terminal, in one call to the system, so that nobody's bytes come between.
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

    /// One line about the data. What cannot be said is lost; there is nowhere else to say it.
    pub fn message(&mut self, line: &str) {
        self.clear_progress();
        let _ = writeln!(self.err.to, "{line}");
    }

    /// A line that the next output replaces; nothing unless standard error is a terminal.
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

    /// A message of some length with what kind it is. On a terminal, lines break between words; anywhere else, a message
    /// is one line, which can be searched for.
    pub fn labelled(&mut self, style: Style, label: &str, text: &str) {
        let text = match self.err.terminal {
            true => wrap(text, self.size().0, label.len() + 1),
            false => text.to_owned(),
        };
        let label = self.paint_message(style, label);
        self.message(&format!("{label} {text}"));
    }

    /// What clap has to say: help and version are data, the rest is about the arguments.
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

/// What a terminal that tells nothing is taken for.
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

/// Text in lines of at most `width` columns, broken between words; `indent` columns of each are taken.
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
        // What has lines of its own keeps them.
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
        let advice = cause.downcast_ref::<Advice>().map(|advice| advice.hint.clone());
        let job = || cause.downcast_ref::<JobError>()?.hint().map(Into::into);
        advice.or_else(job).or_else(|| cause.downcast_ref::<CommError>()?.hint().map(Into::into))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use anyhow::Context;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn data_and_messages_do_not_mix() {
        let (out, err) = (Shared::default(), Shared::default());
        let mut printer = Printer::plain(out.clone(), err.clone());
        printer.data("1").unwrap();
        printer.progress("half way");
        printer.message("about it");
        assert_eq!((out.text().as_str(), err.text().as_str()), ("1\n", "about it\n"));
    }

    #[test]
    fn an_error_shows_its_causes_once_and_the_hint_below() {
        let err = Shared::default();
        let mut printer = Printer::plain(Shared::default(), err.clone());
        let lost = CommError::PeerLost { rank: 1, who: "rank 1".into(), how: "its process ended".into() };
        let error = Err::<(), _>(lost).context("cannot measure").unwrap_err();
        printer.error(&error);
        let expected = "error: cannot measure: rank 1 is gone: its process ended\n\
                        hint: look at the output of that rank; the others only followed it\n";
        assert_eq!(err.text(), expected);
    }

    #[test]
    fn on_a_terminal_messages_break_between_words() {
        let err = Shared::default();
        let mut printer = Printer::screen(Shared::default(), err.clone(), || (30, 24));
        printer.labelled(Style::Plain, "hint:", "write the number, such as -n 4, and nothing else");
        assert_eq!(err.text(), "hint: write the number, such\n      as -n 4, and nothing\n      else\n");
        assert_eq!(wrap("a\nbc d", 80, 0), "a\nbc d");
        assert_eq!(wrap("\x1b[31mthirteen char\x1b[0m sevenths", 20, 0), "\x1b[31mthirteen char\x1b[0m\nsevenths");
    }

    #[test]
    fn colour_wraps_the_word_and_nothing_else() {
        assert_eq!(paint(true, Style::Bad, "error:"), "\x1b[1;31merror:\x1b[0m");
        assert_eq!(paint(false, Style::Bad, "error:"), "error:");
    }
}
