//! A network that is a function of the process itself, applied to a volume from beginning to end.
//!
//! All processes that share the work call the same: whoever comes first begins the job, and whoever is left at the end
//! completes the output.

use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use sirtaki_volume::grid::choose::Limits;

use crate::{
    Facts, InferError, Model, Settings,
    decide::{Means, decide},
    gather,
    place::Place,
    source::Source,
    told::Told,
    work::{Worker, WorkerReport, work},
};

/// How often to look whether another process has completed the output.
const LOOK: Duration = Duration::from_millis(100);
/// Tiles that each worker should have at least.
const TILES: u64 = 4;

/// What this process is asked for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Asked {
    /// What all processes are asked for.
    pub settings: Settings,
    /// How far the network looks, along each axis or along all.
    pub halo: Vec<u32>,
    /// The steps in which it moves, along each axis or along all.
    pub stride: Vec<u32>,
    /// Something that differs for another network of the same name.
    pub sum: u64,
    /// Bytes that this process may use.
    pub memory: u64,
    /// What it is called in the ledger.
    pub name: String,
    /// Its number among those that were started together.
    pub rank: usize,
    /// How many were.
    pub size: usize,
    /// Whether others may be at work that were started independently.
    pub join: bool,
}

/// What a process has done, and what was decided for all of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Done {
    /// What it has done.
    #[serde(flatten)]
    pub report: WorkerReport,
    /// Voxels beyond a tile's core that it is read with, along each axis.
    pub halo: Vec<i64>,
    /// The error of halos that are smaller than what is exact, in standard deviations of the output, along each axis.
    pub error: Option<Vec<f64>>,
}

/// Applies a network, which is made for a number of axes of space.
pub fn apply<M: Model + Clone + 'static>(asked: &Asked, make: impl FnOnce(usize) -> M) -> Result<Done, InferError> {
    let (settings, place) = (&asked.settings, Place::of(&asked.settings.output)?);
    let together = asked.join || asked.size > 1;
    let nothing_left =
        || Done { report: WorkerReport { name: asked.name.clone(), ..WorkerReport::default() }, ..Done::default() };
    if together && place.is_complete()? {
        return Ok(nothing_left());
    }
    let source = Source::open(&settings.input, &settings.choices)?;
    let axes = source.extent()?.axes();
    let mut model = make(axes);
    let facts = model.facts().clone();
    let told = told(asked, &facts, &source, &mut model)?;
    let begun = place.job()?;
    let scaling = begun.as_ref().map(|job| job.scaling.clone());
    let begun = begun.filter(|_| settings.tile.is_none());
    let tiled = begun.map(|job| Settings { tile: Some(job.spec.core), ..settings.clone() });
    let measured = model.clone();
    let mut again = || Ok(Box::new(measured.clone()) as Box<dyn Model>);
    let mut means = Means { network: &told, facts: &facts, sum: asked.sum, model: &mut again };
    let limits = Limits { memory: asked.memory, tiles: asked.size as u64 * TILES };
    let mut job = decide(tiled.as_ref().unwrap_or(settings), &mut means, limits)?;
    job.settings = settings.clone();
    job.scaling = match scaling {
        Some(scaling) => scaling,
        None => gather::scaling(&job, thread::available_parallelism().map_or(1, usize::from))?,
    };
    let mut begun = match place.begin(&job, &asked.name, together) {
        // Others were so fast that they have completed the output meanwhile.
        Err(_) if together && place.is_complete()? => return Ok(nothing_left()),
        begun => begun?,
    };
    let stop = AtomicBool::new(false);
    let worker = Worker { name: asked.name.clone(), place: (asked.rank, asked.size), stop: &stop, now: &now };
    let report = work(&begun.job, &mut model, &mut begun.ledger, &worker)?;
    while !place.finish(&begun.job, &mut begun.ledger, now())? && !place.is_complete()? {
        thread::sleep(LOOK);
    }
    let halo = begun.job.spec.halo.iter().map(|halo| halo.before.max(halo.after)).collect();
    Ok(Done { report, halo, error: begun.job.error.clone() })
}

/// What is told about the network, once it has proved to be true.
fn told(asked: &Asked, facts: &Facts, source: &Source, model: &mut dyn Model) -> Result<Told, InferError> {
    let extent = source.extent()?;
    let channels = source.channels(facts, asked.settings.channels.as_deref())?.len() as u64;
    let each = |numbers: &[u32]| if numbers.len() == 1 { vec![numbers[0]; extent.axes()] } else { numbers.to_vec() };
    let told = Told { facts: facts.clone(), halo: each(&asked.halo), stride: each(&asked.stride), given: 1 };
    told.check(model, channels, &extent)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}
