//! From what was typed to a study that can run: its plan, its folder, its journal and the slots for its trials. Whatever
//! can be refused is refused here, before anything starts.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use sirtaki_launch::{Ssh, allocation::Allocation, cores, gpus, outside::Outside};
use sirtaki_search::{
    journal::Owner,
    stopper::Stopper,
    study::{Definition, Ending, State},
};

use super::slots::{self, Slot};
use crate::{
    args::search::Search,
    launch::runs::RUNS,
    printer::{Advice, Printer, Style},
    study::{
        JOURNAL, SLOT,
        lock::{StudyClaim, host},
        now,
        plan::{StudyPlan, TrialWork, promoting},
        store::{self, Opened, StudyStore, WantedStudy},
    },
};

/// What trials and their launcher need at the end of an allocation.
const MARGIN: Duration = Duration::from_secs(15);

/// A study that can run.
pub(super) struct Prepared {
    pub(super) plan: StudyPlan,
    pub(super) store: StudyStore,
    pub(super) folder: PathBuf,
    pub(super) slots: Vec<Slot>,
    /// How other hosts are reached.
    pub(super) ssh: Ssh,
    /// Where `sirtaki` is there.
    pub(super) remote_sirtaki: Option<String>,
    /// When everything has to be over.
    pub(super) end: Option<Instant>,
    pub(super) _claim: StudyClaim,
}

pub(super) fn prepare(arguments: &Search, printer: &mut Printer) -> Result<Prepared> {
    let outside = Outside::real();
    let plan = plan(arguments, &outside)?;
    let slots = slots(arguments, &plan, &outside)?;
    let end = end(arguments, &outside);
    if plan.definition.trials.is_none() && end.is_none() && plan.definition.sampler != "grid" {
        let hint = "say `trials = 100` in the file, --trials 100, or --time-limit 1h";
        return Err(Advice::new("nothing says when the study ends", hint).into());
    }
    let folder = match &arguments.folder {
        Some(folder) => folder.clone(),
        None => Path::new(RUNS).join(&plan.definition.name),
    };
    store::make_folder(&folder)?;
    let claim = StudyClaim::new(&folder)?;
    let wanted = if arguments.resume { WantedStudy::Any } else { WantedStudy::New };
    let opened = StudyStore::open(&folder.join(JOURNAL), plan.definition.clone(), wanted)?;
    if let Some(torn) = &opened.torn {
        let text = format!("the last line of the journal was torn and is dropped: {torn}");
        printer.labelled(Style::Warning, "warning:", &text);
    }
    let store = if opened.existed { resumed(opened, &plan)? } else { begun(opened, &plan, printer)? };
    warn_of_changes(store.study().definition(), &plan.definition, printer);
    let ssh = Ssh { config: arguments.ssh_config.clone(), ..Ssh::default() };
    let remote_sirtaki = arguments.remote_sirtaki.clone();
    Ok(Prepared { plan, store, folder, slots, ssh, remote_sirtaki, end, _claim: claim })
}

fn plan(arguments: &Search, outside: &Outside<'_>) -> Result<StudyPlan> {
    let mut plan = match (&arguments.file, &arguments.train) {
        (Some(file), _) => {
            let text = (outside.read)(file).map_err(|error| {
                let hint = "name the file that describes the study; `sirtaki search --help` shows one";
                Advice::new(format!("cannot read {}: {error}", file.display()), hint)
            })?;
            let stem = file.file_stem().map_or_else(|| "study".into(), |stem| stem.to_string_lossy());
            StudyPlan::parse(file, &text, &stem)?
        }
        (None, Some(space)) => {
            let mut plan = StudyPlan::train(space, &arguments.options, "train")?;
            plan.definition.trials = Some(50);
            plan
        }
        (None, None) => return Err(Advice::new("there is no study", "name its file, or use --train").into()),
    };
    if let Some(rule) = &arguments.stop {
        let stopper = rule.parse::<Stopper>().map_err(crate::study::advice)?;
        let train = matches!(plan.work, TrialWork::Train(_));
        plan.definition.stopper = if train { promoting(stopper, &rule.as_str().into()) } else { stopper };
    }
    plan.ranks = arguments.ranks.unwrap_or(plan.ranks);
    plan.definition.trials = arguments.trials.map(|trials| trials.get() as u64).or(plan.definition.trials);
    plan.definition.seed = arguments.seed.unwrap_or(plan.definition.seed);
    if let Some(name) = &arguments.sampler {
        plan.definition.sampler = sirtaki_search::sampler::find(name).map_err(crate::study::advice)?.name.into();
    }
    if matches!(plan.work, TrialWork::Train(_)) {
        super::trial::check_train(&plan)?;
    }
    Ok(plan)
}

fn slots(arguments: &Search, plan: &StudyPlan, outside: &Outside<'_>) -> Result<Vec<Slot>> {
    let ranks = plan.ranks.get();
    let on = |hosts: &[_]| match slots::on(hosts, ranks) {
        slots if slots.is_empty() => {
            let message = format!("the hosts have no room for a trial of {ranks} ranks");
            Err(Advice::new(message, "give them more slots, such as -H a:8, or use fewer --ranks").into())
        }
        slots => Ok(slots),
    };
    match (arguments.slots, &arguments.hosts) {
        (Some(count), _) => {
            if let Some(most) = room_by_gpus(plan, outside)?.filter(|most| count.get() > *most) {
                let message = format!("{count} trials at a time would need more GPUs than this machine has");
                return Err(Advice::new(message, format!("use -n {most}, or fewer `gpus`")).into());
            }
            Ok(slots::here(count.get()))
        }
        (None, Some(hosts)) => on(&hosts.0),
        (None, None) => match Allocation::find(outside)? {
            Some(allocation) => on(&allocation.hosts),
            None => {
                let by_cores = (cores::usable().len() / ranks).max(1);
                Ok(slots::here(room_by_gpus(plan, outside)?.unwrap_or(by_cores)))
            }
        },
    }
}

/// For how many trials at a time this machine has GPUs, where the study says how many one needs.
fn room_by_gpus(plan: &StudyPlan, outside: &Outside<'_>) -> Result<Option<usize>> {
    let Some(wanted) = plan.gpus else { return Ok(None) };
    let found = gpus::usable(outside.variable("CUDA_VISIBLE_DEVICES").as_deref()).len();
    if found < wanted.get() {
        let message = format!("a trial needs {wanted} GPUs, and this machine has {found}");
        return Err(Advice::new(message, "use hosts that have them (-H), or fewer `gpus`").into());
    }
    Ok(Some(found / wanted.get()))
}

/// The end of the time that was given, or of the allocation.
fn end(arguments: &Search, outside: &Outside<'_>) -> Option<Instant> {
    let limit = arguments.time_limit.map(|limit| Instant::now() + limit);
    let allocated = outside.variable("SLURM_JOB_END_TIME").and_then(|text| text.parse::<u64>().ok()).and_then(|end| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(Instant::now() + Duration::from_secs(end).checked_sub(now)?.saturating_sub(MARGIN))
    });
    limit.into_iter().chain(allocated).min()
}

/// What decides about suggestions stays as it was when the study began, whatever the file says by now.
fn warn_of_changes(kept: &Definition, wanted: &Definition, printer: &mut Printer) {
    let words = |of: &Definition| [of.sampler.clone(), of.stopper.to_string(), of.seed.to_string()];
    for ((key, was), is) in ["sampler", "stop", "seed"].into_iter().zip(words(kept)).zip(words(wanted)) {
        if was != is {
            let text = format!("the study goes on with the `{key}` it began with, {was}, and not with {is}");
            printer.labelled(Style::Warning, "warning:", &text);
        }
    }
}

/// A new study gets what earlier ones found out, and the points that are to be tried first.
fn begun(opened: Opened, plan: &StudyPlan, printer: &mut Printer) -> Result<StudyStore, Advice> {
    let mut store = opened.store;
    for path in &plan.warm_start {
        let earlier = store::look(path, None)?;
        let name = &earlier.definition().name;
        let Some(record) = earlier.archive().studies().find(|record| record.name == *name) else { continue };
        let taken = store.change(true, |study| Ok(study.warm_start(record)))?;
        let text =
            format!("{taken} of {} trials of study {name} fit and are known from the start", record.trials.len());
        printer.message(&text);
    }
    store.change(true, |study| plan.enqueue.iter().try_for_each(|point| study.enqueue(point).map(drop)))?;
    Ok(store)
}

/// A study goes on in its space. Trials that ran when its coordinator ended have ended with it, and wait to run again.
fn resumed(opened: Opened, plan: &StudyPlan) -> Result<StudyStore, Advice> {
    let mut store = opened.store;
    let study = store.study();
    study.check_space(&plan.definition.space).map_err(crate::study::advice)?;
    if study.definition().objectives != plan.definition.objectives {
        let words =
            |of: &[sirtaki_search::study::Objective]| of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (was, is) = (words(&study.definition().objectives), words(&plan.definition.objectives));
        let message =
            format!("study `{}` began with another objective: it was {was} and is {is}", plan.definition.name);
        return Err(Advice::new(message, "go back to the former one, or give the study another name"));
    }
    let orphans: Vec<u64> = study
        .trials()
        .iter()
        .filter(|trial| trial.state == State::Running && trial.attribute(SLOT).is_some())
        .map(|trial| trial.number)
        .collect();
    store.change(true, |study| {
        for number in orphans {
            study.tell(number, Ending::Interrupted("its coordinator ended".into()), now())?;
        }
        if let Some(trials) = plan.definition.trials.filter(|trials| study.definition().trials != Some(*trials)) {
            study.set_trials(trials);
        }
        let here = format!("{} {}", host(), std::process::id());
        study.annotate(Owner::User, "sirtaki:coordinator", here.as_str().into());
        Ok(())
    })?;
    Ok(store)
}
