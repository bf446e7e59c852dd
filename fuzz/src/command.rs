//! What targets share: the command as people call it, on files that nobody should have, and what it prints.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use sirtaki_cli::printer::Printer;

/// What was printed, kept.
#[derive(Clone, Default)]
pub(crate) struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    /// All of it so far.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().expect("nobody panicked"))
    }
}

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A folder for inputs, beside what is built.
pub(crate) fn folder(target: &str) -> PathBuf {
    let folder = PathBuf::from("target/fuzz/inputs").join(target);
    fs::create_dir_all(&folder).expect("started at the root of the repository");
    folder
}

/// What the command prints, or nothing where it refuses with a message.
pub(crate) fn run(command: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let (out, err) = (Printed::default(), Printed::default());
    let words = ["sirtaki", command].into_iter().chain(arguments.iter().copied()).map(Into::into);
    let code = sirtaki_cli::run(words, &mut Printer::plain(out.clone(), err.clone()));
    if code != 0 {
        let said = err.take();
        assert!(said.starts_with(b"error: "), "{}", String::from_utf8_lossy(&said));
        return None;
    }
    Some(out.take())
}

/// The same as data.
pub(crate) fn json(command: &str, arguments: &[&str]) -> Option<Value> {
    let text = run(command, &[arguments, &["--json"]].concat())?;
    Some(serde_json::from_slice(&text).expect("valid JSON"))
}
