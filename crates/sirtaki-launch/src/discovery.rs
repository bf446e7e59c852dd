//! Hosts that come and go, as a program of the user's says: one line per host, such as `a:4`, now and then.

use std::{
    io::Read,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Advice, JobSpec,
    hosts::{self, HostSlots},
    placement::is_here,
};

/// Time between two questions.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the program may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of its answer.
const LIMIT: u64 = 1 << 20;

/// A program that knows the hosts.
#[derive(Debug, Clone)]
pub struct Discovery {
    /// Where it is.
    pub program: PathBuf,
    /// Slots of a host for which it says none.
    pub slots: NonZeroUsize,
}

impl Discovery {
    /// The hosts there are now; none is an answer, too.
    pub fn ask(&self) -> Result<Vec<HostSlots>, Advice> {
        let hint = "it must be executable and print a host per line, such as `a:4`, within 30 s";
        let problem = |what: String| Advice::new(format!("--discover {}: {what}", self.program.display()), hint);
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| problem(format!("cannot be started: {error}")))?;
        let output = child.stdout.take();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            output.map(|output| output.take(LIMIT).read_to_string(&mut text)).transpose().map(|_| text)
        });
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                other => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(problem(other.err().map_or("took too long".into(), |error| error.to_string())));
                }
            }
        };
        if !status.success() {
            return Err(problem(format!("{}", crate::ended::Ended::from(status))));
        }
        let text = reader.join().map_err(|_| problem("its output cannot be read".into()))?;
        let text = text.map_err(|error| problem(format!("its output cannot be read: {error}")))?;
        parse(&self.program, &text, self.slots)
    }

    /// Asks again and again, and tells `heard` whenever the answer is another one; until the result is dropped.
    pub(crate) fn follow(
        self,
        mut last: Vec<HostSlots>,
        heard: impl Fn(Result<Vec<HostSlots>, Advice>) + Send + 'static,
    ) -> Sender<()> {
        let (stop, stopped) = channel();
        thread::spawn(move || {
            let mut failed = false;
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                match self.ask() {
                    Ok(found) => {
                        failed = false;
                        if found != last {
                            last.clone_from(&found);
                            heard(Ok(found));
                        }
                    }
                    // Once is enough; the hosts of before stay.
                    Err(error) => {
                        if !std::mem::replace(&mut failed, true) {
                            heard(Err(error));
                        }
                    }
                }
            }
        });
        stop
    }
}

/// Asks for the hosts of an elastic job before it is placed, if a program knows them. Every host gets as many seats as
/// there may be workers, because its slots may become more.
pub fn discover(spec: &mut JobSpec, here: &str) -> Result<(), Advice> {
    let Some(elastic) = &mut spec.elastic else { return Ok(()) };
    let Some(program) = elastic.discover.clone() else { return Ok(()) };
    let found = Discovery { program, slots: elastic.slots }.ask()?;
    if found.is_empty() {
        let hint = "hosts have to be there from the start; what changes later are their slots";
        return Err(Advice::new("--discover: there is no host", hint));
    }
    let slots = found.iter().map(|host| host.slots).sum();
    let most = elastic.max.map_or(slots, NonZeroUsize::get);
    elastic.max = NonZeroUsize::new(most);
    if !found.iter().all(|host| is_here(&host.host, here)) {
        let seats = |host: &HostSlots| HostSlots { slots: host.slots.max(most), ..host.clone() };
        spec.hosts = Some(found.iter().map(seats).collect());
    }
    elastic.discovered = Some(found);
    Ok(())
}

/// The hosts in a text, each with `slots` unless its line says otherwise.
fn parse(program: &Path, text: &str, slots: NonZeroUsize) -> Result<Vec<HostSlots>, Advice> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let complete = |line: &&str| match line.contains([':', '=']) {
        true => (*line).to_owned(),
        false => format!("{line}:{slots}"),
    };
    hosts::parse_file(program, &lines.iter().map(complete).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn script(folder: &Path, text: &str) -> Discovery {
        let program = folder.join("hosts.sh");
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Discovery { program, slots: NonZeroUsize::new(3).unwrap() }
    }

    #[test]
    fn hosts_are_what_the_program_prints() {
        let folder = tempfile::tempdir().unwrap();
        let found = script(folder.path(), "echo a:4; echo; echo b").ask().unwrap();
        let expected = [("a", 4), ("b", 3)].map(|(host, slots)| HostSlots { host: host.into(), slots });
        assert_eq!(found, expected);
        assert!(script(folder.path(), "true").ask().unwrap().is_empty());
    }

    #[test]
    fn a_program_that_fails_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let failed = script(folder.path(), "exit 3").ask().unwrap_err();
        assert!(failed.message.contains("hosts.sh") && failed.message.contains("exit code 3"), "{failed}");
        assert!(script(folder.path(), "echo -- x").ask().is_err());
        let missing = Discovery { program: folder.path().join("none"), slots: NonZeroUsize::MIN };
        assert!(missing.ask().unwrap_err().message.contains("cannot be started"));
    }
}
