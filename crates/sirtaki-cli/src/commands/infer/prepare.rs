//! From what is typed to a job.

use std::path::Path;

use anyhow::{Context, Result};
use sirtaki_infer::{
    Content, InferError, Job, Model, Settings,
    decide::{self, Means},
    gather, norms,
    onnx::{Graph, Processor, Runtime},
    place::Place,
};
use sirtaki_launch::{allocation::Allocation, cores, outside::Outside, placement::Placement, protocol::ITSELF};
use sirtaki_volume::{
    format::{Choices, hdf5_library, is_hdf5},
    grid::choose::Limits,
};

use super::{absolute, library, memory};
use crate::{args::infer::Infer, launch::options::Options, printer::Printer};

/// The memory of a worker unless another one is given: larger tiles save little.
const MEMORY: u64 = 512 << 20;
/// Tiles that each worker should have at least, so that all end at about the same time.
const TILES: u64 = 4;

/// A job, and what computes it.
pub(super) struct Decided {
    pub(super) job: Job,
    graph: Graph,
    processor: Processor,
    /// Bytes that each worker may use.
    memory: u64,
    runtime: Option<Runtime>,
}

impl Decided {
    /// The network, ready to compute in this process.
    pub(super) fn model(&mut self) -> Result<Box<dyn Model>, InferError> {
        load(&self.graph, &mut self.runtime, self.processor)
    }

    /// Looks at the whole input for what it is scaled by and for what the network normalises with, unless a job that was
    /// begun has done so.
    pub(super) fn look_at_input(&mut self, place: &Place, workers: usize, printer: &mut Printer) -> Result<()> {
        let cores = cores::usable().len();
        match place.job()? {
            Some(begun) => (self.job.scaling, self.job.statistics) = (begun.scaling, begun.statistics),
            None => self.job.scaling = gather::scaling(&self.job, cores)?,
        }
        if !self.job.settings.global_statistics {
            return Ok(());
        }
        let graph = Graph::open(&self.job.settings.model)?;
        if self.job.statistics.is_empty() {
            let runtime = library::find(None)?;
            let mut told = |number: usize, all: usize| {
                printer.message(&format!("statistics of the whole volume for normalisation {} of {all}", number + 1));
            };
            let limits = (workers.min(cores), self.memory);
            self.job.statistics = norms::gather(&self.job, &graph, &runtime, limits, &mut told)?;
        }
        self.graph = graph.with_statistics(&self.job.statistics)?;
        Ok(())
    }

    /// Whether the result should be that of the whole volume in every bit.
    pub(super) fn is_exact(&self) -> bool {
        let settings = &self.job.settings;
        let whole = settings.tolerance.is_none() && !settings.inexact && settings.blend.is_none();
        // GPUs add up in an order that depends on the size of a tile.
        whole && self.job.reach.notes.is_empty() && self.processor.gpu.is_none()
    }
}

fn load(graph: &Graph, runtime: &mut Option<Runtime>, processor: Processor) -> Result<Box<dyn Model>, InferError> {
    let runtime = match runtime {
        Some(runtime) => runtime,
        None => runtime.insert(library::find(None)?),
    };
    Ok(Box::new(graph.clone().load(runtime, processor)?))
}

/// What is asked for.
pub(super) fn settings(arguments: &Infer) -> Result<Settings> {
    let choices = Choices {
        shape: arguments.shape.as_ref().map(|shape| shape.sizes().to_vec()),
        dtype: arguments.dtype,
        level: arguments.level,
        ..Choices::default()
    };
    Ok(Settings {
        model: absolute(&arguments.model)?,
        input: absolute(&arguments.input)?,
        output: absolute(&arguments.output)?,
        choices,
        content: if arguments.labels { Content::Labels } else { arguments.content },
        channels: (!arguments.channels.is_empty()).then(|| arguments.channels.clone()),
        region: arguments.roi.as_ref().map(|spans| spans.0.clone()),
        mask: arguments.mask.as_deref().map(absolute).transpose()?,
        tile: arguments.tile.clone(),
        chunk: arguments.chunk.clone(),
        tolerance: arguments.tolerance,
        inexact: arguments.inexact,
        global_statistics: arguments.global_statistics,
        blend: arguments.blend,
        window: arguments.window.clone(),
        normalise: arguments.normalise,
        allow_nan: arguments.allow_nan,
        replace: arguments.replace,
    })
}

/// Where workers run, and how they are started.
pub(super) fn placement(arguments: &Infer, output: &Path) -> Result<(Options, Placement)> {
    let outside = Outside::real();
    let output = output.to_str().with_context(|| format!("{}: the name is not text", output.display()))?;
    let runtime = library::find(None)?;
    if arguments.gpus.is_some() {
        runtime.check_gpu()?;
    }
    let library = runtime.path().display().to_string();
    let words =
        ["infer-worker", "--output", output, "--threads", &arguments.threads.to_string(), "--library", &library];
    let gpus = arguments.gpus.map(|gpus| ["--gpus".to_owned(), gpus.to_string()]);
    let mut volumes = [Some(&arguments.input), arguments.mask.as_ref()].into_iter().flatten();
    let hdf5 = volumes.any(|volume| is_hdf5(volume)).then(hdf5_library).flatten();
    let hdf5 = hdf5.map(|library| ["--hdf5".to_owned(), library.display().to_string()]);
    let words = [ITSELF].iter().chain(&words).map(ToString::to_string).chain(gpus.into_iter().flatten());
    let mut job = arguments.job(words.chain(hdf5.into_iter().flatten()).collect());
    let elsewhere = job.hosts.is_some() || job.hostfile.is_some() || Allocation::find(&outside)?.is_some();
    if job.ranks.is_none() && !elsewhere {
        let cores = (cores::usable().len() / arguments.threads).max(1).try_into().ok();
        job.ranks = arguments.gpus.or(cores);
    }
    let mut options = Options::resolve(job, &outside)?;
    options.job.independent = true;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let placement = Placement::find(&options.job, &outside, &name)?;
    Ok((options, placement))
}

/// Decides on tiles, or takes those of a job that was begun.
pub(super) fn decide(arguments: &Infer, settings: Settings, place: &Place, workers: usize) -> Result<Decided> {
    let graph = Graph::open(&settings.model)?;
    let graph = if settings.inexact || settings.global_statistics { graph.locally() } else { graph };
    let processor = Processor { threads: arguments.threads.get(), gpu: arguments.gpus.map(|_| 0) };
    let mut runtime = None;
    let begun = place.job()?.filter(|_| settings.tile.is_none());
    let memory = match arguments.memory {
        Some(bytes) => bytes as u64,
        None => memory::for_each(workers).min(MEMORY),
    };
    // Whatever memory there is now, a job that was begun keeps its tiles.
    let tiled = begun.map(|job| Settings { tile: Some(job.spec.core), ..settings.clone() });
    let mut means = Means {
        network: &graph,
        facts: graph.facts(),
        sum: decide::sum_of(&settings.model)?,
        model: &mut || load(&graph, &mut runtime, processor),
    };
    let limits = Limits { memory, tiles: workers as u64 * TILES };
    let mut job = decide::decide(tiled.as_ref().unwrap_or(&settings), &mut means, limits)?;
    job.settings = settings;
    Ok(Decided { job, graph, processor, memory, runtime })
}

/// The network that a worker computes.
pub(super) fn graph_of(job: &Job) -> Result<Graph, InferError> {
    let graph = Graph::open(&job.settings.model)?;
    match job.settings.global_statistics {
        true => graph.with_statistics(&job.statistics),
        false => Ok(graph),
    }
}
