//! Run folders on the disk. Other programs wrote them, so every size is checked before memory is allocated, every
//! number before it is used, and a damaged part does not make the rest unreadable.

mod files;
mod profile;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub(crate) use self::profile::{GpuProfile, Operation, Profile, RankProfile};
use crate::printer::Advice;

/// What the engine writes at the start of a run and replaces at its end.
pub(crate) const RUN: &str = "run.json";
/// What `sirtaki bench scaling` planned for a run, and how the run ended.
pub(crate) const PLAN: &str = "plan.json";
/// One row per step, or per several steps.
pub(crate) const STEPS: &str = "steps.jsonl";
/// What was counted.
pub(crate) const PROFILE: &str = "profile.json";

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum RunState {
    /// Successfully.
    Finished,
    /// With an error.
    Failed(String),
    /// It is still running, or was killed.
    #[default]
    Unfinished,
}

impl RunState {
    /// One word.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            RunState::Finished => "finished",
            RunState::Failed(_) => "failed",
            RunState::Unfinished => "unfinished",
        }
    }
}

/// One row of measurements made during the run.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(crate) struct RecordedStep {
    /// Since the start.
    #[serde(deserialize_with = "sound")]
    pub(crate) seconds: Option<f64>,
    /// Its number.
    pub(crate) step: u64,
    /// Seen by all ranks together.
    #[serde(default, deserialize_with = "sound")]
    pub(crate) samples: Option<f64>,
    /// Of training.
    #[serde(default, deserialize_with = "sound")]
    pub(crate) loss: Option<f64>,
    /// Of training.
    #[serde(default, deserialize_with = "sound")]
    pub(crate) accuracy: Option<f64>,
    /// Of samples that were not trained with.
    #[serde(default, deserialize_with = "sound")]
    pub(crate) test_loss: Option<f64>,
    /// Of samples that were not trained with.
    #[serde(default, deserialize_with = "sound")]
    pub(crate) test_accuracy: Option<f64>,
}

/// A machine, as rank 0 saw its own.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Machine {
    /// Its name.
    pub(crate) processor: Option<String>,
    /// Of the machine.
    pub(crate) cores: Option<u64>,
    /// Of the machine.
    pub(crate) memory_bytes: Option<u64>,
}

/// How it ended, as it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunEnd {
    /// From start to end.
    #[serde(deserialize_with = "sound")]
    pub(crate) seconds: Option<f64>,
    /// One sentence.
    pub(crate) failed: Option<String>,
    /// Rows dropped for lack of space.
    #[serde(skip_serializing)]
    pub(crate) dropped: u64,
    /// Processes that wanted a processor of rank 0's machine, on average.
    #[serde(deserialize_with = "sound", skip_serializing)]
    pub(crate) load: Option<f64>,
}

/// What the launcher saw of the end.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Exit {
    code: i64,
    how: String,
}

/// `run.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    format: String,
    started: Option<f64>,
    ended: Option<RunEnd>,
    exit: Option<Exit>,
    rounds: Vec<String>,
    command: Vec<String>,
    launch: Vec<String>,
    version: String,
    ranks: usize,
    hosts: Vec<String>,
    machine: Machine,
    #[serde(deserialize_with = "texts")]
    environment: BTreeMap<String, String>,
    #[serde(deserialize_with = "texts")]
    settings: BTreeMap<String, String>,
}

/// `plan.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RunPlan {
    /// What kind of file this is.
    pub(crate) format: String,
    /// What was started.
    pub(crate) command: Vec<String>,
    /// The number of workers.
    pub(crate) ranks: usize,
    /// With these settings, where the program does not say otherwise.
    #[serde(deserialize_with = "texts")]
    pub(crate) settings: BTreeMap<String, String>,
    /// Missing while it runs.
    pub(crate) ended: Option<RunEnd>,
}

/// A run as far as it can be known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RecordedRun {
    /// The folder's name.
    pub(crate) name: String,
    /// The folder.
    pub(crate) folder: PathBuf,
    /// Seconds since 1970.
    pub(crate) started: Option<f64>,
    /// From start to end.
    pub(crate) seconds: Option<f64>,
    /// Processes that wanted a processor of rank 0's machine, on average.
    pub(crate) load: Option<f64>,
    /// How it ended.
    pub(crate) state: RunState,
    /// Of rank 0.
    pub(crate) command: Vec<String>,
    /// Of Sirtaki.
    pub(crate) version: String,
    /// Workers.
    pub(crate) ranks: usize,
    /// The host of every rank.
    pub(crate) hosts: Vec<String>,
    /// Rank 0's.
    pub(crate) machine: Machine,
    /// Variables that matter.
    pub(crate) environment: BTreeMap<String, String>,
    /// Hyper-parameters.
    pub(crate) settings: BTreeMap<String, String>,
    /// Whether it is one of a series that was planned.
    pub(crate) planned: bool,
    /// The rounds of workers that came and went, a sentence each.
    pub(crate) rounds: Vec<String>,
    /// What was measured during the run, in the order of time.
    pub(crate) steps: Vec<RecordedStep>,
    /// What was counted.
    pub(crate) profile: Option<Profile>,
    /// Parts that could not be read.
    pub(crate) problems: Vec<String>,
}

/// A folder that cannot be read, and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unreadable {
    /// The folder's name.
    pub(crate) name: String,
    /// One sentence.
    pub(crate) why: String,
}

/// The run folders meant by what was typed: these, or all in these.
pub(crate) fn find(typed: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for path in typed {
        let shown = path.display();
        if !path.exists() {
            let hint = "name the folder of a run, such as runs/lenet-20261115-095204, or one with runs in it";
            return Err(Advice::new(format!("there is no {shown}"), hint).into());
        }
        if !path.is_dir() {
            return Err(
                Advice::new(format!("{shown} is not a folder"), "name the folder of a run, not a file in it").into()
            );
        }
        let inside = if is_run(path) { vec![path.clone()] } else { files::runs_in(path) };
        if inside.is_empty() {
            let hint = "`sirtaki train` records by itself; other programs with `sirtaki run --record=FOLDER`";
            return Err(
                Advice::new(format!("{shown} is not a run: it has no {RUN}, and no folder in it has"), hint).into()
            );
        }
        folders.extend(inside);
    }
    // A run that is named twice counts once.
    let mut seen = std::collections::BTreeSet::new();
    folders.retain(|folder| seen.insert(folder.canonicalize().unwrap_or_else(|_| folder.clone())));
    Ok(folders)
}

fn is_run(folder: &Path) -> bool {
    folder.join(RUN).exists() || folder.join(PLAN).exists()
}

/// Reads a run folder.
pub(crate) fn read(folder: &Path) -> Result<RecordedRun, Unreadable> {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let name = real.file_name().map_or_else(|| real.display().to_string(), |name| name.to_string_lossy().into_owned());
    let unreadable = |why: String| Unreadable { name: name.clone(), why };
    let plan: Option<RunPlan> = files::json(&folder.join(PLAN), files::SMALL).map_err(unreadable)?;
    let written: Option<Written> = files::json(&folder.join(RUN), files::SMALL).map_err(unreadable)?;
    if let Some(written) = &written
        && written.format != "sirtaki run, version 1"
    {
        return Err(unreadable(format!("its format is `{}`, which this version does not know", written.format)));
    }
    let mut run = RecordedRun { folder: real, ..assemble(name.clone(), written, plan) };
    match files::steps(&folder.join(STEPS)) {
        Ok((steps, damaged)) => {
            run.steps = steps;
            if damaged > 0 {
                run.problems.push(format!("{damaged} damaged lines of {STEPS} were left out"));
            }
        }
        Err(why) => run.problems.push(why),
    }
    match files::json::<Profile>(&folder.join(PROFILE), files::LARGE) {
        Ok(profile) => run.profile = profile.map(Profile::checked),
        Err(why) => run.problems.push(why),
    }
    if run.steps.is_empty() && run.state == RunState::Finished {
        run.problems.push("it says nothing of its steps".into());
    }
    Ok(run)
}

/// What the run says about itself takes precedence over what was planned.
fn assemble(name: String, written: Option<Written>, plan: Option<RunPlan>) -> RecordedRun {
    let (recorded, planned) = (written.is_some(), plan.is_some());
    let (written, plan) = (written.unwrap_or_default(), plan.unwrap_or_default());
    let planned_end = plan.ended.unwrap_or_default();
    let ended = written.ended.clone().unwrap_or_default();
    let mut settings = plan.settings;
    settings.extend(written.settings);
    let commands = [written.launch, written.command, plan.command];
    let killed = written.exit.filter(|exit| exit.code != 0).map(|exit| exit.how);
    let problems = (ended.dropped > 0).then(|| format!("{} rows were dropped by a slow disk", ended.dropped));
    RecordedRun {
        name,
        started: written.started.filter(|seconds| seconds.is_finite()),
        seconds: ended.seconds.or(planned_end.seconds),
        load: ended.load,
        state: match ended.failed.or(killed).or(planned_end.failed) {
            Some(why) => RunState::Failed(why),
            None if written.ended.is_some() => RunState::Finished,
            None if !recorded && planned_end.seconds.is_some() => {
                RunState::Failed("it ended without having recorded anything".into())
            }
            None => RunState::Unfinished,
        },
        command: commands.into_iter().find(|command| !command.is_empty()).unwrap_or_default(),
        version: written.version,
        ranks: if written.ranks == 0 { plan.ranks } else { written.ranks },
        hosts: written.hosts,
        machine: written.machine,
        environment: written.environment,
        rounds: written.rounds,
        settings,
        planned,
        problems: problems.into_iter().collect(),
        ..RecordedRun::default()
    }
}

/// A number that can be drawn.
fn sound<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.filter(|value| value.is_finite() && value.abs() < 1e15))
}

/// Values of any kind, as text.
fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(BTreeMap::<String, Value>::deserialize(from)?.into_iter().map(|(name, value)| (name, text(value))).collect())
}
