//! Who on rank 0 is told what the program reports: the folder of the run, and TensorBoard's file.

use std::{collections::BTreeMap, path::PathBuf};

use super::{event_file::EventFile, profile::Profile, progress::Progress, run_folder::RunFolder, transfer::lock};
use crate::{Settings, runtime::shared::Shared};

/// Those that there are.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    run_folder: Option<RunFolder>,
    events: Option<EventFile>,
}

impl Listeners {
    /// The numbers counted so far.
    pub(super) fn profile(&mut self, profile: impl FnOnce() -> Profile) {
        if let Some(run_folder) = &mut self.run_folder {
            run_folder.profile(profile());
        }
    }

    /// There is nothing to report any more.
    pub(super) fn end_events(&mut self) {
        if let Some(events) = self.events.take() {
            events.end();
        }
    }

    /// The run is over, for this reason if it failed.
    pub(super) fn end_run(&mut self, profile: Profile, failed: Option<String>) {
        if let Some(run_folder) = self.run_folder.take() {
            run_folder.end(profile, failed);
        }
    }
}

impl Shared {
    /// Rank 0 begins to write down what the program reports, where that is wanted.
    pub(crate) fn start_listeners(&self) {
        if self.group.rank() != 0 {
            return;
        }
        let Settings { run_folder, tensorboard, warn, .. } = &self.settings;
        let mut listeners = lock(&self.telemetry.listeners);
        let hint = "hint: name a folder that may be made and written to on rank 0's host";
        if let Some(folder) = run_folder {
            let begun = RunFolder::start(folder, &self.group, warn.clone());
            let failed = |error| warn(&format!("the run cannot be recorded in {}: {error}; {hint}", folder.display()));
            listeners.run_folder = begun.map_err(failed).ok();
        }
        if let Some(folder) = tensorboard {
            let failed =
                |error| warn(&format!("there is nothing for TensorBoard in {}: {error}; {hint}", folder.display()));
            listeners.events = EventFile::start(folder, warn.clone()).map_err(failed).ok();
        }
    }

    /// The program has come this far.
    pub(crate) fn progress(&self, progress: &Progress) {
        self.telemetry.stream.recorder.progress(progress);
        let mut listeners = lock(&self.telemetry.listeners);
        if let Some(run_folder) = &mut listeners.run_folder {
            run_folder.progress(progress, self.telemetry.stream.last_usage());
        }
        if let Some(events) = &listeners.events {
            events.progress(progress);
        }
    }

    /// More settings of the program.
    pub(crate) fn describe(&self, settings: BTreeMap<String, String>) {
        let mut listeners = lock(&self.telemetry.listeners);
        if let Some(events) = &listeners.events {
            events.settings(&settings);
        }
        if let Some(run_folder) = &mut listeners.run_folder {
            run_folder.settings(settings);
        }
    }

    /// Where the run is recorded.
    pub(crate) fn kept_in(&self) -> Option<PathBuf> {
        lock(&self.telemetry.listeners).run_folder.as_ref().map(|run_folder| run_folder.folder().to_owned())
    }
}
