//! What people see of a study while it runs: one line on a terminal, and a page.

use std::time::{Duration, Instant};

use sirtaki_search::study::State;

use super::{
    super::{
        live::{self, Standing},
        page,
    },
    Runner,
};
use crate::{launch::progress::Dashboard, printer::Stream, study::summary};

/// The page is drawn at most so often, and so much of the time at most goes into drawing it.
const OFTEN: Duration = Duration::from_secs(1);
const SHARE: u32 = 50;

/// The page of a study that runs.
pub(super) struct LivePage {
    dashboard: Dashboard,
    next: Instant,
}

impl Runner<'_> {
    /// Shows the study on a page, too, and says where that is.
    pub(in super::super) fn show_on(&mut self, dashboard: Dashboard) {
        let address = format!("dashboard: {}", dashboard.url());
        self.page = Some(LivePage { dashboard, next: Instant::now() });
        let standing = self.standing();
        self.draw(&standing);
        self.printer.message(&address);
    }

    pub(super) fn shows_progress(&self) -> bool {
        !self.quiet && self.printer.is_terminal(Stream::Err)
    }

    pub(super) fn show(&mut self) {
        let due = self.page.as_ref().is_some_and(|page| page.next <= Instant::now());
        if !self.shows_progress() && !due {
            return;
        }
        let standing = self.standing();
        if due {
            self.draw(&standing);
        }
        if self.shows_progress() {
            let width = self.printer.size().0;
            self.printer.progress(&live::line(&standing, width));
        }
    }

    /// The last look at the page.
    pub(super) fn close_page(&mut self) {
        let standing = self.standing();
        self.draw(&standing);
        if let Some(page) = self.page.take() {
            page.dashboard.finish();
        }
    }

    fn draw(&mut self, standing: &Standing) {
        let Some(page) = &mut self.page else { return };
        let begin = Instant::now();
        page.dashboard.show(page::live(self.prepared.store.study(), &live::line(standing, usize::MAX)));
        page.next = Instant::now() + OFTEN.max(SHARE * begin.elapsed());
    }

    fn standing(&self) -> Standing {
        let study = self.prepared.store.study();
        let ended: Vec<_> = study.trials().iter().filter(|trial| trial.state.is_over()).collect();
        let times: Vec<f64> = ended.iter().filter_map(|trial| summary::seconds(trial)).collect();
        let trials = study.definition().trials;
        let (busy, slots) = (self.running.len(), self.running.len() + self.free.len());
        let open = trials.map(|trials| trials.saturating_sub((ended.len() + busy) as u64));
        let mean = (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64);
        let estimate = open.zip(mean).and_then(|(open, mean)| live::time_left(open, busy, slots, mean));
        let limit = self.prepared.end.map(|end| end.saturating_duration_since(Instant::now()));
        Standing {
            ended: ended.len(),
            trials,
            busy: (busy, slots),
            best: study.best().and_then(|best| Some((*best.values.first()?, best.number))),
            failed: ended.iter().filter(|trial| !matches!(trial.state, State::Finished | State::Stopped)).count(),
            left: estimate.into_iter().chain(limit).min(),
        }
    }
}
