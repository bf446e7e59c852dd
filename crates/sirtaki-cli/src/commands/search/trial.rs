//! One trial: a job of [`sirtaki_launch`] in a thread of its own, whose output goes into the trial's folder and whose
//! reports go to the runner.

use std::{collections::VecDeque, fs::File, io::Write, path::Path, sync::mpsc::Sender, thread, time::Instant};

use sirtaki_engine::files;
use sirtaki_launch::{
    Controller, Ending, Job, JobSpec, Launcher, Observer, environment::Wish, gpus, outside::Outside,
    placement::Placement, protocol::Stream,
};
use sirtaki_search::study::Asked;

use super::{prepare::Prepared, slots::Slot};
use crate::{
    env,
    launch::output::file_name,
    printer::Advice,
    study::{
        lock::host,
        plan::{StudyPlan, TrialWork},
        template::{BuiltIn, as_json},
        values::{Lines, Reported, reported},
    },
};

/// How many last lines are kept for those who ask why a trial failed.
const LAST: usize = 20;
/// Most characters of each.
const LONGEST: usize = 400;

/// What the runner hears.
pub(super) enum Event {
    /// A trial reported.
    Reported(u64, Reported),
    /// A trial ended: how, and the last lines it wrote.
    Ended(u64, Result<Ending, Advice>, Vec<String>),
    /// This process was sent a signal.
    Signal(i32),
}

/// The name of a trial's folder.
pub(super) fn folder_name(number: u64) -> String {
    format!("{number:04}")
}

/// Starts a trial in a slot.
pub(super) fn start(
    prepared: &Prepared,
    program: &Path,
    slot: usize,
    asked: &Asked,
    to: Sender<Event>,
) -> Result<Controller, Advice> {
    // A trial that goes on where another one ended does so in the same folder, with its checkpoints.
    let folder = std::path::absolute(prepared.folder.join(folder_name(asked.origin)))?;
    files::make_private(&folder)
        .map_err(|error| Advice::bare(format!("cannot make the folder {}: {error}", folder.display())))?;
    let spec = spec(prepared, &prepared.slots[slot], asked, &folder)?;
    let placement = Placement::find(&spec, &Outside::real(), &host())?;
    let job = Job::new(spec, placement, program)?;
    launch(asked.number, job, &folder, prepared.plan.reported(), to)
}

/// The trial as a job.
fn spec(prepared: &Prepared, slot: &Slot, asked: &Asked, folder: &Path) -> Result<JobSpec, Advice> {
    let plan = &prepared.plan;
    let definition = &plan.definition;
    let place = folder.to_str().ok_or_else(|| Advice::bare(format!("{}: the name is not text", folder.display())))?;
    let about = BuiltIn { trial: asked.number, folder: place, seed: definition.seed.wrapping_add(asked.number) };
    let words = plan.work.template().fill(&definition.space, &asked.point, &about);
    let words = match &plan.work {
        TrialWork::Command(_) => words,
        TrialWork::Train(_) => {
            let again = asked.attempt > 1 || asked.origin != asked.number;
            train_words(&words, plan.ranks.get(), Some((folder, again)))?
        }
    };
    let told = [
        (env::STUDY, definition.name.clone()),
        (env::TRIAL, asked.number.to_string()),
        (env::TRIAL_FOLDER, place.to_owned()),
        (env::OBJECTIVE, plan.reported()[..definition.objectives.len()].join(",")),
        (env::PARAMETERS, as_json(&definition.space, &asked.point).to_string()),
    ];
    let told = told.map(|(name, value)| (name.to_owned(), value)).into_iter();
    let variables = plan.env.clone().into_iter().chain(told);
    Ok(JobSpec {
        ranks: Some(plan.ranks),
        hosts: slot.hosts.clone(),
        via: slot.via(),
        ssh: prepared.ssh.clone(),
        remote_sirtaki: prepared.remote_sirtaki.clone(),
        env: variables.map(|(name, value)| Wish { name, value: Some(value) }).collect(),
        divide_gpus: !gpus::chooses_itself(&words),
        part: slot.part,
        tf_config: true,
        ..JobSpec::new(words)
    })
}

/// Whether `sirtaki train` understands what a study would tell it, at a point in the middle of its space.
pub(super) fn check_train(plan: &StudyPlan) -> Result<(), Advice> {
    let space = &plan.definition.space;
    let middle = space.fill(|index, _| space.parameters()[index].domain.from_unit(0.5));
    let about = BuiltIn { trial: 0, folder: ".", seed: 0 };
    train_words(&plan.work.template().fill(space, &middle, &about), plan.ranks.get(), None).map(drop)
}

#[cfg(feature = "train")]
fn train_words(options: &[String], ranks: usize, place: Option<(&Path, bool)>) -> Result<Vec<String>, Advice> {
    crate::commands::train::as_trial(options, ranks, place)
}

#[cfg(not(feature = "train"))]
fn train_words(_: &[String], _: usize, _: Option<(&Path, bool)>) -> Result<Vec<String>, Advice> {
    Err(Advice::new("this `sirtaki` cannot train", "build it with the feature `train`"))
}

/// Runs a trial's job in a thread of its own.
fn launch(number: u64, job: Job, folder: &Path, values: Vec<String>, to: Sender<Event>) -> Result<Controller, Advice> {
    let ranks = job.placement.plan.size();
    let mut files = Vec::new();
    for rank in 0..ranks {
        files.push(log(&folder.join(file_name(rank, &job.cast())))?);
    }
    let mut watcher = Watcher {
        number,
        files,
        out: (0..ranks).map(|_| Lines::default()).collect(),
        err: (0..ranks).map(|_| Lines::default()).collect(),
        last: VecDeque::new(),
        speaker: ranks,
        values,
        to,
    };
    let launcher = Launcher::new();
    let controller = launcher.controller();
    let spawned = thread::Builder::new().name(format!("trial {number}")).spawn(move || {
        let ending = launcher.run(&job, &mut watcher);
        let _ = watcher.to.send(Event::Ended(number, ending, watcher.last.into()));
    });
    spawned.map_err(|error| Advice::bare(format!("cannot start trial {number}: {error}")))?;
    Ok(controller)
}

/// A log that an earlier attempt may have begun.
fn log(path: &Path) -> Result<File, Advice> {
    let explain =
        |error: std::io::Error| Advice::new(format!("cannot write {}: {error}", path.display()), "is the disk full?");
    files::options(path).and_then(|mut options| options.append(true).create(true).open(path)).map_err(explain)
}

struct Watcher {
    number: u64,
    files: Vec<File>,
    out: Vec<Lines>,
    err: Vec<Lines>,
    last: VecDeque<String>,
    /// The lowest rank that has reported; where several do, its values count.
    speaker: usize,
    /// The names of what may be reported.
    values: Vec<String>,
    to: Sender<Event>,
}

impl Watcher {
    fn keep(last: &mut VecDeque<String>, line: &str) {
        if last.len() == LAST {
            last.pop_front();
        }
        last.push_back(line.trim_end().chars().filter(|c| !c.is_control()).take(LONGEST).collect());
    }
}

impl Observer for Watcher {
    fn note(&mut self, sentence: &str) {
        Self::keep(&mut self.last, sentence);
    }

    fn wrote(&mut self, _now: Instant, rank: usize, stream: Stream, bytes: &[u8]) {
        // A full disk must not end a trial: its values arrive all the same.
        let _ = self.files[rank].write_all(bytes);
        let Self { number, last, speaker, values, to, .. } = self;
        match stream {
            Stream::Err => self.err[rank].push(bytes, |line| Self::keep(last, line)),
            Stream::Out => self.out[rank].push(bytes, |line| {
                Self::keep(last, line);
                if let Some(said) = reported(line, values).filter(|_| rank <= *speaker) {
                    *speaker = rank;
                    let _ = to.send(Event::Reported(*number, said));
                }
            }),
        }
    }

    fn closed(&mut self, rank: usize) {
        let Self { number, last, speaker, values, to, .. } = self;
        self.err[rank].finish(|line| Self::keep(last, line));
        self.out[rank].finish(|line| {
            Self::keep(last, line);
            if let Some(said) = reported(line, values).filter(|_| rank <= *speaker) {
                let _ = to.send(Event::Reported(*number, said));
            }
        });
    }
}
