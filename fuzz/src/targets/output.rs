//! Whatever ranks write, in whatever pieces: only whole lines are printed, and they do not depend on the pieces.

use std::{io, time::Instant};

use crate::command::Printed;
use sirtaki_cli::{
    launch::output::{Output, OutputOptions, Stream},
    printer::Printer,
};

fn print(pieces: &[&[u8]], terminal: bool) -> Vec<u8> {
    let printed = Printed::default();
    let mut printer = match terminal {
        true => Printer::screen(printed.clone(), io::sink(), || (20, 6)),
        false => Printer::plain(printed.clone(), io::sink()),
    };
    let (options, now) = (OutputOptions { hosts: vec!["a".into()], ..OutputOptions::default() }, Instant::now());
    let mut output = Output::new(&mut printer, &options, now).expect("needs no files");
    for piece in pieces {
        output.wrote(now, 0, Stream::Out, piece);
    }
    assert!(output.last_lines(0).iter().all(|line| !line.contains('\x1b')));
    drop(output);
    printed.take()
}

pub(crate) fn check(bytes: &[u8]) {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let (one, two) = bytes.split_at(usize::from(first).min(bytes.len()));
    for terminal in [false, true] {
        let printed = print(&[bytes], terminal);
        assert!(printed.is_empty() || printed.ends_with(b"\n"));
        assert_eq!(printed, print(&[one, two], terminal));
    }
}
