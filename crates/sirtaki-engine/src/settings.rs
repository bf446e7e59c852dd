//! What a job can configure about its engine. Plain values; the starting program reads flags and environment.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use sirtaki_comm::Rank;

use crate::{decide::fuse::Limits, runtime::device::DeviceSettings, telemetry::recorder::Culprit};

/// Takes a warning for people.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// Says how a rank of the job ended, in words that follow "it", such as "was killed by SIGKILL"; `None` while that is
/// not known. It is asked several times within a moment and has to answer at once.
pub type FindEnding = Arc<dyn Fn(Rank) -> Option<String> + Send + Sync>;

/// Says what this process's program is doing, such as `evaluate (train.py:41)`, for warnings about a late rank. It is
/// asked in a thread of its own and may take its time.
pub type CurrentWork = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Told of the rank that this one waited for in vain.
pub type Accuse = Arc<dyn Fn(Culprit) + Send + Sync>;

/// What to do with the counted numbers when the job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Profiling {
    /// Rank 0 reports them, as a page of text, where its warnings go.
    Said,
    /// The same, and they are also written into this file, as JSON.
    File(PathBuf),
}

/// The settings, with defaults that suit most jobs.
#[derive(Clone)]
pub struct Settings {
    /// Which tensors are fused. Rank 0's values count.
    pub limits: Limits,
    /// Whether an order that repeats is adopted, so that it needs no further agreement. Rank 0's value counts.
    pub adopt: bool,
    /// How long a tensor waits before the wait is explained; `None` for never.
    pub warn_after: Option<Duration>,
    /// How long a tensor waits for a late rank before that is an error on all ranks; `None` for never. Ranks that wait
    /// for each other get an error at once.
    pub hang_timeout: Option<Duration>,
    /// How tensors in the memory of GPUs travel.
    pub device: DeviceSettings,
    /// How long a rank waits for others in an adopted order before it asks for agreement again.
    pub patience: Duration,
    /// How many names are remembered although no rank waits for a tensor of that name. Rank 0's value counts.
    #[doc(hidden)]
    pub names_limit: usize,
    /// Whether the flight record is kept. Only benchmarks switch it off, to measure what it costs.
    #[doc(hidden)]
    pub record: bool,
    /// The file in which rank 0 keeps a timeline of all ranks from the start; see [`crate::Engine::start_timeline`].
    pub timeline: Option<PathBuf>,
    /// How a timeline is written.
    pub timeline_form: TimelineForm,
    /// Most bytes of a timeline. It keeps the beginning: what comes when it is full is dropped and counted.
    pub timeline_limit: u64,
    /// Whether there is a profile at the end. All ranks need the same value.
    pub profile: Option<Profiling>,
    /// The folder in which rank 0 records the run, or next to it if it holds one already. All ranks need the same
    /// value.
    pub run_folder: Option<PathBuf>,
    /// The folder in which rank 0 writes a file for TensorBoard.
    pub tensorboard: Option<PathBuf>,
    /// Where rank 0's warnings and the profile go; nowhere unless set.
    pub warn: Warn,
    /// Knows how ranks ended; knows nothing unless set.
    pub ending: FindEnding,
    /// Knows what this process's program is doing; knows nothing unless set.
    pub current_work: CurrentWork,
    /// Is told, when the engine ends, which rank this one waited for in vain; does nothing unless set.
    pub accuse: Accuse,
}

/// How a timeline is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimelineForm {
    /// All ranks with their tensors, collectives, phases and counters.
    #[default]
    Ranks,
    /// With Horovod's events and layout, for tools that were written for it.
    Horovod {
        /// Whether marks show where a collective begins.
        cycles: bool,
    },
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits { fused: 16 << 20, large: 1 << 20 },
            adopt: true,
            warn_after: Some(Duration::from_secs(10)),
            hang_timeout: Some(Duration::from_secs(1800)),
            device: DeviceSettings::default(),
            patience: Duration::from_millis(500),
            names_limit: 1 << 16,
            record: true,
            timeline: None,
            timeline_form: TimelineForm::default(),
            timeline_limit: 256 << 20,
            profile: None,
            run_folder: None,
            tensorboard: None,
            warn: Arc::new(|_| ()),
            ending: Arc::new(|_| None),
            current_work: Arc::new(|| None),
            accuse: Arc::new(|_| ()),
        }
    }
}

impl Settings {
    /// Whether rank 0 needs to know what other hosts have counted.
    pub(crate) fn wants_counts(&self) -> bool {
        self.profile.is_some() || self.run_folder.is_some()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limits", &self.limits)
            .field("adopt", &self.adopt)
            .field("warn_after", &self.warn_after)
            .field("hang_timeout", &self.hang_timeout)
            .field("device", &self.device)
            .field("patience", &self.patience)
            .field("names_limit", &self.names_limit)
            .field("record", &self.record)
            .field("timeline", &self.timeline)
            .field("timeline_form", &self.timeline_form)
            .field("timeline_limit", &self.timeline_limit)
            .field("profile", &self.profile)
            .field("run_folder", &self.run_folder)
            .field("tensorboard", &self.tensorboard)
            .finish_non_exhaustive()
    }
}
