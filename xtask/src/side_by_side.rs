//! Several programs at a time, one per core.
//!
//! Tests of jobs spend most of their time starting interpreters and waiting for each other, which leaves cores idle when
//! they run one after the other. What a program prints is shown as a whole when it has ended.

use std::{
    io::{self, Read},
    num::NonZeroUsize,
    sync::Mutex,
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::shell::{Call, Shell};

/// Runs all programs; after one has failed, none is started any more.
pub(crate) fn run(shell: &Shell, calls: Vec<Call>) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let waiting = Mutex::new(calls.into_iter());
    let next = || waiting.lock().ok()?.next();
    let lane = || {
        while let Some(call) = next() {
            if let Err(error) = show(shell, &call) {
                while next().is_some() {}
                return Err(error);
            }
        }
        Ok(())
    };
    thread::scope(|threads| {
        let lanes: Vec<_> = (0..cores).map(|_| threads.spawn(lane)).collect();
        let ends: Vec<_> =
            lanes.into_iter().map(|lane| lane.join().unwrap_or_else(|_| bail!("xtask panicked"))).collect();
        ends.into_iter().collect()
    })
}

/// Runs a program and shows what it has printed.
fn show(shell: &Shell, call: &Call) -> Result<()> {
    println!("  $ {call}");
    let start = Instant::now();
    let (mut output, writer) = io::pipe().context("cannot make a pipe")?;
    let mut command = call.command(&shell.root);
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot run `{call}`"))?;
    // It holds the writing end of the pipe, which would never end.
    drop(command);
    let mut text = Vec::new();
    output.read_to_end(&mut text)?;
    let status = child.wait()?;
    println!("{}  {:.1} s: {call}", String::from_utf8_lossy(&text), start.elapsed().as_secs_f64());
    if !status.success() {
        bail!("`{call}` failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn all_are_run_and_a_failure_is_the_failure_of_all() {
        let shell = Shell::at_root().unwrap();
        let folder = std::env::temp_dir().join(format!("sirtaki-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let touch = |name: &str| Call::new("touch").args([folder.join(name).display().to_string()]);
        run(&shell, ["a", "b", "c", "d"].map(touch).into()).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
        let error = run(&shell, vec![Call::new("false"), touch("e")]).unwrap_err().to_string();
        assert!(error.contains("`false` failed"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
