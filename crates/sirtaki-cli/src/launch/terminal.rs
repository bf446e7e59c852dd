//! A job as the people at a terminal see it.

use std::time::Instant;

use signal_hook::consts::SIGTSTP;
use sirtaki_launch::{Observer, RoundReport, ended::Ended, protocol::Stream, pulse::Pulse, roles::Cast};

use super::{options::Detail, output::Output, progress::Live};

/// Shows what happens to a job.
#[derive(Debug)]
pub(crate) struct Terminal<'a, 'b> {
    /// What ranks write.
    pub(crate) output: &'a mut Output<'b>,
    /// How far they are.
    pub(crate) live: &'a mut Live,
    /// Who the processes are.
    pub(crate) cast: Cast,
    /// How much is shown of the rest.
    pub(crate) detail: Detail,
}

impl Observer for Terminal<'_, '_> {
    fn note(&mut self, sentence: &str) {
        self.output.note(sentence);
    }

    fn network(&mut self, sentence: &str) {
        if self.detail != Detail::Quiet {
            self.output.note(sentence);
        }
    }

    fn begins(&mut self, now: Instant) {
        self.live.begins(now);
    }

    fn started(&mut self, rank: usize, host: &str, pid: u32) {
        if self.detail == Detail::Verbose {
            self.output.note(&format!("{} runs on {host} as process {pid}", self.cast.name(rank)));
        }
    }

    fn wrote(&mut self, now: Instant, rank: usize, stream: Stream, bytes: &[u8]) {
        self.output.wrote(now, rank, stream, bytes);
    }

    fn closed(&mut self, rank: usize) {
        self.output.closed(rank);
    }

    fn pulses(&mut self, pulses: &[Pulse], now: Instant) {
        self.live.heard(pulses, now);
    }

    fn ended(&mut self, rank: usize, how: &Ended) {
        if self.detail == Detail::Verbose {
            self.output.note(&format!("{} {how}", self.cast.name(rank)));
        }
    }

    fn round(&mut self, report: &RoundReport) {
        if self.detail != Detail::Quiet {
            self.output.note(&report.to_string());
        }
        self.live.round(report, Instant::now());
    }

    fn is_full(&self) -> bool {
        self.output.is_full()
    }

    fn is_abandoned(&self) -> bool {
        self.output.is_broken()
    }

    fn next_tick(&self) -> Option<Instant> {
        [self.output.next_refresh(), self.live.next_refresh()].into_iter().flatten().min()
    }

    fn tick(&mut self, now: Instant) {
        self.live.refresh(now, self.output);
        self.output.refresh(now);
    }

    /// Ctrl-Z stops the launcher, too.
    fn paused(&mut self) {
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}
