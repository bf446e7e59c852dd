//! Functions of Python on volumes: tiles are read and written here, and the function computes them.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    thread,
    time::Duration,
    time::SystemTime,
};

use pyo3::{Py, PyAny, PyErr, PyResult, Python, exceptions::PyValueError, pyfunction};
use serde::{Deserialize, Serialize};
use sirtaki_infer::{
    Facts, InferError, Model, Settings,
    decide::{Means, decide},
    gather,
    model::Heard,
    place::Place,
    source::Source,
    told::Told,
    work::{Worker, WorkerReport, work},
};
use sirtaki_volume::grid::choose::Limits;

use crate::error::raised;

/// How often to look whether another process has completed the output.
const LOOK: Duration = Duration::from_millis(100);
/// Tiles that each worker should have at least.
const TILES: u64 = 4;

/// What Python asks for.
#[derive(Deserialize)]
struct Asked {
    settings: Settings,
    halo: Vec<u32>,
    stride: Vec<u32>,
    /// Something that differs for another network of the same name.
    sum: u64,
    memory: u64,
    /// What this process is called in the ledger.
    name: String,
    /// This process among those that were started together.
    rank: usize,
    size: usize,
    join: bool,
}

/// A function of Python: the address and the sizes of a tile in, those of the result out, with an object that keeps it.
#[derive(Clone)]
struct Callable {
    call: Arc<Py<PyAny>>,
    facts: Facts,
    /// What the function raised.
    raised: Arc<Mutex<Option<PyErr>>>,
}

/// What a process has done, and what was decided for all of them.
#[derive(Serialize)]
struct Done {
    #[serde(flatten)]
    report: WorkerReport,
    /// Voxels beyond a tile's core that it is read with, along each axis.
    halo: Vec<i64>,
    /// The error of halos that are smaller than what is exact, in standard deviations of the output, along each axis.
    error: Option<Vec<f64>>,
}

impl Model for Callable {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn run(&mut self, sizes: &[u64], values: &mut [f32], out: &mut Heard<'_>) -> Result<(), InferError> {
        let result = Python::attach(|py| {
            let address = values.as_mut_ptr() as usize;
            let result = self.call.call1(py, (address, sizes.to_vec()))?;
            let (address, sizes, _keep): (usize, Vec<u64>, Py<PyAny>) = result.extract(py)?;
            let count = sizes.iter().product::<u64>() as usize;
            let values = match count {
                0 => &[],
                // SAFETY: Python passes the address of so many numbers of single precision, which `_keep` keeps alive.
                _ => unsafe { std::slice::from_raw_parts(address as *const f32, count) },
            };
            Ok::<_, PyErr>(out(&sizes, values))
        });
        result.unwrap_or_else(|error| {
            let problem = error.to_string();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Err(InferError::Model { path: PathBuf::from("the network"), problem })
        })
    }
}

/// Applies a function to a volume; returns what this process has done, as JSON.
#[pyfunction]
pub(crate) fn infer(py: Python<'_>, call: Py<PyAny>, asked: &str) -> PyResult<String> {
    let asked: Asked = serde_json::from_str(asked).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let facts = Facts { axes: asked.halo.len(), channels: None, fixed: None };
    let raised_by_it = Arc::new(Mutex::new(None));
    let mut model = Callable { call: Arc::new(call), facts, raised: Arc::clone(&raised_by_it) };
    let done = py.detach(|| apply(&asked, &mut model));
    let raised_by_it = raised_by_it.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (raised_by_it, done) {
        (Some(error), Err(_)) => Err(error),
        (_, Err(error)) => {
            let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            Err(raised(py, format!("{error}{hint}"), None))
        }
        (_, Ok(done)) => serde_json::to_string(&done).map_err(|error| PyValueError::new_err(error.to_string())),
    }
}

fn apply(asked: &Asked, model: &mut Callable) -> Result<Done, InferError> {
    let (settings, place) = (&asked.settings, Place::of(&asked.settings.output)?);
    let together = asked.join || asked.size > 1;
    let nothing_left = || WorkerReport { name: asked.name.clone(), ..WorkerReport::default() };
    if together && place.is_complete()? {
        return Ok(Done { report: nothing_left(), halo: Vec::new(), error: None });
    }
    let source = Source::open(&settings.input, &settings.choices)?;
    let axes = source.extent()?.axes();
    let each = |numbers: &[u32]| if numbers.len() == 1 { vec![numbers[0]; axes] } else { numbers.to_vec() };
    model.facts.axes = axes;
    let told = Told { facts: model.facts.clone(), halo: each(&asked.halo), stride: each(&asked.stride), given: 1 };
    let channels = source.channels(&model.facts, settings.channels.as_deref())?.len() as u64;
    let told = told.check(model, channels, &source.extent()?)?;
    let begun = place.job()?;
    let scaling = begun.as_ref().map(|job| job.scaling.clone());
    let begun = begun.filter(|_| settings.tile.is_none());
    let tiled = begun.map(|job| Settings { tile: Some(job.spec.core), ..settings.clone() });
    let measured = model.clone();
    let mut again = || Ok(Box::new(measured.clone()) as Box<dyn Model>);
    let mut means = Means { network: &told, facts: &model.facts, sum: asked.sum, model: &mut again };
    let limits = Limits { memory: asked.memory, tiles: asked.size as u64 * TILES };
    let mut job = decide(tiled.as_ref().unwrap_or(settings), &mut means, limits)?;
    job.settings = settings.clone();
    job.scaling = match scaling {
        Some(scaling) => scaling,
        None => gather::scaling(&job, thread::available_parallelism().map_or(1, usize::from))?,
    };
    let mut begun = match place.begin(&job, &asked.name, together) {
        // Others were so fast that they have completed the output meanwhile.
        Err(_) if together && place.is_complete()? => {
            return Ok(Done { report: nothing_left(), halo: Vec::new(), error: None });
        }
        begun => begun?,
    };
    let stop = AtomicBool::new(false);
    let worker = Worker { name: asked.name.clone(), place: (asked.rank, asked.size), stop: &stop, now: &now };
    let report = work(&begun.job, model, &mut begun.ledger, &worker)?;
    while !place.finish(&begun.job, &mut begun.ledger, now())? && !place.is_complete()? {
        thread::sleep(LOOK);
    }
    let halo = begun.job.spec.halo.iter().map(|halo| halo.before.max(halo.after)).collect();
    Ok(Done { report, halo, error: begun.job.error.clone() })
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs())
}
