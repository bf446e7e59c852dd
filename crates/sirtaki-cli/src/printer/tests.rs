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
