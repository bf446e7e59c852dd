//! One run of a scaling: started as a user would start it, watched, and ended together with this process.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sirtaki_engine::files;

use sirtaki_launch::{child, ended::Ended};

/// What a run prints goes here, in its folder.
pub(super) const OUTPUT: &str = "output.txt";
const LOOK: Duration = Duration::from_millis(50);
/// How long a run may take to end when it is asked to; the launcher itself allows its ranks less.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes at the end of the output that are searched for a reason.
const TAIL: u64 = 16 << 10;

/// Signals that end the series.
#[derive(Debug, Clone)]
pub(super) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self> {
        let heard = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_usize(signal, Arc::clone(&heard), signal as usize)
                .context("cannot listen to signals")?;
        }
        Ok(Self(heard))
    }

    /// The signal that came.
    pub(super) fn signal(&self) -> Option<u8> {
        u8::try_from(self.0.load(Ordering::Relaxed)).ok().filter(|signal| *signal > 0)
    }
}

/// Runs `program` with its output in `folder`. Says how long it took and why it failed, if it did.
pub(super) fn take(
    program: &Path,
    arguments: &[String],
    folder: &Path,
    interrupt: &Interrupt,
    mut tick: impl FnMut(Duration),
) -> Result<(Duration, Option<String>)> {
    let output = folder.join(OUTPUT);
    let file = files::create(&output).with_context(|| format!("cannot write {}", output.display()))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    child::tie(&mut command, &[]);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt.signal().is_some() {
            end(&mut child)?;
            return Ok((start.elapsed(), Some("it was interrupted".into())));
        }
        tick(start.elapsed());
        std::thread::sleep(LOOK);
    };
    Ok((start.elapsed(), (!status.success()).then(|| reason(&output, status))))
}

/// Asks the launcher to end its job, and kills it if it does not.
fn end(child: &mut Child) -> Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("the process id is not valid")?;
    let _ = kill_process(pid, Signal::TERM);
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            let _ = kill_process_group(pid, Signal::KILL);
            child.wait()?;
            break;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// What the run itself said last, preferably as an error.
fn reason(output: &Path, status: ExitStatus) -> String {
    let text = tail(output).unwrap_or_default();
    let error = text.lines().rev().find_map(|line| line.strip_prefix("error: "));
    let last = || text.lines().rev().find(|line| !line.trim().is_empty());
    let how = Ended::from(status).to_string();
    error.or_else(last).map_or_else(|| format!("it {how}"), |line| line.trim().to_owned())
}

fn tail(output: &Path) -> std::io::Result<String> {
    let length = fs::metadata(output)?.len();
    let mut file = File::open(output)?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
