//! How far a job is, for people: live rows on a terminal, lines in a log, plots on a page.
//!
//! Programs report their progress with `Engine::progress`, which writes into their flight record. Agents look there
//! twice a second and tell the launcher, so it costs ranks nothing and works for every front end. Nothing is shown for
//! a program that reports nothing.
//!
//! - `going`, `trail`: the whole job from that, with its rates. Pure.
//! - `view`: in rows and lines.
//! - `history`, [`dashboard`]: in plots, on a page.

pub mod dashboard;
mod going;
mod history;
mod trail;
mod view;

use std::time::{Duration, Instant};

use serde_json::json;
use sirtaki_launch::{RoundReport, pulse::Pulse};

pub use self::{
    dashboard::{Dashboard, Shown},
    going::{Moment, RankMoment},
};
use self::{going::Going, history::History};
use super::output::Output;

/// How often rows are redrawn even without news, to show the passing time.
const TICK: Duration = Duration::from_secs(1);
/// Least time between two updates of the page, however many hosts there are.
const NEWS: Duration = Duration::from_millis(400);
/// How often there is a line where rows cannot be redrawn.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most rounds that the page lists, the last ones.
const ROUNDS: usize = 50;

/// How the terminal shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Rows at its bottom.
    Rows,
    /// A line now and then.
    Lines,
    /// A line of JSON whenever there is news, for programs.
    Json,
    /// Not at all.
    Nothing,
}

/// Everything that shows a job's progress.
#[derive(Debug)]
pub struct Live {
    going: Going,
    began: Instant,
    show: Show,
    /// When rows or a line are due.
    due: Instant,
    /// The step of the line before.
    said: Option<u64>,
    /// When the page last got something new.
    published: Option<Instant>,
    /// What runs, for the page.
    name: String,
    page: Option<(Dashboard, History)>,
    /// Rounds of workers that come and go: when each began, in seconds, and in words.
    rounds: Vec<(f64, String)>,
}

impl Live {
    /// For ranks on these hosts that run a program of this name.
    pub fn new(name: String, hosts: Vec<String>, show: Show, page: Option<Dashboard>, now: Instant) -> Self {
        let page = page.map(|page| (page, History::default()));
        let going = Going::new(hosts);
        let due = now + PATIENCE;
        let rounds = Vec::new();
        let live = Self { going, began: now, show, due, said: None, published: None, name, page, rounds };
        live.publish(None, None);
        live
    }

    /// Workers have come or gone.
    pub fn round(&mut self, report: &RoundReport, now: Instant) {
        self.rounds.push((self.seconds(now), report.to_string()));
        self.publish(self.going.moment(self.seconds(now)).as_ref(), None);
    }

    /// The rounds so far, in words.
    pub fn rounds(&self) -> Vec<String> {
        self.rounds.iter().map(|(_, words)| words.clone()).collect()
    }

    /// The ranks are started.
    pub fn begins(&mut self, now: Instant) {
        (self.began, self.due) = (now, now + PATIENCE);
    }

    /// What an agent reported about its ranks.
    pub fn heard(&mut self, pulses: &[Pulse], now: Instant) {
        let seconds = self.seconds(now);
        self.going.heard(pulses, seconds);
        let Some(moment) = self.going.moment(seconds) else { return };
        if matches!(self.show, Show::Rows | Show::Json) {
            self.due = now;
        }
        if let Some((_, history)) = &mut self.page
            && self.published.is_none_or(|before| now >= before + NEWS)
        {
            self.published = Some(now);
            history.add(&moment);
            self.publish(Some(&moment), None);
        }
    }

    /// When [`Live::refresh`] has something to do, unless something is heard before.
    pub fn next_refresh(&self) -> Option<Instant> {
        (self.show != Show::Nothing && self.going.moment(0.0).is_some()).then_some(self.due)
    }

    /// Shows on the terminal what is due.
    pub fn refresh(&mut self, now: Instant, output: &mut Output<'_>) {
        if now < self.due || self.show == Show::Nothing {
            return;
        }
        let Some(moment) = self.going.moment(self.seconds(now)) else { return };
        if self.show == Show::Json {
            self.due = now + PATIENCE;
            output.note(&as_json(moment));
        } else if self.show == Show::Rows {
            self.due = now + TICK;
            let mut rows = view::rows(&moment, output.columns(), &|style, text| output.paint(style, text));
            rows.extend(self.rounds.last().filter(|_| self.rounds.len() > 1).map(|(_, words)| words.clone()));
            output.set_footer(now, rows);
        } else {
            self.due = now + PATIENCE;
            // After the last step comes the program's own result, which nothing should follow.
            let step = moment.said.step;
            if self.said.replace(step) != Some(step) && moment.said.steps != Some(step) {
                output.note(&view::line(&moment));
            }
        }
    }

    /// The ranks have ended; `how` in words, and whether that is a success. Rows are removed.
    pub fn ended(&mut self, well: bool, how: &str, output: &mut Output<'_>) {
        let now = Instant::now();
        output.set_footer(now, Vec::new());
        let last = self.going.moment(self.seconds(now));
        self.publish(last.as_ref(), Some((well, how)));
        if let (Show::Json, Some(last)) = (self.show, last) {
            output.note(&as_json(last));
        }
        self.show = Show::Nothing;
    }

    /// Lets an open page show the end.
    pub fn finish(self) {
        if let Some((page, _)) = self.page {
            page.finish();
        }
    }

    fn seconds(&self, now: Instant) -> f64 {
        now.saturating_duration_since(self.began).as_secs_f64()
    }

    fn publish(&self, moment: Option<&Moment>, ended: Option<(bool, &str)>) {
        let Some((page, history)) = &self.page else { return };
        let ended = ended.map(|(well, how)| json!({ "well": well, "how": how }));
        let rounds = &self.rounds[self.rounds.len().saturating_sub(ROUNDS)..];
        let data = json!({
            "name": self.name, "now": moment, "ended": ended, "history": history.rows(), "rounds": rounds,
        });
        page.show(data.to_string());
    }
}

/// What is known of the whole job, as a line that a program can tell from others.
fn as_json(moment: Moment) -> String {
    format!("progress: {}", json!(Moment { ranks: Vec::new(), ..moment }))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use sirtaki_engine::telemetry::Progress;

    use super::*;
    use crate::{launch::output, printer::Printer};

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn rounds_are_kept_in_words_and_shown_below_the_rows() {
        let log = Log::default();
        let mut printer = Printer::plain(log.clone(), log);
        let (start, hosts) = (Instant::now(), vec!["a".into()]);
        let options = output::OutputOptions { hosts: hosts.clone(), ..output::OutputOptions::default() };
        let mut output = Output::new(&mut printer, &options, start).unwrap();
        let mut live = Live::new("train".into(), hosts, Show::Rows, None, start);
        let report = |number, came| RoundReport { number, size: 2, came, ..RoundReport::default() };
        live.round(&report(1, Vec::new()), start);
        live.round(&report(2, vec![(1, "a".into())]), start);
        assert_eq!(live.rounds()[1], "round 2: worker 1 on a has come, 0 ms, 2 workers go on");
        let said = Progress { step: 1, ..Progress::default() };
        live.heard(&[Pulse::new(0, 0, Some((0, said)), None, 1)], start);
        live.refresh(start, &mut output);
        assert_eq!(output.footer().last(), live.rounds().last());
    }

    /// What a log gets during 45 seconds of which the program reports a step in each of the first 30.
    fn log_of(show: Show) -> String {
        let log = Log::default();
        let mut printer = Printer::plain(log.clone(), log.clone());
        let start = Instant::now();
        let options = output::OutputOptions { hosts: vec!["a".into()], ..output::OutputOptions::default() };
        let mut output = Output::new(&mut printer, &options, start).unwrap();
        let mut live = Live::new("train".into(), vec!["a".into()], show, None, start);
        assert_eq!(live.next_refresh(), None, "nothing was said");
        for second in 0..45 {
            let step = if second < 30 { second } else { 30 };
            let said = Progress { step, steps: Some(30), ..Progress::default() };
            let now = start + Duration::from_secs(second);
            live.heard(&[Pulse::new(0, second * 1_000_000_000, Some((step * 1_000_000_000, said)), None, 1)], now);
            live.refresh(now, &mut output);
        }
        live.ended(true, "ended", &mut output);
        drop(output);
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_log_gets_a_line_now_and_then_and_only_with_news() {
        let expected = "step 10/30  20 s left  1.00 steps/s\nstep 20/30  10 s left  1.00 steps/s\n";
        assert_eq!(log_of(Show::Lines), expected);
    }

    #[test]
    fn a_program_gets_all_of_it() {
        let text = log_of(Show::Json);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line.strip_prefix("progress: ").unwrap()).unwrap()).collect();
        assert_eq!(lines[10]["said"]["step"], 10);
        assert_eq!((&lines[10]["left"], &lines[10]["steps_per_second"]), (&20.0.into(), &1.0.into()));
        assert_eq!(lines.last().unwrap()["said"]["step"], 30);
    }
}
