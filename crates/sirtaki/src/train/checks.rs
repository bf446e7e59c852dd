//! Checks, before a run begins, that settings, data and checkpoints make it possible.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{
    data_sets::{DataSet, Domain, SampleKind as _},
    networks::{Model, Network},
    settings::{BatchSize, Method, Precision, Settings, Stages},
    strategy::LearningStrategy,
    work_split::Shares,
};
use crate::{
    Error, Result, Resumed, World,
    data::{Position, Worker},
    schedule::{Decay, Schedule},
};

/// Whether this many workers can train as the settings say, as far as that can be checked without the data.
pub fn check(settings: &Settings, workers: usize) -> Result<()> {
    let copies = settings.copies(workers)?;
    let sizes = settings.batch.sizes(copies)?;
    settings.strategy.check(settings)?;
    if settings.stages.is_some_and(|stages| stages.shard_parameters) {
        check_lending(settings)?;
    }
    if settings.context.is_some() && settings.model.domain() != Domain::Text {
        let problem =
            format!("--context is the length of sequences of text, and {} is not for text", settings.model.name());
        return Err(Error::setting(problem, "leave --context out, or take --model transformer"));
    }
    check_volumes(settings)?;
    if let Some(stages) = settings.stages {
        check_parts(settings, stages)?;
    }
    if settings.model.has_statistics() && settings.precision != Precision::F32 {
        let (name, precision) = (settings.model.name(), settings.precision.name());
        let problem = format!("the batch norm of {name} keeps running statistics, which {precision} is too coarse for");
        return Err(Error::setting(problem, "leave out --precision, or take a network without batch norm"));
    }
    rates(settings, copies, 1)?;
    let worker = Worker { rank: 0, world: copies };
    Shares::new(0, Position::start(0), worker, settings.shards, sizes.1).map(drop)
}

/// Whether workers may come and go, up to this many.
pub fn check_rounds(settings: &Settings, most: usize) -> Result<()> {
    if let (Some(_), BatchSize::Worker(size)) = (settings.shards, settings.batch) {
        let problem = "a batch for each worker changes with their number, and with --reproducible nothing may";
        return Err(Error::setting(problem, format!("give the batch of all, such as --global-batch {}", size * most)));
    }
    if settings.model.has_statistics() {
        let name = settings.model.name();
        let problem = format!(
            "the batch norm of {name} gathers statistics during a step, and a step that a lost worker breaks off has to \
             change nothing"
        );
        let hint = "take a network without batch norm, or let --restarts 3 go on from the last checkpoint";
        return Err(Error::setting(problem, hint));
    }
    let excluded = match settings {
        Settings { stages: Some(Stages { shard_parameters: true, .. }), .. } => "--shard-parameters".to_owned(),
        Settings { stages: Some(_), .. } => "--mesh".to_owned(),
        Settings { strategy: LearningStrategy::Data, .. } => return check(settings, most),
        Settings { strategy, .. } => format!("--strategy {}", strategy.name()),
    };
    let problem = format!("with {excluded} no worker has all of the training's state, so none may be lost");
    let hint = format!("leave out {excluded}, or let --restarts 3 go on from the last checkpoint");
    Err(Error::setting(problem, hint))
}

/// What is asked for can only be asked of networks for volumes, and of whole ones.
fn check_volumes(settings: &Settings) -> Result<()> {
    let name = settings.model.name();
    let able = |can: fn(Model) -> bool| {
        let names: Vec<&str> = Model::all().filter(|model| can(*model)).map(Model::name).collect();
        names.join(" or ")
    };
    if settings.patch.is_some() && settings.model.domain() != Domain::Volumes {
        let problem = format!("--patch is the size of patches of volumes, and {name} is not for volumes");
        let others = able(|model| model.domain() == Domain::Volumes);
        return Err(Error::setting(problem, format!("leave --patch out, or take --model {others}")));
    }
    if settings.export.is_some() && !settings.model.exports() {
        let problem = format!("{name} cannot be written as an ONNX file");
        return Err(Error::setting(problem, format!("leave --export out, or take --model {}", able(Model::exports))));
    }
    if settings.export.is_some() && settings.stages.is_some() {
        let problem = "a network that is divided among workers cannot be written as an ONNX file";
        let hint =
            "leave --export out; afterwards --resume with it, and without --mesh and --shard-parameters, writes one";
        return Err(Error::setting(problem, hint));
    }
    Ok(())
}

/// Whether workers can keep parts of the parameters.
fn check_lending(settings: &Settings) -> Result<()> {
    if settings.method == Method::Lars {
        let problem = "the state of lars cannot be split over workers: its rates come from the norms of whole layers";
        let hint = "leave --shard-parameters out, or take --optimizer sgd, adam or adamw";
        return Err(Error::setting(problem, hint));
    }
    if settings.strategy == LearningStrategy::Central {
        let problem = "--strategy central keeps whole weights on every host, and --shard-parameters parts of them";
        return Err(Error::setting(problem, "leave one of the two out"));
    }
    Ok(())
}

/// Whether the network can be divided like this.
fn check_parts(settings: &Settings, stages: Stages) -> Result<()> {
    let (model, precision) = (settings.model, settings.precision);
    if precision != Precision::F32 {
        let problem = format!("a network that is divided among workers does not compute in {}", precision.name());
        return Err(Error::setting(problem, "leave out --precision or --mesh"));
    }
    if stages.parts > model.parts() {
        let (name, most) = (model.name(), model.parts());
        let problem = match most {
            1 => format!("the layers of {name} cannot be split over workers"),
            _ => format!("the layers of {name} can be split over at most {most} workers, not {}", stages.parts),
        };
        let able: Vec<&str> = Model::all().filter(|other| other.parts() >= stages.parts).map(Model::name).collect();
        let hint = match able.as_slice() {
            [] => format!("take --mesh with tensor={most} at most"),
            able => format!("leave the axis tensor out, or take --model {}", able.join(" or ")),
        };
        return Err(Error::setting(problem, hint));
    }
    if stages.parts > 1 && settings.method == Method::Lars {
        let problem = "lars needs the norms of whole layers, which are split over workers here";
        return Err(Error::setting(problem, "leave the axis tensor out, or take --optimizer sgd, adam or adamw"));
    }
    Ok(())
}

/// Whether the data set of the settings can be read, and has enough samples for this many workers.
pub fn check_data(settings: &Settings, workers: usize) -> Result<()> {
    settings.model.check_data(settings, workers)
}

/// The same for a network by its type.
pub(super) fn data<N: Network>(settings: &Settings, workers: usize) -> Result<()> {
    let sizes = settings.batch.sizes(settings.copies(workers)?)?;
    let (data, kind) = N::Kind::open(settings)?;
    data.check_batch(settings.batch, sizes.1)?;
    let (classes, parts) = (data.train.classes(), settings.stages.map_or(1, |stages| stages.parts));
    if classes < parts {
        let problem = format!("scores of {classes} classes cannot be split over {parts} workers");
        return Err(Error::setting(problem, format!("take --mesh with tensor={classes} at most")));
    }
    N::new(kind, settings.size).map(drop)
}

/// The learning rates of all steps.
pub(super) fn rates(settings: &Settings, workers: usize, steps_per_epoch: usize) -> Result<Schedule> {
    let (rate, times) = settings.base_rate(workers);
    let decay = Decay::Cosine { epochs: settings.epochs as f64, end: 0.0 };
    Schedule::new(rate, times, steps_per_epoch, settings.warmup, decay)
}

/// Fails on all ranks if one of them has another data set or other settings.
pub(super) fn same_on_all_ranks(world: &World, settings: &Settings, workers: usize, data: &DataSet) -> Result<()> {
    let own = settings.resume_settings(workers, data);
    let differs = |name: &str, value: &dyn Fn(&mut DefaultHasher)| -> Result<Option<usize>> {
        let mut hasher = DefaultHasher::new();
        value(&mut hasher);
        let hashes = world.gather(name, hasher.finish())?;
        Ok((1..hashes.len()).find(|&rank| hashes[rank] != hashes[0]))
    };
    let Some(rank) = differs("settings", &|hasher| own.hash(hasher))? else { return Ok(()) };
    let hint = "let --data name the same data set on all hosts";
    for (name, value) in &own {
        if let Some(rank) = differs(&format!("setting {name}"), &|hasher| value.hash(hasher))? {
            let problem = format!("{name}: that of rank {rank} is another one than that of rank 0");
            return Err(Error::setting(format!("{problem}; rank {} has {value}", world.rank()), hint));
        }
    }
    Err(Error::setting(format!("rank {rank} has other settings than rank 0"), hint))
}

/// A run resumes with the same settings; only the number of workers may change.
pub(super) fn same_settings(resumed: &Resumed, settings: &Settings, workers: usize, data: &DataSet) -> Result<()> {
    let now = settings.resume_settings(workers, data);
    let before = &resumed.manifest.settings;
    let Some(name) = before.keys().chain(now.keys()).find(|&name| before.get(name) != now.get(name)) else {
        return Ok(());
    };
    let say = |of: Option<&String>| of.map_or("nothing".to_owned(), Clone::clone);
    let problem =
        format!("{name}: it was {} when this run began, now it is {}", say(before.get(name)), say(now.get(name)));
    Err(Error::file(&resumed.path, problem, format!("give the --{name} that the run began with, or begin a new run")))
}
