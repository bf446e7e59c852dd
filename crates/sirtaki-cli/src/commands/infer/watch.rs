//! The workers as whoever started them sees them: how far they are, what they say, and who is gone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sirtaki_infer::Job;
use sirtaki_launch::{
    Controller, Job as Launched, Launcher, Observer, Outcome, ended::Ended, placement::Placement, protocol::Stream,
    tree, words::seconds_in_words,
};
use sirtaki_volume::ledger::Ledger;

use super::{map::TileMap, name_of};
use crate::{
    launch::{options::Options, signals},
    printer::{Printer, Style},
};

/// How often progress is shown on a terminal.
const REFRESH: Duration = Duration::from_millis(250);
/// How often a line of it is printed elsewhere.
const LINE: Duration = Duration::from_secs(10);
/// How long what workers left behind may take to end.
const CLEANING: Duration = Duration::from_secs(5);

/// Columns that progress has.
const COLUMNS: usize = 80;

/// How the workers ended.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) outcome: Outcome,
    /// Whether one of them could not do its work, and said why.
    pub(super) failed: bool,
}

/// Starts the workers and waits for their end.
pub(super) fn run(
    job: &Job,
    ledger: &mut Ledger,
    (options, placement): (Options, Placement),
    program: &std::path::Path,
    (printer, quiet): (&mut Printer, bool),
) -> Result<Watched> {
    let plan = job.plan()?;
    let (steps, map) = (job.steps(&plan)?.len(), TileMap::new(job.order(&plan)?));
    let launched = Launched::new(options.job, placement, program)?;
    tree::adopt_orphans().context("cannot adopt orphans")?;
    let signals = signals::Receiver::start()?;
    let launcher = Launcher::new();
    signals.pass_on_to(launcher.controller());
    let now = Instant::now();
    let size = launched.placement.plan.size();
    let mut watch = Watch {
        voxels: job.spec.output.voxels() as f64 / steps.max(1) as f64,
        tiles: steps,
        map,
        first: ledger.done().len(),
        done: ledger.done().len(),
        controller: launcher.controller(),
        id: launched.id.clone(),
        texts: vec![Vec::new(); size],
        running: size,
        failed: false,
        began: now,
        next: now + REFRESH,
        next_line: now + LINE,
        ledger,
        printer,
        quiet,
    };
    let ending = launcher.run(&launched, &mut watch);
    tree::kill_all(CLEANING);
    let failed = watch.failed;
    signals.set_over();
    Ok(Watched { outcome: ending?.outcome, failed })
}

struct Watch<'a> {
    ledger: &'a mut Ledger,
    printer: &'a mut Printer,
    quiet: bool,
    controller: Controller,
    /// Voxels of the output per tile, on average.
    voxels: f64,
    /// Tiles, each of them twice where objects are numbered.
    tiles: usize,
    /// Where they are.
    map: TileMap,
    /// Tiles that were done before.
    first: usize,
    done: usize,
    /// What the workers' names in the ledger begin with.
    id: String,
    /// What each worker has written of a line.
    texts: Vec<Vec<u8>>,
    running: usize,
    failed: bool,
    began: Instant,
    next: Instant,
    next_line: Instant,
}

impl Watch<'_> {
    /// How far it is: which tiles are done, as far as there is room, and how many.
    fn line(&self, now: Instant) -> String {
        let seconds = now.duration_since(self.began).as_secs_f64();
        let new = self.done.saturating_sub(self.first);
        let share = 100.0 * self.done as f64 / self.tiles.max(1) as f64;
        let mut line = format!("{}/{} tiles  {share:.0} %", self.done, self.tiles);
        if new > 0 {
            let left = seconds / new as f64 * self.tiles.saturating_sub(self.done) as f64;
            let rate = new as f64 * self.voxels / seconds / 1e6;
            line.push_str(&format!("  {rate:.2} Mvoxel/s  {} left", seconds_in_words(left)));
        }
        let workers = if self.running == 1 { "1 worker".to_owned() } else { format!("{} workers", self.running) };
        line.push_str(&format!("  {workers}"));
        let room = COLUMNS.saturating_sub(line.chars().count() + 2);
        match self.map.row(self.ledger.done(), room) {
            Some(row) => format!("{row}  {line}"),
            None => line,
        }
    }

    /// Shows whole lines of a worker.
    fn show_lines(&mut self, rank: usize, all: bool) {
        let text = &mut self.texts[rank];
        let whole = if all { text.len() } else { text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) };
        let lines: Vec<u8> = text.drain(..whole).collect();
        for line in String::from_utf8_lossy(&lines).lines().filter(|line| !line.trim().is_empty()) {
            self.printer.message(line);
        }
    }
}

impl Observer for Watch<'_> {
    fn note(&mut self, sentence: &str) {
        self.printer.labelled(Style::Bold, "note:", sentence);
    }

    fn wrote(&mut self, _: Instant, rank: usize, _: Stream, bytes: &[u8]) {
        self.texts[rank].extend(bytes);
        // One explanation is enough; the others fail for the same reason.
        if !self.failed {
            self.show_lines(rank, false);
        }
    }

    fn ended(&mut self, rank: usize, how: &Ended) {
        self.running = self.running.saturating_sub(1);
        if how.is_success() {
            return;
        }
        self.show_lines(rank, true);
        match how {
            Ended::Code(_) if !self.failed => {
                self.failed = true;
                self.controller.signal(signal_hook::consts::SIGTERM);
            }
            Ended::Code(_) => {}
            how => {
                let tiles = self.ledger.give_back_for(&name_of(&self.id, rank)).unwrap_or(0);
                let rest = if self.running > 0 { "; others compute its tiles" } else { "" };
                self.printer.labelled(
                    Style::Warning,
                    "warning:",
                    &format!("worker {rank} {how} ({tiles} tiles under way){rest}"),
                );
            }
        }
    }

    fn next_tick(&self) -> Option<Instant> {
        Some(self.next)
    }

    fn tick(&mut self, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + REFRESH;
        if self.ledger.refresh().is_ok() {
            self.done = self.ledger.done().len().min(self.tiles);
        }
        if self.quiet {
            return;
        }
        let line = self.line(now);
        if self.printer.is_terminal(Stream::Err) {
            self.printer.progress(&line);
        } else if now >= self.next_line {
            self.next_line = now + LINE;
            self.printer.message(&line);
        }
    }

    /// Ctrl-Z stops the launcher, too.
    fn paused(&mut self) {
        let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP);
    }
}
