//! Models in ONNX files, computed by ONNX Runtime.
//!
//! The library is loaded at run time, as MPI and NCCL are: whoever has it, from the system or with `pip install onnxruntime`,
//! can use it, and nobody else needs it. Its C interface is stable and small, so it is bound by hand.
//!
//! - `library` finds and opens it, `api` are its functions, `session` is what is safe to call.
//! - What the graph says about reach and memory comes from [`sirtaki_volume::reach`], which reads the file itself.

mod api;
mod library;
mod session;

use std::{
    fs,
    path::{Path, PathBuf},
};

use sirtaki_volume::{
    Extent, VolumeError,
    reach::{
        self, Layout, Reach,
        onnx::{
            OnnxModel, OnnxNode,
            rewrite::{self, ChannelStatistics},
        },
    },
};

pub use library::{Candidates, Runtime};

use crate::{
    InferError,
    error::refused,
    model::{Facts, Heard, Model, Network},
};
use session::Session;

/// ONNX's number of single precision.
const FLOAT: i64 = 1;

/// What a model computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    /// Threads.
    pub threads: usize,
    /// The number of a GPU, if it is to compute there.
    pub gpu: Option<u32>,
}

/// The graph in a file, without anything that could compute it.
#[derive(Debug, Clone)]
pub struct Graph {
    path: PathBuf,
    model: OnnxModel,
    facts: Facts,
    /// The file as it was changed, where it was.
    changed: Option<Vec<u8>>,
}

impl Graph {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, InferError> {
        let model = reach::open(path)?;
        let [input] = model.inputs.as_slice() else {
            let names: Vec<&str> = model.inputs.iter().map(|input| input.name.as_str()).collect();
            return Err(refused(
                format!("{}: the network has {} inputs ({})", path.display(), names.len(), names.join(", ")),
                "a volume is one input; several volumes can be its channels",
            ));
        };
        if input.elements != FLOAT {
            return Err(refused(
                format!("{}: the network's input `{}` is not of type float", path.display(), input.name),
                "export it in single precision",
            ));
        }
        let Some(sizes) = input.sizes.as_ref().filter(|sizes| sizes.len() > 2) else {
            return Err(refused(
                format!("{}: the network's input `{}` has no axes of space", path.display(), input.name),
                "export it with an input of batch, channels and the axes of space",
            ));
        };
        let known: Option<Vec<u64>> = sizes[2..].iter().copied().collect();
        if known.is_none() && sizes[2..].iter().any(Option::is_some) {
            return Err(refused(
                format!("{}: some axes of the network's input have a fixed size, and others not", path.display()),
                "export it with all axes of space dynamic, or with none",
            ));
        }
        let fixed = known.map(Extent::new).transpose()?;
        let facts = Facts { axes: sizes.len() - 2, channels: sizes[1], fixed };
        Ok(Self { path: path.to_owned(), model, facts, changed: None })
    }

    /// How many groups of channels each normalisation over a whole sample has, in the order of computing; nothing where each
    /// channel is one.
    pub fn normalisations(&self) -> Result<Vec<Option<u64>>, InferError> {
        let found = self.model.normalisations().map_err(|which| {
            let problem = format!("{}: {which} cannot be given statistics", self.path.display());
            refused(problem, "export the network with InstanceNormalization, or with opset 21; or use --blend")
        })?;
        let groups = |node: &&OnnxNode| node.int("num_groups").and_then(|groups| u64::try_from(groups).ok());
        Ok(found.iter().map(groups).collect())
    }

    /// The same network with the first of these normalisations given statistics of a volume. If there are more of them, it
    /// ends with the input of the next one.
    pub fn with_statistics(&self, known: &[ChannelStatistics]) -> Result<Self, InferError> {
        let fails = |problem: String| InferError::Model { path: self.path.clone(), problem };
        let file = fs::read(&self.path).map_err(VolumeError::io(&self.path))?;
        let changed = rewrite::with_statistics(&file, known).map_err(fails)?;
        let model = OnnxModel::parse(&changed).map_err(fails)?;
        Ok(Self { path: self.path.clone(), model, facts: self.facts.clone(), changed: Some(changed) })
    }

    /// What is known of it without a volume.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same graph as if normalisation over a whole sample looked at nothing: what is said of it is then an approximation.
    #[must_use]
    pub fn locally(mut self) -> Self {
        self.model = self.model.locally();
        self
    }

    /// Loads the file into the library, to compute there.
    pub fn load(self, runtime: &Runtime, Processor { threads, gpu }: Processor) -> Result<Onnx, InferError> {
        let gpu = gpu.map(|gpu| Ok::<_, InferError>((runtime.cuda()?, gpu))).transpose()?;
        let names = (self.model.inputs[0].name.clone(), self.model.outputs.first().cloned().unwrap_or_default());
        let session = Session::open(runtime.api(), (&self.path, self.changed.as_deref()), names, (threads, gpu))?;
        Ok(Onnx { graph: self, session })
    }
}

impl Network for Graph {
    fn reach(&self, channels: u64, space: &Extent) -> Result<Reach, InferError> {
        let layout = Layout::channels_first(channels, self.facts.fixed.as_ref().unwrap_or(space));
        Ok(reach::of_onnx(&self.model, &layout)?)
    }

    fn values_at_once(&self, channels: u64, space: &Extent, tile: &Extent) -> Option<u64> {
        let layout = Layout::channels_first(channels, self.facts.fixed.as_ref().unwrap_or(space));
        reach::network(&self.model, &layout).ok()?.values_at_once(tile.sizes())
    }
}

/// A model of an ONNX file, ready to compute.
#[derive(Debug)]
pub struct Onnx {
    graph: Graph,
    session: Session,
}

impl Model for Onnx {
    fn facts(&self) -> &Facts {
        self.graph.facts()
    }

    fn run(&mut self, sizes: &[u64], values: &mut [f32], out: &mut Heard<'_>) -> Result<(), InferError> {
        let shape: Vec<u64> = [1].into_iter().chain(sizes.iter().copied()).collect();
        self.session.run(&shape, values, &mut |shape, values| match shape.split_first() {
            Some((1, sizes)) if sizes.len() == self.graph.facts.axes + 1 => out(sizes, values),
            _ => Err(InferError::Model {
                path: self.graph.path.clone(),
                problem: format!("the network's output has the shape {shape:?}, which is no volume"),
            }),
        })
    }
}
