use std::{
    collections::VecDeque,
    io::{self, Write},
    num::NonZero,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;

use super::*;

/// A terminal that both streams lead to; line ends are converted as by the kernel.
#[derive(Clone)]
struct Screen(Arc<Mutex<vt100::Parser>>);

impl Screen {
    fn new(columns: u16, height: u16) -> Self {
        let number = |size| NonZero::new(size).unwrap();
        Self(Arc::new(Mutex::new(vt100::Parser::new(number(height), number(columns), 0))))
    }

    fn printer(&self) -> Printer {
        let size = self.clone();
        Printer::screen(self.clone(), self.clone(), move || {
            let (height, columns) = size.0.lock().unwrap().screen().size();
            (columns.get().into(), height.get().into())
        })
    }

    /// What a person sees.
    fn text(&self) -> String {
        self.0.lock().unwrap().screen().contents()
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text: Vec<u8> = bytes.split_inclusive(|&byte| byte == b'\n').fold(Vec::new(), |mut text, line| {
            match line.strip_suffix(b"\n") {
                Some(line) => text.extend([line, b"\r\n"].concat()),
                None => text.extend(line),
            }
            text
        });
        self.0.lock().unwrap().process(&text);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Every write call by itself.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<Vec<u8>>>>);

impl Calls {
    fn all(&self) -> Vec<u8> {
        self.0.lock().unwrap().concat()
    }

    fn text(&self) -> String {
        String::from_utf8(self.all()).unwrap()
    }
}

impl Write for Calls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ranks(count: usize) -> OutputOptions {
    OutputOptions { hosts: vec!["a".into(); count], ..OutputOptions::default() }
}

fn bar(percent: usize) -> Vec<u8> {
    format!("\rtrain: {percent:3}%|{:<10}|", "█".repeat(percent / 10)).into_bytes()
}

#[test]
fn bars_of_three_ranks_stand_below_the_lines() {
    let screen = Screen::new(40, 10);
    let mut printer = screen.printer();
    let mut now = Instant::now();
    let mut output = Output::new(&mut printer, &ranks(3), now).unwrap();
    for step in 0..=4 {
        for rank in 0..3 {
            now += FRAME;
            output.wrote(now, rank, Stream::Err, &bar(10 * step + rank));
            if step == 2 {
                output.wrote(now, rank, Stream::Out, format!("loss {rank}\nnext").as_bytes());
            }
        }
    }
    output.refresh(now + FRAME);
    let expected = "[0] loss 0\n[1] loss 1\n[2] loss 2\n\
                    [0] next\n[0] train:  40%|████      |\n\
                    [1] next\n[1] train:  41%|████      |\n… and 2 more";
    assert_eq!(screen.text(), expected);

    output.wrote(now + 2 * FRAME, 1, Stream::Err, b"\n");
    output.closed(2);
    output.note("two left");
    let expected = "[0] loss 0\n[1] loss 1\n[2] loss 2\n\
                    [1] train:  41%|████      |\n[2] next\n[2] train:  42%|████      |\ntwo left\n\
                    [0] next\n[0] train:  40%|████      |\n[1] next";
    assert_eq!(screen.text(), expected);
    assert_eq!(output.last_lines(2), ["loss 2", "next", "train:  42%|████      |"]);
    drop(output);
    let expected = "[2] next\n[2] train:  42%|████      |\ntwo left\n\
                    [0] next\n[0] train:  40%|████      |\n[1] next\n";
    assert!(screen.text().ends_with(expected.trim_end()), "{}", screen.text());
}

#[test]
fn several_bars_of_a_rank_and_its_colours_disturb_nobody() {
    let screen = Screen::new(40, 10);
    let mut printer = screen.printer();
    let mut now = Instant::now();
    let mut output = Output::new(&mut printer, &ranks(2), now).unwrap();
    for step in 1..4 {
        now += FRAME;
        output.wrote(now, 0, Stream::Err, format!("\router {step}").as_bytes());
        output.wrote(now, 0, Stream::Err, format!("\n\r\x1b[31minner {step}\x1b[A").as_bytes());
        output.wrote(now, 1, Stream::Out, format!("\x1b[2J\x1b[1;1Hline {step}\n").as_bytes());
    }
    output.refresh(now + FRAME);
    assert_eq!(screen.text(), "[0] outer 1\n[1] line 1\n[1] line 2\n[1] line 3\n[0] outer 3\n[0] inner 3");
}

#[test]
fn rows_are_cut_to_a_window_that_changes() {
    let screen = Screen::new(20, 6);
    let mut printer = screen.printer();
    let now = Instant::now();
    let mut output = Output::new(&mut printer, &ranks(1), now).unwrap();
    output.wrote(now, 0, Stream::Out, "\r漢字漢字漢字漢字漢字".as_bytes());
    assert_eq!(screen.text(), "[0] 漢字漢字漢字漢");
    screen.0.lock().unwrap().screen_mut().set_size(NonZero::new(6).unwrap(), NonZero::new(12).unwrap());
    output.wrote(now + FRAME, 0, Stream::Out, "\r漢字漢字漢字漢字".as_bytes());
    assert!(screen.text().ends_with("[0] 漢字漢"), "{}", screen.text());
}

#[test]
fn text_that_nobody_ends_is_shown_after_a_while() {
    let screen = Screen::new(40, 6);
    let mut printer = screen.printer();
    let now = Instant::now();
    let mut output = Output::new(&mut printer, &ranks(1), now).unwrap();
    assert_eq!(output.next_refresh(), None);
    output.wrote(now, 0, Stream::Out, b"compiling ...");
    let due = output.next_refresh().unwrap();
    output.refresh(now + FRAME);
    assert_eq!((screen.text().as_str(), due), ("", now + PATIENCE));
    output.refresh(due);
    assert_eq!((screen.text().as_str(), output.next_refresh()), ("[0] compiling ...", None));
    output.wrote(due + FRAME, 0, Stream::Out, b" done\n");
    assert_eq!(screen.text(), "[0] compiling ... done");
}

#[test]
fn a_screen_with_a_block_changes_twenty_times_a_second() {
    let calls = Calls::default();
    let mut printer = Printer::screen(std::io::sink(), calls.clone(), || (80, 24));
    let start = Instant::now();
    let mut output = Output::new(&mut printer, &ranks(1), start).unwrap();
    for milliseconds in 0..1000 {
        let now = start + Duration::from_millis(milliseconds);
        output.wrote(now, 0, Stream::Err, format!("line\n\r{milliseconds}").as_bytes());
        assert!(output.next_refresh().is_none_or(|due| due <= now + FRAME));
    }
    drop(output);
    // Two calls are the end.
    assert!((20..=22).contains(&calls.0.lock().unwrap().len()));
    assert_eq!(calls.text().matches("line\n").count(), 1000);
}

#[test]
fn a_colour_left_open_ends_with_its_line() {
    let calls = Calls::default();
    let mut printer = Printer::screen(calls.clone(), std::io::sink(), || (80, 24));
    let now = Instant::now();
    Output::new(&mut printer, &ranks(1), now).unwrap().wrote(now, 0, Stream::Out, b"\x1b[31mred\nstill\n");
    let tag = "\x1b[38;5;33m[0]\x1b[0m";
    assert_eq!(calls.text(), format!("{tag} \x1b[31mred\x1b[0m\n{tag} \x1b[31mstill\x1b[0m\n"));
}

#[test]
fn without_a_terminal_bars_are_what_they_become() {
    let (out, err) = (Calls::default(), Calls::default());
    let mut printer = Printer::plain(out.clone(), err.clone());
    let now = Instant::now();
    let mut output = Output::new(&mut printer, &OutputOptions { tag: Tag::Host, ..ranks(2) }, now).unwrap();
    (0..100).for_each(|percent| output.wrote(now, 1, Stream::Err, &bar(percent)));
    output.wrote(now, 0, Stream::Out, b"half a li");
    assert_eq!((out.text(), err.text()), (String::new(), String::new()));
    output.wrote(now, 0, Stream::Out, b"ne\r\n\x1b[1mb\n");
    output.finish();
    assert_eq!(out.text(), "[a:0] half a line\n[a:0] \x1b[1mb\n");
    assert_eq!(err.text(), "[a:1] train:  99%|█████████ |\n");
}

#[test]
fn quiet_leaves_standard_error() {
    let (out, err) = (Calls::default(), Calls::default());
    let mut printer = Printer::plain(out.clone(), err.clone());
    let now = Instant::now();
    let options = OutputOptions { quiet: true, tag: Tag::None, ..ranks(1) };
    let mut output = Output::new(&mut printer, &options, now).unwrap();
    output.wrote(now, 0, Stream::Out, b"data\n");
    output.wrote(now, 0, Stream::Err, b"oh\n");
    output.wrote(now, 7, Stream::Err, b"nobody\n");
    assert_eq!(output.last_lines(0), ["data", "oh"]);
    drop(output);
    assert_eq!((out.text().as_str(), err.text().as_str()), ("", "oh\n"));
}

#[test]
fn with_files_only_rank_0_and_errors_are_shown() {
    let place = tempfile::tempdir().unwrap();
    let (out, err) = (Calls::default(), Calls::default());
    let mut printer = Printer::plain(out.clone(), err.clone());
    let now = Instant::now();
    let options = OutputOptions { folder: Some(place.path().into()), ..ranks(2) };
    let mut output = Output::new(&mut printer, &options, now).unwrap();
    for rank in 0..2 {
        output.wrote(now, rank, Stream::Out, b"\r1\r2\n");
        output.wrote(now, rank, Stream::Err, b"oh\n");
    }
    drop(output);
    assert_eq!(std::fs::read(place.path().join("rank-1.log")).unwrap(), b"\r1\r2\noh\n");
    assert_eq!(out.text(), "[0] 2\n");
    let folder = place.path().display();
    let note =
        format!("output goes to {folder}/rank-0.log to rank-1.log; rank 0 and standard error are also shown here");
    assert_eq!(err.text(), format!("{note}\n[0] oh\n[1] oh\n"));
}

#[test]
fn a_reader_that_left_is_noticed() {
    let file = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut printer = Printer::plain(file, std::io::sink());
    let now = Instant::now();
    let mut output = Output::new(&mut printer, &ranks(1), now).unwrap();
    assert!(!output.is_broken());
    output.wrote(now, 0, Stream::Out, b"x\n");
    assert!(output.is_broken());
}

#[test]
fn memory_is_bounded() {
    let mut printer = Printer::screen(std::io::sink(), std::io::sink(), || (80, 24));
    let now = Instant::now();
    let mut output = Output::new(&mut printer, &ranks(1), now).unwrap();
    output.wrote(now, 0, Stream::Err, b"\rbar");
    for _ in 0..1000 {
        output.wrote(now, 0, Stream::Out, &[b'x'; 10_000]);
        output.wrote(now, 0, Stream::Err, b"a line\n\rbar");
        assert!(output.waiting.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= MOST);
        assert!(output.ranks[0].sources[0].rows.unfinished().map(<[u8]>::len).sum::<usize>() < rows::LIMIT);
    }
}

proptest! {
    /// Whatever ranks write, in whatever pieces: each call writes whole lines, and without tags every rank's lines
    /// are there, once and in order.
    #[test]
    fn lines_are_never_torn(
        texts in prop::collection::vec(prop::collection::vec("[a-z]{0,5}", 0..12), 1..4),
        turns in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..7), 0..80),
        terminal in any::<bool>(),
    ) {
        let calls = Calls::default();
        let mut printer = match terminal {
            true => Printer::screen(calls.clone(), std::io::sink(), || (80, 24)),
            false => Printer::plain(calls.clone(), std::io::sink()),
        };
        let mut now = Instant::now();
        let mut left: Vec<VecDeque<u8>> =
            texts.iter().map(|lines| lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()).collect();
        let mut output = Output::new(&mut printer, &ranks(texts.len()), now).unwrap();
        let rest = (0..texts.len()).map(|rank| (rank, usize::MAX));
        let turns = turns.into_iter().map(|(rank, count)| (rank.index(texts.len()), count));
        for (rank, count) in turns.chain(rest) {
            let count = count.min(left[rank].len());
            let piece: Vec<u8> = left[rank].drain(..count).collect();
            now += Duration::from_millis(30);
            output.wrote(now, rank, Stream::Out, &piece);
        }
        drop(output);
        prop_assert!(calls.0.lock().unwrap().iter().all(|call| call.ends_with(b"\n")));
        let printed = calls.text().replace("\x1b[0m", "");
        for (rank, lines) in texts.iter().enumerate() {
            let tag = format!("[{rank}] ");
            let found: Vec<&str> = printed.lines().filter_map(|line| Some(line.split_once(&tag)?.1)).collect();
            prop_assert_eq!(&found, lines);
        }
    }
}

#[test]
fn rows_of_the_launcher_stand_below_all_others_and_go_away() {
    let screen = Screen::new(20, 8);
    let mut printer = screen.printer();
    let start = Instant::now();
    let mut output = Output::new(&mut printer, &OutputOptions { tag: Tag::None, ..ranks(2) }, start).unwrap();
    let later = |milliseconds| start + Duration::from_millis(milliseconds);
    output.set_footer(start, vec!["step 1/9".into(), "a row that is much too long".into()]);
    assert_eq!(screen.text(), "step 1/9\na row that is much ");
    output.wrote(later(100), 0, Stream::Out, b"a line\n");
    output.wrote(later(200), 1, Stream::Err, b"\rbar 5 %");
    output.set_footer(later(300), vec!["step 2/9".into()]);
    assert_eq!(screen.text(), "a line\nbar 5 %\nstep 2/9");
    output.note("said");
    assert_eq!(screen.text(), "a line\nsaid\nbar 5 %\nstep 2/9");
    output.set_footer(later(400), Vec::new());
    output.wrote(later(500), 1, Stream::Err, b"\rbar 100 %\n");
    output.finish();
    assert_eq!(screen.text().trim_end(), "a line\nsaid\nbar 100 %");
}
