//! Why a rank failed, and what to try: from the way it ended and from its last lines.

use sirtaki_launch::ended::Ended;

const SMALLER: &str = "a smaller batch or model per rank, fewer ranks on this host, or a host with more memory";

/// The line that explains it best, if there is one, and what to try.
pub(super) fn explain<'a>(how: &Ended, lines: &'a [String]) -> (Option<&'a str>, String) {
    if lines.iter().any(|line| is_mpi_start(line)) {
        let hint = "Open MPI makes every process a job of its own unless its mpirun starts it: add --mpi to connect \
                    the ranks through it, or --mpi=no if each is meant to be alone";
        return (Some("MPI cannot start without its launcher"), hint.into());
    }
    // What a rank printed long before it was killed explains nothing; an abort is its own doing.
    if matches!(how, Ended::Code(_) | Ended::Signal { number: 6, .. }) {
        if let Some(exception) = exception(lines) {
            return (Some(exception), after_exception(exception));
        }
        if let Some(panic) = panic(lines) {
            return (Some(panic), "set RUST_BACKTRACE=1 to see where in the program it happened".into());
        }
    }
    (None, after_end(how))
}

/// Whether Open MPI failed to start. Its own explanation is sometimes lost in one of its daemons, which says so.
fn is_mpi_start(line: &str) -> bool {
    line.contains("MPI_Init") && line.contains("error") || line.contains("ORTE_ERROR_LOG") && line.contains("show_help")
}

/// The exception at the end of a Python traceback: the first line after the last frame that is not indented. What
/// Python itself ignores, mostly in exit handlers and destructors, is not why a rank ended.
fn exception(lines: &[String]) -> Option<&str> {
    let is_frame = |line: &&String| line.trim_start().starts_with("File \"") && line.contains(", line ");
    let (at, frame) = lines.iter().enumerate().rfind(|(_, line)| is_frame(line))?;
    let header = lines[..at].iter().rposition(|line| line.starts_with("Traceback (most recent call last)"));
    if let Some(before) = header.and_then(|header| header.checked_sub(1))
        && lines[before].starts_with("Exception ignored ")
    {
        return exception(&lines[..before]);
    }
    let indent = frame.len() - frame.trim_start().len();
    // Frames are indented by two; in a chain of exceptions of a group by more.
    let outside = |line: &&String| !line.trim().is_empty() && line.len() - line.trim_start().len() < indent.max(1);
    lines[at + 1..].iter().find(outside).map(|line| line.trim())
}

/// The message of a Rust panic, which follows the line that says where.
fn panic(lines: &[String]) -> Option<&str> {
    let at = lines.iter().rposition(|line| line.starts_with("thread '") && line.contains(" panicked at "))?;
    lines.get(at + 1).map(|line| line.trim()).filter(|line| !line.is_empty())
}

fn after_exception(exception: &str) -> String {
    let kind = exception.split(':').next().unwrap_or_default();
    let is = |words: &[&str]| words.iter().any(|word| kind.ends_with(word));
    if is(&["OutOfMemoryError"]) || exception.contains("CUDA out of memory") {
        return "the GPU has too little memory: try a smaller batch or model per rank, or fewer ranks per GPU".into();
    }
    if is(&["MemoryError"]) {
        return format!("there was too little memory: try {SMALLER}");
    }
    if is(&["ModuleNotFoundError", "ImportError"]) {
        return "install it where this rank runs, or activate the same environment on every host".into();
    }
    "the traceback above shows where; the other ranks only followed".into()
}

fn after_end(how: &Ended) -> String {
    match how {
        Ended::Signal { out_of_memory: true, .. } => format!("the host ran out of memory: try {SMALLER}"),
        Ended::Signal { number, .. } => match number {
            2 | 15 => "somebody asked it to end: a person, a scheduler at its time limit, or the program itself".into(),
            9 => "nothing but the kernel (out of memory: see `dmesg`), a scheduler or a person kills like this".into(),
            4 => "the program uses instructions that this processor lacks; build it for this one".into(),
            6 => "the program gave up by itself: its last lines may say why; a debugger shows where".into(),
            7 | 8 | 11 => {
                "a crash in native code: in Python set PYTHONFAULTHANDLER=1 to see where, otherwise run it in gdb"
                    .into()
            }
            13 => "whoever read its output is gone".into(),
            24 | 25 => "a limit of the system was reached; see `ulimit -a`".into(),
            _ => "the other ranks only followed".into(),
        },
        Ended::Code(126) => {
            "the program was found but may not be executed: try chmod +x, or name its interpreter".into()
        }
        Ended::Code(127) => "a program was not found: check its name, and PATH on this host".into(),
        Ended::Code(code @ 129..=159) => {
            let signal = sirtaki_launch::ended::signal_name(code - 128);
            format!("in a shell this code means that {signal} killed the program; its last lines may say more")
        }
        Ended::Code(_) => "its last lines may say why; the other ranks only followed".into(),
        Ended::Early => "every rank must get as far as `init`, also one that has nothing to do".into(),
        Ended::Stopped => {
            "somebody stopped it (`kill -STOP`, a debugger, a scheduler that suspends jobs), and nobody continued it (`kill -CONT`)"
                .into()
        }
        Ended::NotStarted { hint, .. } if !hint.is_empty() => hint.clone(),
        Ended::NotStarted { .. } => "look whether the program can be started on this host by hand".into(),
        Ended::Lost(_) => "check that the host is up and that `ssh` reaches it".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(Into::into).collect()
    }

    #[test]
    fn the_exception_is_found_at_the_end_of_its_traceback() {
        let plain = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    main()\n    ~~~~^^\n\
                     torch.OutOfMemoryError: CUDA out of memory. Tried\nmore of the message\nbye";
        assert_eq!(exception(&lines(plain)), Some("torch.OutOfMemoryError: CUDA out of memory. Tried"));
        let chained = "  File \"a.py\", line 3\nKeyError: 1\n\nDuring handling of the above exception, another exception \
                       occurred:\n\nTraceback (most recent call last):\n  File \"a.py\", line 5\n    x\nValueError: two";
        assert_eq!(exception(&lines(chained)), Some("ValueError: two"));
        let ignored = "Exception ignored in atexit callback: <function end at 0x7f>\nTraceback (most recent call last):\n  \
                       File \"b.py\", line 5, in end\n    x\nOSError: no matter";
        assert_eq!(exception(&lines(&format!("{plain}\n{ignored}"))), exception(&lines(plain)));
        assert_eq!(exception(&lines(ignored)), None);
        assert_eq!(exception(&lines("  File \"a.py\", line 3\n    x")), None);
        assert_eq!(exception(&lines("File upload done, line 3")), None);
    }

    #[test]
    fn open_mpi_without_its_launcher_is_recognised() {
        let said = "[vm:9] *** An error occurred in MPI_Init_thread";
        let lost = "[vm:9] [[1,0],0] ORTE_ERROR_LOG: Data unpack had inadequate space in file orte/util/show_help.c";
        for text in [said, lost] {
            assert!(explain(&Ended::Code(1), &lines(text)).1.contains("add --mpi"), "{text}");
        }
        assert!(!explain(&Ended::Code(1), &lines("ORTE_ERROR_LOG: Not found")).1.contains("--mpi"));
    }

    #[test]
    fn the_message_of_a_panic_is_found() {
        let text =
            "thread 'main' (7) panicked at src/main.rs:2:5:\nindex out of bounds\nnote: run with `RUST_BACKTRACE=1`";
        assert_eq!(panic(&lines(text)), Some("index out of bounds"));
        assert_eq!(explain(&Ended::Code(101), &lines(text)).0, Some("index out of bounds"));
        assert_eq!(explain(&Ended::Signal { number: 9, out_of_memory: false }, &lines(text)).0, None);
    }
}
